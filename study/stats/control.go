package stats

// Moved judges the controls of one comparison, metrics that the factor cannot move, as a family of their own: that they
// are watched must not make the comparison itself weaker. It returns the indexes of those that moved: something else
// than the factor differed between the levels, and the comparison is confounded.
//
// A control has moved only after Holm's correction. Uncorrected, one of ten honest studies with two
// controls would be thrown away, and a warning that is often wrong is soon not read. A control that
// moved by less than its margin, or that is too noisy to say anything, has not moved.
func Moved(controls []Effect) []int {
	var moved []int
	for i, j := range Judge(controls) {
		if j.Verdict == Better || j.Verdict == Worse {
			moved = append(moved, i)
		}
	}
	return moved
}
