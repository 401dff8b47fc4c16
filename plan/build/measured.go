package build

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
)

// weights lists the weights by their JSON names, in the order of the fields.
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

// overrideWeights puts the model's weights in place of the published ones, and says so.
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

// modelSource returns where the model's figures are from, to end a note with.
func (b *problemBuilder) modelSource() string {
	if b.model.Source == "" {
		return ", as the model says"
	}
	return ", as the model says (" + words.Plain(b.model.Source) + ")"
}

// applyMeasurements turns measured bandwidths into what each pair loses against the best of the same
// file. The loss and not the bandwidth is kept: weights are per percent, and a file of a faster NIC
// must not make every other term look small.
func (b *problemBuilder) applyMeasurements() {
	if b.model == nil || len(b.model.Pairs) == 0 {
		return
	}
	best := 0.0
	for i, m := range b.model.Pairs {
		if !(m.Gbps > 0) || math.IsInf(m.Gbps, 0) { // NaN is not more than 0
			b.fail("", "model", "pair %d (%s, %s): %v Gb/s: want a number above 0", i+1, words.Plain(m.GPU),
				words.Plain(m.NIC), m.Gbps)
			continue
		}
		best = max(best, m.Gbps)
	}
	at := map[[2]int]int{} // index of Problem.Paths
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

// lossPercent returns how far gbps is below best, in percent, rounded up: a plan is not made better
// than was measured. A billionth is taken for the rounding of the division.
func lossPercent(best, gbps float64) int {
	return min(max(int(math.Ceil((best-gbps)/best*100-1e-9)), 0), 100)
}

// modelDevice returns the device that pair i of the model names, or -1.
func (b *problemBuilder) modelDevice(i int, kind, name string) int {
	if found := b.lookUp(name, kind); len(found) == 1 {
		return found[0]
	}
	b.fail("", "model", "pair %d: no %s %s on %s: %s", i+1, kindWord(kind), words.Plain(name), b.name,
		b.devicesThere(kind))
	return -1
}
