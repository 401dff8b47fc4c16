package recommend

import (
	"cmp"
	_ "embed" // for published.yaml
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// A Carry says how far evidence applies to the host in question.
type Carry string

// Origins of evidence, from the most to the least applicable.
const (
	MeasuredHere      Carry = "measured here"
	MeasuredOnKind    Carry = "measured on the same kind of host"
	PublishedForKind  Carry = "published for this kind of host"
	MeasuredElsewhere Carry = "measured on other hardware"
	MeasuredUnknown   Carry = "measured on a host that is not known"
	Published         Carry = "published elsewhere"
	Emulated          Carry = "emulated"
	NoEvidence        Carry = "no evidence: default"
)

const ranks = 4

// rank 0 counts most, and -1 decides nothing. Other hardware, unknown hosts and documents share one: each leaves open
// whether the effect carries over.
func (c Carry) rank() int {
	switch c {
	case MeasuredElsewhere, MeasuredUnknown, Published:
		return 3
	}
	return slices.Index([]Carry{MeasuredHere, MeasuredOnKind, PublishedForKind}, c)
}

// Evidence compares two levels of a setting by one metric.
type Evidence struct {
	Setting Setting       `json:"setting"`
	From    string        `json:"from"`
	To      string        `json:"to"` // compared with From
	Verdict stats.Verdict `json:"verdict"`
	Test    string        `json:"test"`
	Metric  string        `json:"metric"`
	Where   string        `json:"where,omitempty"` // other conditions: load, other settings
	// Effect has the unit and, if measured, the interval.
	Effect string `json:"effect"`
	// Ratio is the metric at To divided by that at From; 0 if unknown.
	Ratio float64 `json:"ratio,omitempty"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	// Source is the study's name, or a document's title and table.
	Source string `json:"source"`
	Carry  Carry  `json:"carry"`
	// Remark says why it decides nothing, or which settings changed together.
	Remark  string `json:"remark,omitempty"`
	Decides bool   `json:"decides"`

	lowerIsBetter bool
	isTurned      bool           // Effect is From compared with To
	together      bool           // other settings changed as well
	aside         bool           // only shown; not undecided either
	workloads     []lab.Workload // nil means all
}

func (e *Evidence) matters(w lab.Workload) bool {
	return e.workloads == nil || slices.Contains(e.workloads, w)
}

// loss is 0.29 for a latency 29 % higher, 0.36 for a bandwidth 36 % lower.
func (e *Evidence) loss() float64 {
	if e.lowerIsBetter {
		return e.Ratio - 1
	}
	return 1 - e.Ratio
}

func (e Evidence) turned() Evidence {
	e.From, e.To, e.isTurned = e.To, e.From, !e.isTurned
	switch e.Verdict {
	case stats.Better:
		e.Verdict = stats.Worse
	case stats.Worse:
		e.Verdict = stats.Better
	}
	if e.Ratio > 0 {
		e.Ratio = 1 / e.Ratio
	}
	if e.Low > 0 && e.High > 0 {
		e.Low, e.High = 1/e.High, 1/e.Low
	}
	return e
}

// shown adds the direction if From and To were swapped.
func (e *Evidence) shown() string {
	if e.isTurned {
		return fmt.Sprintf("%s with %s instead of %s", e.Effect, e.From, e.To)
	}
	return e.Effect
}

// A Study is a study with its runs and the measured machine.
type Study struct {
	Name        string
	Data        *study.Data
	Environment []study.Fact // first run; may be empty
	Emulated    bool         // any figure is emulated
	Lab         *lab.Lab     // nil if not known
}

// Where returns how far a study carries over, with the reason. Studies record no identity of their machine, because
// they are passed on, so equal CPU models, CPUs and kernels are the same host.
func Where(s *Study, h *topology.Host) (Carry, string) {
	facts := map[string]string{}
	for _, f := range s.Environment {
		facts[f.Name] = cmp.Or(facts[f.Name], f.Value)
	}
	if s.Emulated || strings.Contains(facts["accelerator"], "emulated") {
		return Emulated, "it measured emulated machines, which say nothing about hardware"
	}
	if s.Data != nil && s.Data.Spec.Imported != "" {
		return MeasuredUnknown, "it was imported: where it was measured is not known for sure, and its runs were " +
			"neither interleaved nor randomised"
	}
	cpu, cpus, kernel := facts["host CPU"], facts["host CPUs"], facts[study.FactKernel]
	switch {
	case cpu == "":
		return MeasuredUnknown, "it does not say on which CPU it was made"
	case h.System.CPUModel == "":
		return MeasuredUnknown, fmt.Sprintf("it was made on %s, and the model of this host's CPU is not known", cpu)
	case h.System.CPUModel != cpu:
		return MeasuredElsewhere, fmt.Sprintf("it was made on %s, and this host has %s", cpu, h.System.CPUModel)
	}
	set, err := topology.ParseCPUSet(cpus)
	switch {
	case cpus == "" || err != nil || h.CPUs.Online.IsEmpty():
		return MeasuredOnKind, "the model of the CPU is the same; which CPUs there are is not known on both sides"
	case !set.Equal(h.CPUs.Online):
		return MeasuredOnKind, fmt.Sprintf("the model of the CPU is the same; it had CPUs %s, and this host has %s",
			set, h.CPUs.Online)
	case kernel == "" || h.Kernel.Release == "":
		return MeasuredOnKind, "CPUs and their model are the same; the kernel is not known on both sides"
	case kernel != h.Kernel.Release:
		return MeasuredOnKind, fmt.Sprintf("CPUs and their model are the same; it ran kernel %s, and this host runs %s",
			kernel, h.Kernel.Release)
	}
	return MeasuredHere, "model of the CPU, CPUs and kernel are the same"
}

// comparisons judges all pairs as one family; Analyse only compares with the first level.
func comparisons(d *study.Data) (all []study.Comparison, confounds []string, err error) {
	base, err := study.Analyse(d)
	if err != nil {
		return nil, nil, err
	}
	all, confounds = base.Comparisons, base.Confounds
	for i, f := range d.Spec.Factors {
		for first := 1; first < len(f.Levels)-1; first++ {
			spec := *d.Spec
			spec.Factors = slices.Clone(spec.Factors)
			spec.Factors[i].Levels = slices.Concat(f.Levels[first:first+1], f.Levels[:first], f.Levels[first+1:])
			more, err := study.Analyse(&study.Data{Spec: &spec, Runs: d.Runs})
			if err != nil {
				return nil, nil, err
			}
			all = append(all, lists.Filter(more.Comparisons,
				func(c study.Comparison) bool { return c.Factor == f.Name && slices.Index(f.Levels, c.B) > first })...)
		}
	}
	study.Judge(all)
	return all, confounds, nil
}

func doubt(all []study.Comparison) string {
	for _, c := range all {
		if c.A == c.B && c.Judged != nil && (c.Judged.Verdict == stats.Better || c.Judged.Verdict == stats.Worse) {
			return fmt.Sprintf("it compares %s=%s with itself and finds a difference: it is not to be believed",
				c.Factor, c.A)
		}
	}
	return ""
}

func (s *Study) evidence(carry Carry) (all []Evidence, confounds []string, err error) {
	found, confounds, err := comparisons(s.Data)
	if err != nil {
		return nil, nil, fmt.Errorf("study %s: %w", s.Name, err)
	}
	// A difference in an A/A comparison is an error that affects all verdicts.
	doubt := doubt(found)
	for i := range found {
		c := &found[i]
		from, to := settingsOf(c.Factor, c.A), settingsOf(c.Factor, c.B)
		changed := lists.Filter(lists.Keys(to), func(setting Setting) bool { return from[setting] != to[setting] })
		for _, setting := range changed {
			e := Evidence{
				Setting: setting, From: from[setting], To: to[setting], Verdict: stats.Undecided, Test: c.Test,
				Metric: c.Metric, Where: c.Where, Effect: c.Text(),
				Source: "study " + s.Name, Carry: carry, lowerIsBetter: c.Better == stats.LowerIsBetter,
				workloads: workloadsOf(c.Test),
			}
			if c.Effect != nil && c.Effect.Scale == stats.Ratio {
				e.Ratio = c.Effect.Estimate
				if c.Effect.Interval.Bounded() {
					e.Low, e.High = c.Effect.Interval.Low, c.Effect.Interval.High
				}
			}
			if c.Judged != nil {
				e.Verdict = c.Judged.Verdict
			}
			if len(changed) > 1 {
				e.together = true
				e.Remark = fmt.Sprintf("%s was changed from %s to %s as a whole", c.Factor, c.A, c.B)
			}
			switch {
			case carry == Emulated:
				e.Remark = "emulated: no evidence for hardware"
			case doubt != "":
				e.Remark = doubt
			case len(c.Confounded) > 0:
				e.Remark = "confounded: " + strings.Join(c.Confounded, "; ")
			case c.Judged == nil:
				e.Remark = c.Problem
			case e.Verdict == stats.Undecided:
				e.Remark = c.Judged.Reason
			default:
				e.Decides = true
			}
			all = append(all, e)
		}
	}
	// A step in several settings is set aside for a setting that also changed alone.
	for i := range all {
		e := &all[i]
		single := slices.ContainsFunc(all, func(o Evidence) bool {
			return o.Setting == e.Setting && !o.together && o.To != levelWrong && o.From != levelWrong
		})
		if e.together && (single || e.From == levelWrong || e.To == levelWrong) {
			e.Decides, e.aside = false, true
			e.Remark += ", which tells nothing of " + string(e.Setting) + " alone"
		}
		e.aside = e.aside || doubt != ""
	}
	return all, confounds, nil
}

// Measured reports whether a study has figures. One aborted early may have none.
func (s *Study) Measured() bool {
	return slices.ContainsFunc(s.Data.Runs, func(o study.Observation) bool {
		return len(o.Values) > 0 && (o.Status == study.StatusDone || o.Status == study.StatusFailed)
	})
}

// A Document is a published document with figures for or against settings.
type Document struct {
	Title string `yaml:"title"`
	// Kind lists words in names of the measured CPUs or GPUs; empty if no host can be matched.
	Kind    []string        `yaml:"kind"`
	Figures []Figure        `yaml:"figures"`
	Pairs   []PublishedPair `yaml:"pairs"`
}

// A Figure is one comparison in a document.
type Figure struct {
	Table string `yaml:"table"` // location in the document
	// To compared with From, with the author's verdict.
	Setting Setting       `yaml:"setting"`
	From    string        `yaml:"from"`
	To      string        `yaml:"to"`
	Verdict stats.Verdict `yaml:"verdict"`
	Test    string        `yaml:"test"` // as in bench or a study
	Metric  string        `yaml:"metric"`
	Where   string        `yaml:"where"`
	// A and B are the metric at From and To; Low and High the ratio if the author gives a range. All are 0 without
	// figures.
	A    float64 `yaml:"a"`
	B    float64 `yaml:"b"`
	Unit string  `yaml:"unit"`
	Low  float64 `yaml:"low"`
	High float64 `yaml:"high"`
	Says string  `yaml:"says"` // the finding in our words; optional with A and B
	// Workloads may be nil: all that the test matters to.
	Workloads []lab.Workload `yaml:"workloads"`
	// Requirements: more than one NUMA node, SMT, a lab with GPUs.
	NeedsNUMA bool `yaml:"needs_numa"`
	NeedsSMT  bool `yaml:"needs_smt"`
	NeedsGPUs bool `yaml:"needs_gpus"`
}

// A PublishedPair is the bandwidth between a GPU and a NIC. It applies to another machine only if all paths are the
// same.
type PublishedPair struct {
	GPU   string             `yaml:"gpu"`
	NIC   string             `yaml:"nic"`
	Class topology.PathClass `yaml:"class"`
	Gbps  float64            `yaml:"gbps"`
}

// documents are listed in docs/recommend.md.
//
//go:embed published.yaml
var documents []byte

// Documents returns the published evidence.
var Documents = sync.OnceValue(func() []Document {
	var all struct {
		Documents []Document `yaml:"documents"`
	}
	strictyaml.MustParse("published.yaml", documents, &all)
	return all.Documents
})

func (d *Document) ofKind(h *topology.Host) bool {
	return slices.ContainsFunc(d.Kind, func(kind string) bool {
		has := func(model string) bool { // an H200 is no H20
			return strings.Contains(" "+strings.NewReplacer("-", " ", "(", " ", ")", " ").Replace(model)+" ",
				" "+kind+" ")
		}
		return has(h.System.CPUModel) || slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return has(g.Model) })
	})
}

// published omits figures that require other hardware.
func published(documents []Document, h *topology.Host, l *lab.Lab) []Evidence {
	numa, threads := shape(h)
	gpus := slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return n.GPUs > 0 })
	var all []Evidence
	for i := range documents {
		d, carry := &documents[i], Published
		if d.ofKind(h) {
			carry = PublishedForKind
		}
		for _, f := range d.Figures {
			if f.NeedsNUMA && numa == 1 || f.NeedsSMT && threads == 1 || f.NeedsGPUs && !gpus {
				continue
			}
			all = append(all, f.evidence(d.Title, carry))
		}
	}
	return all
}

func (f *Figure) evidence(title string, carry Carry) Evidence {
	e := Evidence{
		Setting: f.Setting, From: f.From, To: f.To, Verdict: f.Verdict, Test: f.Test, Metric: f.Metric, Where: f.Where,
		Effect: f.Says, Low: f.Low, High: f.High,
		Source: title + ", " + f.Table, Carry: carry, Decides: f.Verdict != stats.Undecided,
		aside: f.Verdict == stats.Undecided, workloads: f.Workloads, lowerIsBetter: f.Unit == "us" ||
			strings.HasPrefix(f.Metric, "latency"),
	}
	if e.aside {
		e.Remark = "no comparison"
	}
	if f.Workloads == nil {
		e.workloads = workloadsOf(f.Test)
	}
	switch {
	case f.A > 0:
		e.Ratio = f.B / f.A
		e.Effect = fmt.Sprintf("%g %s instead of %g (%+.3g%%)", f.B, f.Unit, f.A, 100*(e.Ratio-1))
	case f.Low > 0:
		e.Effect = fmt.Sprintf("%+.0f%% to %+.0f%%", 100*(f.Low-1), 100*(f.High-1))
		if f.Low >= 2 {
			e.Effect = fmt.Sprintf("x%g to x%g", f.Low, f.High)
		}
	}
	if f.Says != "" && e.Effect != f.Says {
		e.Effect += ": " + f.Says
	}
	return e
}
