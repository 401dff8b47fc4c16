package stats

// A ControlReport says what became of the metrics that the factor cannot move; the numbers are indexes of the effects.
type ControlReport struct {
	// Moved are controls that moved: something else than the factor differed between the levels,
	// and the comparison is confounded.
	Moved []int `json:"moved,omitempty"`
	// Suspect are controls that would count as moved if each were the only one.
	Suspect []int `json:"suspect,omitempty"`
	// Held are controls that are shown to have stayed within their margin.
	Held []int `json:"held,omitempty"`
	// Open are controls too noisy to vouch for anything.
	Open []int `json:"open,omitempty"`
}

// Controls judges the controls of one comparison, as a family of their own: that they are watched
// must not make the comparison itself weaker.
//
// Only a control that moved after Holm's correction confounds a comparison. Uncorrected, one of ten
// honest studies with two controls would be thrown away, and a warning that is often wrong is soon
// not read. What the correction may hide is not lost: such controls are suspect. A control that
// moved by less than its margin has held; one without a margin can only be open or moved.
func Controls(effects []Effect) ControlReport {
	var c ControlReport
	for i, j := range Judge(effects) {
		alone := judge(effects[i], effects[i].P, 1)
		switch {
		case j.Verdict == Equivalent:
			c.Held = append(c.Held, i)
		case j.Verdict != Undecided:
			c.Moved = append(c.Moved, i)
		case alone.Verdict != Undecided:
			c.Suspect = append(c.Suspect, i)
		default:
			c.Open = append(c.Open, i)
		}
	}
	return c
}
