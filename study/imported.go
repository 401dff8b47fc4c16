package study

import "fmt"

// elsewhere says that runs are results of others, before anything is said of what they show.
func (s *Spec) elsewhere() []string {
	if s.Imported == "" {
		return nil
	}
	words := []string{fmt.Sprintf("These runs were measured elsewhere and imported (%s): rackless neither "+
		"interleaved nor randomised them. Blocks are no more than the numbers of "+
		"repeats, and what drifted or differed between them looks like an effect: take the verdicts with care.",
		s.Imported)}
	if len(s.Pairings()) == 0 {
		words = append(words, fmt.Sprintf("They have one level alone, %s, so there is nothing to compare.",
			s.CellText(s.Cells()[0])))
	}
	return words
}

// unseen says what nobody looked for: of imported runs the state of the machine is not known.
func (s *Spec) unseen() []string {
	if s.Imported == "" {
		return nil
	}
	return []string{"the order of the runs in time and the state of the machine around them are not known: load, " +
		"frequencies, heat and other versions of tools were not looked for"}
}
