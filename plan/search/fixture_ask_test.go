package search

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/plan"
)

type ask struct {
	Cores, Threads  int // 0: 2, or as many as the host's cores have
	Pages           int64
	GPUs, NICs, VFs int
	GuestNUMA       string
}

// withAsks adds lab nodes to a problem. Equal ones get the same class.
func withAsks(p *plan.Problem, asks ...ask) *plan.Problem {
	classes := map[ask]int{}
	for i := range p.Requests {
		p.Requests[i].Class = i
	}
	for _, a := range asks {
		if a.Threads == 0 {
			a.Threads = 1
			if len(p.Cores) > 0 {
				a.Threads = min(2, len(p.Cores[0].CPUs))
			}
		}
		a.GuestNUMA = cmp.Or(a.GuestNUMA, "auto")
		class, ok := classes[a]
		if !ok {
			class = len(p.Requests)
			classes[a] = class
		}
		r := plan.Request{Name: fmt.Sprintf("vm%02d", len(p.Requests)), VCPUs: a.Cores * a.Threads, Threads: a.Threads,
			Cores: a.Cores, Pages: a.Pages, GuestNUMA: a.GuestNUMA, Class: class}
		ask := func(count int, fits func(*plan.Device) bool) []plan.Want {
			if count == 0 {
				return nil
			}
			w := plan.Want{Count: count}
			for d := range p.Devices {
				if fits(&p.Devices[d]) {
					w.Any = append(w.Any, d)
				}
			}
			return []plan.Want{w}
		}
		r.GPUs = ask(a.GPUs, func(d *plan.Device) bool { return d.Kind == plan.KindGPU && d.Whole })
		r.NICs = ask(a.NICs, func(d *plan.Device) bool { return d.Kind == plan.KindNIC && d.Whole })
		r.VFs = ask(a.VFs, func(d *plan.Device) bool { return d.Kind == plan.KindNIC && d.VFs > 0 })
		p.Requests = append(p.Requests, r)
	}
	return p
}

func times(n int, a ask) []ask {
	return slices.Repeat([]ask{a}, n)
}
