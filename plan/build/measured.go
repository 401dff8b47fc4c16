package build

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func weights(w *plan.Weights) (names []string, values map[string]*int64) {
	v := reflect.ValueOf(w).Elem()
	values = make(map[string]*int64, v.NumField())
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("json")
		names = append(names, name)
		values[name] = v.Field(i).Addr().Interface().(*int64)
	}
	return names, values
}

func (b *problemBuilder) overrideWeights() {
	names, known := weights(&b.p.Weights)
	for _, name := range slices.Sorted(maps.Keys(b.model.Weights)) {
		v, w := b.model.Weights[name], known[name]
		switch {
		case w == nil:
			b.fail("", "model", "no weight is called %s: they are %s and %s", words.Plain(name),
				strings.Join(names[:len(names)-1], ", "), names[len(names)-1])
		case v < 0 || v > MaxWeight:
			b.fail("", "model", "weight %s is %d: want 0 to %d", name, v, MaxWeight)
		default:
			b.note("weight %s is %d in place of %d%s", name, v, *w, b.modelSource())
			*w = v
		}
	}
}

func (b *problemBuilder) modelSource() string {
	if b.model.Source == "" {
		return ", as the model says"
	}
	return ", as the model says (" + words.Plain(b.model.Source) + ")"
}

// applyMeasurements stores losses relative to the best pair of the file, because weights are per percent, and a file of
// a faster NIC must not diminish all other terms.
func (b *problemBuilder) applyMeasurements() {
	if b.model == nil || len(b.model.Pairs) == 0 {
		return
	}
	best := 0.0
	for i, m := range b.model.Pairs {
		if !(m.Gbps > 0) || math.IsInf(m.Gbps, 0) { // also true for NaN
			b.fail("", "model", "pair %d (%s, %s): %v Gb/s: want a number above 0", i+1, words.Plain(m.GPU),
				words.Plain(m.NIC), m.Gbps)
			continue
		}
		best = max(best, m.Gbps)
	}
	at := map[[2]int]int{} // index in Problem.Paths
	between := 0
	for i := range b.p.Paths {
		q := &b.p.Paths[i]
		at[[2]int{q.A, q.B}] = i
		if b.p.Devices[q.B].Kind == plan.KindNIC {
			between++
		}
	}
	measured := map[int]bool{}
	for i, m := range b.model.Pairs {
		gpu, nic := b.modelDevice(i, plan.KindGPU, m.GPU), b.modelDevice(i, plan.KindNIC, m.NIC)
		if gpu < 0 || nic < 0 || best == 0 {
			continue
		}
		path := at[[2]int{gpu, nic}]
		if measured[path] {
			b.fail("", "model", "pair %d (%s, %s) is there twice: keep one figure", i+1, words.Plain(m.GPU),
				words.Plain(m.NIC))
			continue
		}
		measured[path] = true
		b.p.Paths[path].LossPercent = new(lossPercent(best, m.Gbps))
	}
	if rest := between - len(measured); rest > 0 {
		b.note("%s of a GPU and a NIC not measured by the model: their path classes count", words.Count(rest, "pair"))
	}
}

// lossPercent rounds up so that a plan is never better than measured. It subtracts a billionth for the rounding of the
// division.
func lossPercent(best, gbps float64) int {
	return min(max(int(math.Ceil((best-gbps)/best*100-1e-9)), 0), 100)
}

func (b *problemBuilder) modelDevice(i int, kind, name string) int {
	if found := b.lookUp(name, kind); len(found) == 1 {
		return found[0]
	}
	b.fail("", "model", "pair %d: no %s %s on %s: %s", i+1, kindWord(kind), words.Plain(name), b.name,
		b.devicesThere(kind))
	return -1
}

// A Model contains measurements that replace the published figures. Its file is JSON or YAML (plan --model).
type Model struct {
	// Weights overrides single weights: {"gpu_nic_path": 700}.
	Weights map[string]int64 `json:"weights,omitempty" yaml:"weights"`
	// Pairs are measured bandwidths.
	Pairs []MeasuredPair `json:"pairs,omitempty" yaml:"pairs"`
	// Source is the origin of the figures. Plans repeat it as evidence.
	Source string `json:"source,omitempty" yaml:"source"`
}

// A MeasuredPair is the bandwidth between a GPU and a NIC.
type MeasuredPair struct {
	GPU  string  `json:"gpu" yaml:"gpu"`   // address or name
	NIC  string  `json:"nic" yaml:"nic"`   // address or name
	Gbps float64 `json:"gbps" yaml:"gbps"` // positive; the best pair has no loss
}

// MaxModelSize is in bytes. A thousand pairs take 100 KiB.
const MaxModelSize = 1 << 20

// ParseModel reads YAML, which includes JSON. Unknown keys, anchors, tags and several documents are errors. The error
// is a [strictyaml.Errors]. [Problem] checks names and figures.
func ParseModel(name string, data []byte) (*Model, error) {
	const want = "weights, pairs or both"
	r := strictyaml.New(&strictyaml.Format{
		// A thousand pairs are 15,000 tokens, and three levels deep.
		Name: "model", File: "model", MaxSize: MaxModelSize, MaxTokens: 60_000, MaxDepth: 8, EmptyWant: want,
	}, name)
	m := &Model{}
	r.Parse(data, m)
	for i := range m.Pairs {
		for _, key := range []string{"gpu", "nic", "gbps"} {
			path := fmt.Sprintf("pairs[%d].%s", i, key)
			if len(r.Errs) == 0 && r.Values[path] == (strictyaml.Place{}) {
				r.Fail(r.Place(path), strictyaml.Error{Key: path, What: "missing key",
					Fix: "a pair has gpu, nic and gbps, as in {gpu: GPU0, nic: NIC0, gbps: 392}"})
			}
		}
	}
	if len(r.Errs) == 0 && len(m.Weights) == 0 && len(m.Pairs) == 0 {
		r.Fail(r.Place(""), strictyaml.Error{What: "neither weights nor pairs", Want: want})
	}
	if len(r.Errs) > 0 {
		return nil, r.Errs
	}
	return m, nil
}

// Real trees have fewer than ten bridges above a device, hostile dumps hundreds, which every pair would walk.
const maxBridges = 32

func (b *problemBuilder) addPaths() {
	deep := make([]bool, len(b.p.Devices))
	for i := range b.facts {
		if a := b.facts[i].addr; a != nil {
			deep[i] = len(b.tree.Ancestors(*a)) > maxBridges
		}
	}
	unknown := 0
	for i := range b.p.Devices {
		if b.p.Devices[i].Kind != plan.KindGPU {
			break
		}
		for j := i + 1; j < len(b.p.Devices); j++ {
			path, class := plan.PairPath{A: i, B: j}, topology.PathUnknown
			if !deep[i] && !deep[j] {
				class = b.pathClass(i, j)
			}
			if !path.SetClass(class, &b.p.Devices[i], &b.p.Devices[j]) {
				unknown++
			}
			b.p.Paths = append(b.p.Paths, path)
		}
	}
	if unknown > 0 {
		b.note("the host does not tell %s between its GPUs and NICs: taken as NODE within a NUMA node, else as SYS",
			words.Count(unknown, "path"))
	}
}

// pathClass ignores NVLinks to NICs, because they join only GPUs.
func (b *problemBuilder) pathClass(i, j int) topology.PathClass {
	path := b.tree.Path(b.p.Devices[i].ID, b.p.Devices[j].ID)
	if path.Class == topology.PathNVLink && b.p.Devices[j].Kind != plan.KindGPU {
		return path.PCIe
	}
	return path.Class
}
