package search

import (
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/plantest"
)

func epycShape() shape {
	return shape{Packages: 1, Nodes: 4, L3s: 2, Cores: 4, Threads: 2, GPUs: 2, NICs: 2, VFs: 8, Pages: 31, Near: 16,
		Reserve: 4, Workload: lab.WorkloadRDMALatency}
}

func epycPair() *plan.Problem {
	return withAsks(epycShape().Problem(), times(2, ask{Cores: 14, Pages: 32, GPUs: 1, NICs: 1})...)
}

func h20Shape() shape {
	return shape{Packages: 2, Nodes: 1, Cores: 48, Threads: 2, GPUs: 8, NICs: 4, VFs: 8, Pages: 960, Far: 21,
		PairsUnderSwitch: true, Reserve: 4,
		Workload: lab.WorkloadGPUCollective}
}

func r740Shape() shape {
	return shape{Packages: 2, Nodes: 1, Cores: 24, Threads: 2, NICs: 1, VFs: 16, OneNode: true, Pages: 180, Far: 21,
		Reserve: 4, Workload: lab.WorkloadRDMALatency}
}

// largeShape returns the machine of the published figures.
func largeShape() shape {
	return shape{Packages: 4, Nodes: 4, L3s: 4, Cores: 8, Threads: 2, GPUs: 16, NICs: 16, VFs: 16, Pages: 256,
		Reserve: 16}
}

func largeEqual() *plan.Problem {
	return withAsks(largeShape().Problem(), times(64, ask{Cores: 7, Pages: 48, VFs: 1})...)
}

func largeMixed() *plan.Problem {
	return withAsks(largeShape().Problem(), append(times(16, ask{Cores: 12, Pages: 96, GPUs: 1, NICs: 1}),
		times(48, ask{Cores: 5, Pages: 32})...)...)
}

// largeUnequal fills nine cores in ten; the first vfs lab nodes have a virtual function.
func largeUnequal(seed uint64, vfs int) *plan.Problem {
	r := plantest.NewRand(seed)
	asks := make([]ask, 64)
	left := 460
	for i := range asks {
		// So the sum comes out.
		mean := left / (64 - i)
		asks[i].Cores = r.In(max(1, mean-5), mean+5)
		if i == 63 {
			asks[i].Cores = max(1, left)
		}
		asks[i].Pages = int64(asks[i].Cores) * 6
		left -= asks[i].Cores
		if i < vfs {
			asks[i].VFs = 1
		}
	}
	return withAsks(largeShape().Problem(), asks...)
}

func machines() map[string]shape {
	return map[string]shape{
		"epyc-7551p": epycShape(),
		"h20":        h20Shape(),
		"r740":       r740Shape(),
		"milan-2p": {Packages: 2, Nodes: 1, L3s: 8, Cores: 8, Threads: 2, GPUs: 4, NICs: 4, VFs: 8, Pages: 500,
			Reserve: 4},
		"milan-nps4": {Packages: 2, Nodes: 4, L3s: 2, Cores: 8, Threads: 2, GPUs: 8, NICs: 4, VFs: 16, Pages: 120,
			Reserve: 4},
		"genoa-1p": {Packages: 1, Nodes: 1, L3s: 12, Cores: 8, Threads: 2, GPUs: 4, NICs: 2, VFs: 16, Pages: 740,
			Reserve: 2},
		"rome-2p": {Packages: 2, Nodes: 1, L3s: 16, Cores: 4, Threads: 2, GPUs: 2, NICs: 2, VFs: 16, Pages: 250,
			Reserve: 2},
		"snc2-2p": {Packages: 2, Nodes: 2, Cores: 16, Threads: 2, GPUs: 4, NICs: 4, VFs: 8, Pages: 120, Reserve: 4,
			Far: 21, Near: 11},
		"icelake-4p": {Packages: 4, Nodes: 1, Cores: 28, Threads: 2, GPUs: 4, NICs: 4, VFs: 16, Pages: 380, Reserve: 4,
			Far: 21},
		"skylake-8p": {Packages: 8, Nodes: 1, Cores: 24, Threads: 2, GPUs: 8, NICs: 8, VFs: 8, Pages: 180, Reserve: 8,
			Far: 21, Busy: true},
		"hybrid": {Packages: 1, Nodes: 1, Cores: 8, Threads: 2, GPUs: 1, NICs: 1, VFs: 4, Pages: 60,
			EfficiencyCores: 16, Reserve: 2},
		"desktop": {Packages: 1, Nodes: 1, L3s: 2, Cores: 8, Threads: 2, GPUs: 2, NICs: 1, VFs: 4, Pages: 60,
			Reserve: 1},
		"cxl": {Packages: 2, Nodes: 1, L3s: 4, Cores: 8, Threads: 2, GPUs: 2, NICs: 2, VFs: 8, Pages: 60,
			MemoryNodes: 2, Reserve: 2},
		"one-bundle": {Packages: 1, Nodes: 2, L3s: 2, Cores: 6, Threads: 2, GPUs: 2, NICs: 2, VFs: 0, Pages: 60,
			OneBundle: true, Reserve: 2},
		"huge-one": {Packages: 2, Nodes: 2, L3s: 2, Cores: 4, Threads: 2, GPUs: 2, NICs: 2, VFs: 8, Pages: 200,
			NoMemoryNodes: 3, Reserve: 2},
		"tenants": {Packages: 2, Nodes: 2, L3s: 2, Cores: 8, Threads: 2, GPUs: 4, NICs: 2, VFs: 8, Pages: 100,
			Tenants: 5, Reserve: 4},
		"one-side": {Packages: 2, Nodes: 1, L3s: 4, Cores: 8, Threads: 2, GPUs: 4, NICs: 2, VFs: 16, Pages: 250,
			OneNode: true, Reserve: 2},
		"arm-1t": {Packages: 2, Nodes: 2, L3s: 0, Cores: 32, Threads: 1, GPUs: 4, NICs: 4, VFs: 8, Pages: 120,
			Reserve: 4},
	}
}

func machineNames() []string {
	return []string{"epyc-7551p", "h20", "r740", "milan-2p", "milan-nps4", "genoa-1p", "rome-2p", "snc2-2p",
		"icelake-4p", "skylake-8p", "hybrid", "desktop",
		"cxl", "one-bundle", "huge-one", "tenants", "one-side", "arm-1t"}
}

// mix fills 30 to 95 percent of the cores. Most mixes have a placement.
func mix(seed uint64) (string, *plan.Problem) {
	r := plantest.NewRand(seed)
	name := machineNames()[r.Intn(len(machineNames()))]
	s := machines()[name]
	if r.Chance(70) {
		s.Workload = plantest.Pick(r, lab.WorkloadMixed, lab.WorkloadRDMALatency, lab.WorkloadRDMABandwidth,
			lab.WorkloadGPUCollective, lab.WorkloadCPUBandwidth,
			lab.WorkloadGPUCompute)
	}
	p := s.Problem()
	free := 0
	for i := range p.Cores {
		if p.Cores[i].Tenant == "" && !p.Cores[i].Efficiency {
			free++
		}
	}
	// So requests usually fit.
	count := r.In(2, 16)
	count = min(count, free-s.Reserve)
	fill := max(count, (free-s.Reserve)*r.In(30, 95)/100)
	equal := r.Chance(40)
	gpus, nics, vfs := s.GPUs, s.NICs, s.NICs*s.VFs
	var pages int64
	for i := range p.NUMANodes {
		pages += *p.NUMANodes[i].Pages
	}
	perCore := max(1, pages*int64(r.In(30, 90))/100/int64(fill))
	var asks []ask
	one := ask{Cores: fill / count, GPUs: min(4, r.In(0, gpus/count+1), gpus/count), NICs: min(4, r.In(0, nics/count)),
		VFs: r.In(0, 1)}
	for i := range count {
		a := one
		if !equal {
			mean := fill / (count - i)
			a = ask{Cores: r.In(max(1, mean/3), max(1, min(fill-(count-i-1), mean*5/3))),
				GPUs: min(4, r.Intn(gpus/2+1)), NICs: min(4, r.Intn(nics/2+1)), VFs: r.Intn(3)}
			if r.Chance(40) {
				a.GPUs, a.NICs = 0, 0
			}
			a.GPUs, a.NICs = min(a.GPUs, gpus), min(a.NICs, nics)
		}
		if nics-a.NICs <= s.NICs/2 || r.Chance(50) {
			a.NICs = 0
		}
		if s.VFs == 0 || vfs-a.VFs < s.NICs*s.VFs/2 {
			a.VFs = 0
		}
		if s.OneBundle && i > 0 {
			a.GPUs, a.NICs = 0, 0
		}
		fill -= a.Cores
		gpus, nics, vfs = gpus-a.GPUs, nics-a.NICs, vfs-a.VFs
		a.Pages = max(1, int64(a.Cores)*perCore)
		asks = append(asks, a)
	}
	return name, withAsks(p, asks...)
}
