package hwlocxml

import (
	"slices"

	"github.com/rackless/rackless/topology"
)

// A cpuKind is CPUs that are alike, and unlike others (version 2.4 and later).
type cpuKind struct {
	cpus       topology.CPUSet
	coreType   string  // of Intel: IntelCore, IntelAtom
	maxMHz     *uint64 // the highest frequency, with turbo
	capacity   *uint64 // of Linux on ARM: 1024 is the fastest CPU
	efficiency *uint64 // as somebody forced it: higher is faster, and takes more power
}

// maxMHz bounds a frequency that is believed.
const maxMHz = 1e6

// readKinds reads the kinds of CPUs and tells performance from efficiency cores.
func (p *parser) readKinds() {
	var kinds []cpuKind
	for e := range p.top.All("cpukind") {
		k := cpuKind{coreType: infoOf(e, "CoreType"), maxMHz: decimal(infoOf(e, "FrequencyMaxMHz")),
			capacity: decimal(infoOf(e, "LinuxCapacity"))}
		k.cpus, _ = p.set(e, "cpuset", p.pus)
		if v, ok := p.number(e, "forced_efficiency"); ok {
			k.efficiency = &v
		}
		kinds = append(kinds, k)
	}
	fast := fastest(kinds)
	for i := range p.h.Cores {
		c := &p.h.Cores[i]
		for j, k := range kinds {
			if !k.cpus.Contains(c.CPUs.Min()) {
				continue
			}
			if k.maxMHz != nil && *k.maxMHz < maxMHz {
				c.MaxKHz = new(int64(*k.maxMHz * 1000))
			}
			if fast != nil {
				c.Kind = topology.KindEfficiency
				if fast[j] {
					c.Kind = topology.KindPerformance
				}
			}
		}
	}
}

// fastest tells for each kind whether it is one of performance cores; it returns nil where the file
// does not make two sorts of them. What Intel's CPUs say of themselves comes first, then the
// capacity that Linux gives CPUs on ARM, then an efficiency that was forced. A higher frequency
// alone is no sort: on many machines some cores turbo higher than others that are the same.
//
// Source: hwloc's documentation, "Kinds of CPU cores" and "Object attributes".
func fastest(kinds []cpuKind) []bool {
	intel := func(k cpuKind) *uint64 {
		rank, ok := map[string]uint64{"IntelAtom": 0, "IntelCore": 1}[k.coreType]
		if !ok {
			return nil
		}
		return &rank
	}
	for _, value := range []func(cpuKind) *uint64{
		intel,
		func(k cpuKind) *uint64 { return k.capacity },
		func(k cpuKind) *uint64 { return k.efficiency },
	} {
		if fast := highest(kinds, value); fast != nil {
			return fast
		}
	}
	return nil
}

// highest marks the kinds with the highest value. It returns nil where a kind has no value or all have the same.
func highest(kinds []cpuKind, value func(cpuKind) *uint64) []bool {
	values := make([]uint64, len(kinds))
	for i, k := range kinds {
		v := value(k)
		if v == nil {
			return nil
		}
		values[i] = *v
	}
	if len(slices.Compact(slices.Clone(values))) < 2 {
		return nil
	}
	out := make([]bool, len(kinds))
	for i, v := range values {
		out[i] = v == slices.Max(values)
	}
	return out
}
