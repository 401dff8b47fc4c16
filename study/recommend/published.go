package recommend

import (
	_ "embed" // for the evidence
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/study/stats"
	"github.com/rackless/rackless/topology"
)

// A Document is a published one, with the figures in it that speak for or against a setting.
type Document struct {
	Title string `yaml:"title"`
	// Kind is part of the names of the CPUs or GPUs that it measured: a host that has one is of its
	// kind. Empty: of no kind that could be told from a host.
	Kind    []string        `yaml:"kind"`
	Figures []Figure        `yaml:"figures"`
	Pairs   []PublishedPair `yaml:"pairs"`
}

// A Figure is one comparison in a document.
type Figure struct {
	Table string `yaml:"table"` // where in the document
	// What was compared: To with From. The verdict is the author's.
	Setting Setting       `yaml:"setting"`
	From    string        `yaml:"from"`
	To      string        `yaml:"to"`
	Verdict stats.Verdict `yaml:"verdict"`
	Test    string        `yaml:"test"` // as bench or a study would name it
	Metric  string        `yaml:"metric"`
	Where   string        `yaml:"where"`
	// A and B are the metric at From and To; or Low and High are its ratio, where the author gives
	// a range. All are 0 where the author states it without a figure.
	A    float64 `yaml:"a"`
	B    float64 `yaml:"b"`
	Unit string  `yaml:"unit"`
	Low  float64 `yaml:"low"`
	High float64 `yaml:"high"`
	Says string  `yaml:"says"` // the author's finding, retold; for figures with A and B it may be empty
	// Workloads are those that it speaks to; nil stands for those that the test's figure matters to.
	Workloads []lab.Workload `yaml:"workloads"`
	// Host that it takes: more than one NUMA node, SMT, a lab with GPUs.
	NeedsNUMA bool `yaml:"needs_numa"`
	NeedsSMT  bool `yaml:"needs_smt"`
	NeedsGPUs bool `yaml:"needs_gpus"`
}

// A PublishedPair is the measured bandwidth between a GPU and a NIC of a machine, with their path.
// Another machine's figures count where all its paths are the same.
type PublishedPair struct {
	GPU   string             `yaml:"gpu"`
	NIC   string             `yaml:"nic"`
	Class topology.PathClass `yaml:"class"`
	Gbps  float64            `yaml:"gbps"`
}

// documents is the published evidence, figure by figure. docs/recommend.md lists the documents.
//
//go:embed published.yaml
var documents []byte

// Documents returns the published evidence.
var Documents = sync.OnceValue(func() []Document {
	r := strictyaml.New(&strictyaml.Format{Name: "evidence", File: "file of evidence", MaxSize: 1 << 20,
		MaxTokens: 10_000, MaxDepth: 8}, "published.yaml")
	var all struct {
		Documents []Document `yaml:"documents"`
	}
	if r.Parse(documents, &all); len(r.Errs) > 0 {
		panic(r.Errs) // a test reads it
	}
	return all.Documents
})

// ofKind reports whether a host is of the kind that a document measured.
func (d *Document) ofKind(h *topology.Host) bool {
	return slices.ContainsFunc(d.Kind, func(kind string) bool {
		has := func(model string) bool { // whole words: an H200 is no H20
			return strings.Contains(" "+strings.NewReplacer("-", " ", "(", " ", ")", " ").Replace(model)+" ",
				" "+kind+" ")
		}
		return has(h.System.CPUModel) || slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return has(g.Model) })
	})
}

// evidence returns what documents say on a lab on a host; what needs hardware that they do not have is left out.
func published(documents []Document, h *topology.Host, l *lab.Lab) []Evidence {
	numa, threads := shape(h)
	gpus := slices.ContainsFunc(l.Nodes, func(n lab.Node) bool { return n.GPUs > 0 })
	var all []Evidence
	for d := range lists.Refs(documents) {
		carry := words.Either(d.ofKind(h), PublishedForKind, Published)
		for _, f := range d.Figures {
			if f.NeedsNUMA && numa == 1 || f.NeedsSMT && threads == 1 || f.NeedsGPUs && !gpus {
				continue
			}
			all = append(all, f.evidence(d.Title, carry))
		}
	}
	return all
}

// evidence retells a figure. The verdict is the author's: no runs are published that could be judged anew.
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
		e.Effect = fmt.Sprintf("%g %s in place of %g (%+.3g%%)", f.B, f.Unit, f.A, 100*(e.Ratio-1))
	case f.Low > 0:
		e.Effect = fmt.Sprintf("%+.0f%% to %+.0f%%", 100*(f.Low-1), 100*(f.High-1))
		if f.Low >= 2 {
			e.Effect = fmt.Sprintf("x%g to x%g", f.Low, f.High)
		}
	}
	e.Effect += words.If(f.Says != "" && e.Effect != f.Says, ": "+f.Says)
	return e
}
