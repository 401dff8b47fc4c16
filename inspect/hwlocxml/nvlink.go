package hwlocxml

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// Rates that hwloc takes for one NVLink, one way, in 10^6 bytes per second: 20000 for NVLink 1 and
// 25000 for NVLink 2 to 4 (the comment in its NVML backend). A matrix has the sums. They tell the
// version and so the number of links: NVLink 1 was on the P100 alone, which has 4 links, and no
// multiple of 20000 up to 80000 is one of 25000.
const (
	rateOfV1   = 20000
	linksOfV1  = 4
	rateOfV2   = 25000
	maxNVLinks = 36
)

// nvLinks returns the number of links that a rate stands for, 0 where it is not clear.
func nvLinks(rate uint64) int {
	switch {
	case rate == 0:
		return 0
	case rate%rateOfV1 == 0 && rate <= rateOfV1*linksOfV1:
		return int(rate / rateOfV1)
	case rate%rateOfV2 == 0 && rate <= rateOfV2*maxNVLinks:
		return int(rate / rateOfV2)
	}
	return 0
}

// readNVLinks reads the matrix NVLinkBandwidth: which GPUs are linked with each other directly, and
// with how many links each GPU is linked with anything, processors and NVSwitches included. The
// matrix of hops over XGMI states no links, and none are made of it.
func (p *parser) readNVLinks() {
	for _, e := range p.top.Kids {
		if e.Attr("name") != "NVLinkBandwidth" || e.Name != "distances2" && e.Name != "distances2hetero" {
			continue
		}
		indexes, rates, ok := p.matrix(e)
		if !ok {
			return
		}
		at := make([]*topology.PCIAddr, len(indexes))
		for i, index := range indexes {
			// In distances2hetero each index has a type before it: "OSDev:332".
			if _, number, ok := strings.Cut(index, ":"); ok {
				index = number
			}
			at[i] = p.gpuAt(index)
		}
		for i, a := range at {
			if a != nil {
				p.addNVLinks(*a, at[i+1:], rates[i*len(at):(i+1)*len(at)], i)
			}
		}
	}
	slices.SortFunc(p.h.Reported, func(a, b topology.Path) int {
		return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
	})
	p.h.Reported = slices.Compact(p.h.Reported)
}

// gpuAt returns the PCI address of the device that a matrix names, nil where it is not below a GPU's function.
func (p *parser) gpuAt(index string) *topology.PCIAddr {
	e := p.object(index)
	if e == nil || kindOf(e) != "OSDev" {
		return nil
	}
	return p.functions[e]
}

// addNVLinks takes row i of the matrix, that of the GPU at a. The GPUs after it are peers.
func (p *parser) addNVLinks(a topology.PCIAddr, peers []*topology.PCIAddr, row []uint64, i int) {
	total, clear := 0, true
	for j, rate := range row {
		if j == i || rate == 0 {
			continue // the diagonal is a made-up high value
		}
		links := nvLinks(rate)
		total, clear = total+links, clear && links > 0
		if j > i && peers[j-i-1] != nil {
			b := *peers[j-i-1]
			first, second := a, b
			if b.Compare(a) < 0 {
				first, second = b, a
			}
			p.h.Reported = append(p.h.Reported, topology.Path{A: first.String(), B: second.String(),
				Class: topology.PathNVLink, Links: links})
		}
	}
	if total == 0 || !clear {
		return
	}
	for k := range p.h.GPUs {
		if g := &p.h.GPUs[k]; g.Address != nil && *g.Address == a {
			g.NVLinks = &total
		}
	}
}
