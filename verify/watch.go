package verify

import (
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/finding"
)

// A Drift is a check whose outcome is another than before. As JSON it is one line of verify --watch, see docs/json.md.
type Drift struct {
	At      time.Time       `json:"at"`
	Before  finding.Status  `json:"before,omitempty"` // left out of what was not ok when watching began
	Finding finding.Finding `json:"finding"`
}

// A Watch remembers which checks are not OK. Its zero value has seen no round yet.
type Watch struct {
	off   map[subjectOfCheck]finding.Finding
	began bool
}

// A subjectOfCheck is what stays the same of a finding while its outcome changes.
type subjectOfCheck struct{ id, subject string }

// Changes returns what is different from the findings before, in the order of the new ones. In the
// first round that is all that is not ok.
//
// A check that was not made this time, because its node does not answer, is as it was.
func (w *Watch) Changes(at time.Time, now []finding.Finding) []Drift {
	var out []Drift
	before := w.off
	w.off = map[subjectOfCheck]finding.Finding{}
	seen := map[subjectOfCheck]bool{}
	for _, f := range now {
		key := subjectOfCheck{f.ID, f.Subject}
		seen[key] = true
		was, wasOff := before[key]
		if f.Status != finding.OK {
			w.off[key] = f
		}
		switch {
		case f.Status == finding.OK && wasOff:
			out = append(out, Drift{at, was.Status, f})
		case f.Status != finding.OK && !wasOff:
			c := Drift{At: at, Finding: f}
			if w.began {
				c.Before = finding.OK
			}
			out = append(out, c)
		case f.Status != finding.OK && f.Status != was.Status:
			out = append(out, Drift{at, was.Status, f})
		}
	}
	var answer []Drift
	for key, was := range before {
		switch {
		case seen[key]:
		case was.Silent: // it answers again: then the finding is not made at all
			again := was
			again.Status, again.Have, again.Fix = finding.OK, "it answers again", ""
			answer = append(answer, Drift{at, was.Status, again})
		default:
			w.off[key] = was
		}
	}
	slices.SortFunc(answer, func(a, b Drift) int { return strings.Compare(a.Finding.Subject, b.Finding.Subject) })
	w.began = true
	return append(out, answer...)
}

// NotOK returns how many checks were not OK after the last round.
func (w *Watch) NotOK() int { return len(w.off) }
