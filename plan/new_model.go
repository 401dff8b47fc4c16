package plan

import (
	"maps"
	"math"
	"slices"
)

// weightNames lists the weights by their JSON names, in the order of the fields.
func (w *Weights) weightNames() []string {
	return []string{"gpu_nic_path", "gpu_nic_measured", "gpu_gpu_path", "device_nearest", "device_distance",
		"memory_distance", "memory_balance",
		"efficiency_cores", "numa_span", "numa_span_hidden", "l3_shared", "emulator_distance", "nic_rate", "nic_rdma",
		"nic_shared", "unequal"}
}

// weight returns the weight of a JSON name, nil where there is none.
func (w *Weights) weight(name string) *int64 {
	switch name {
	case "gpu_nic_path":
		return &w.GPUNICPath
	case "gpu_nic_measured":
		return &w.GPUNICMeasured
	case "gpu_gpu_path":
		return &w.GPUGPUPath
	case "device_nearest":
		return &w.DeviceNearest
	case "device_distance":
		return &w.DeviceDistance
	case "memory_distance":
		return &w.MemoryDistance
	case "memory_balance":
		return &w.MemoryBalance
	case "efficiency_cores":
		return &w.EfficiencyCores
	case "numa_span":
		return &w.NUMASpan
	case "numa_span_hidden":
		return &w.NUMASpanHidden
	case "l3_shared":
		return &w.L3Shared
	case "emulator_distance":
		return &w.EmulatorDistance
	case "nic_rate":
		return &w.NICRate
	case "nic_rdma":
		return &w.NICRDMA
	case "nic_shared":
		return &w.NICShared
	case "unequal":
		return &w.Unequal
	}
	return nil
}

// overrideWeights puts the model's weights in place of the published ones, and says so.
func (b *problemBuilder) overrideWeights() {
	for _, name := range slices.Sorted(maps.Keys(b.model.Weights)) {
		v := b.model.Weights[name]
		w := b.p.Weights.weight(name)
		switch {
		case w == nil:
			names := b.p.Weights.weightNames()
			b.fail("", "model", "no weight is called %s: they are %s and %s", plainText(name),
				joinComma(names[:len(names)-1]), names[len(names)-1])
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
	return ", as the model says (" + plainText(b.model.Source) + ")"
}

// applyMeasurements turns measured bandwidths into what each pair loses against the best of the same file.
func (b *problemBuilder) applyMeasurements() {
	if b.model == nil || len(b.model.Pairs) == 0 {
		return
	}
	best := 0.0
	for i, m := range b.model.Pairs {
		if !(m.Gbps > 0) || math.IsInf(m.Gbps, 0) { // NaN is not more than 0
			b.fail("", "model", "pair %d (%s, %s): %v Gb/s: want a number above 0", i+1, plainText(m.GPU),
				plainText(m.NIC), m.Gbps)
			continue
		}
		best = max(best, m.Gbps)
	}
	at := map[[2]int]int{} // index of Problem.Paths
	between := 0
	for i := range b.p.Paths {
		q := &b.p.Paths[i]
		at[[2]int{q.A, q.B}] = i
		if b.p.Devices[q.B].Kind == KindNIC {
			between++
		}
	}
	measured := map[int]bool{}
	for i, m := range b.model.Pairs {
		gpu, nic := b.modelDevice(i, KindGPU, m.GPU), b.modelDevice(i, KindNIC, m.NIC)
		if gpu < 0 || nic < 0 || best == 0 {
			continue
		}
		path := at[[2]int{gpu, nic}]
		if measured[path] {
			b.fail("", "model", "pair %d (%s, %s) is there twice: keep one figure", i+1, plainText(m.GPU),
				plainText(m.NIC))
			continue
		}
		measured[path] = true
		b.p.Paths[path].LossPercent = new(lossPercent(best, m.Gbps))
	}
	if rest := between - len(measured); rest > 0 {
		b.note("%s of a GPU and a NIC not measured by the model: their path classes count", plural(rest, "pair"))
	}
}

// lossPercent returns how far gbps is below best, in percent, rounded up: a plan is not made better
// than was measured. A billionth is taken for the rounding of the division.
func lossPercent(best, gbps float64) int {
	return min(max(int(math.Ceil((best-gbps)/best*100-1e-9)), 0), 100)
}

// modelDevice returns the device that pair i of the model names, or -1.
func (b *problemBuilder) modelDevice(i int, kind, name string) int {
	found := b.lookUp(name, kind)
	if len(found) == 1 {
		return found[0]
	}
	b.fail("", "model", "pair %d: no %s %s on %s: %s", i+1, kindWord(kind), plainText(name), b.name,
		b.devicesThere(kind))
	return -1
}
