package appraise

import (
	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/topology"
)

// A Result is all figures of some logs, held against one host.
type Result struct {
	Host    string   `json:"host"`
	OK      bool     `json:"ok"` // no figure is faulty
	Figures []Figure `json:"figures"`
	Failed  []string `json:"failed,omitempty"` // tests that gave no figure, with the reason
}

// NewResult holds the figures of studies against a host, as Check does.
func NewResult(name string, h *topology.Host, findings []finding.Finding, studies []*importer.Study,
	device string) *Result {
	r := &Result{Host: name, Figures: Check(h, findings, studies, device)}
	for _, s := range studies {
		for _, run := range s.Runs {
			r.Failed = append(r.Failed, run.Failures...)
		}
	}
	bad, _ := r.Count()
	r.OK = bad == 0
	return r
}

// Count returns how many figures are faulty, and how many there is nothing to hold against.
func (r *Result) Count() (faulty, unknown int) {
	for i := range r.Figures {
		switch f := &r.Figures[i]; {
		case f.Faulty():
			faulty++
		case f.Verdict == Unknown:
			unknown++
		}
	}
	return faulty, unknown
}
