package recommend

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/stats"
)

// A Ranking lists the GPUs of a host for one NIC, the best first.
type Ranking struct {
	NIC    string      `json:"nic"`
	Source string      `json:"source"`
	Carry  Carry       `json:"carry"`
	GPUs   []RankedGPU `json:"gpus"`
}

// A RankedGPU is one place in a ranking.
type RankedGPU struct {
	GPU  string  `json:"gpu"`
	Path string  `json:"path"`           // PIX, PXB, PHB, NODE, SYS
	Gbps float64 `json:"gbps,omitempty"` // 0 if not measured
	// Tied is set if nothing distinguishes it from the GPU above.
	Tied bool `json:"tied"`
}

type measuredPair struct {
	gpu, nic string // names on the host
	gbps     float64
	tied     bool // with the NIC's previous pair
}

type pairSource struct {
	source string
	carry  Carry
	pairs  []measuredPair // best first for each NIC
}

// rank ranks by figures of this host, of a machine with the same paths, or by path class. It returns the pairs used.
func (r *Recommendation) rank(h *topology.Host, studies []Study, documents []Document) []pairSource {
	var sources []pairSource
	for i := range studies {
		s := &studies[i]
		carry, _ := Where(s, h)
		if carry != MeasuredHere && carry != MeasuredOnKind {
			continue
		}
		if p := s.pairs(h); len(p) > 0 {
			sources = append(sources, pairSource{"study " + s.Name, carry, p})
		}
	}
	for i := range documents {
		if p := documents[i].pairs(h); len(p) > 0 {
			sources = append(sources, pairSource{documents[i].Title, PublishedForKind, p})
		}
	}
	slices.SortStableFunc(sources, func(a, b pairSource) int { return a.carry.rank() - b.carry.rank() })
	tree := topology.NewTree(h)
	gpus := computing(h)
	rdma := slices.ContainsFunc(h.NICs, func(n topology.NIC) bool { return len(n.RDMA) > 0 })
	var used []pairSource
	for i := range h.NICs {
		nic := h.NICs[i].ID()
		// Virtual functions share their NIC's path, and a NIC without RDMA serves no GPU.
		if len(gpus) == 0 || h.NICs[i].PF != nil || rdma && len(h.NICs[i].RDMA) == 0 {
			continue
		}
		k := Ranking{NIC: nic, Source: "class of the path", Carry: NoEvidence}
		for _, s := range sources {
			// Figures of different sources are not comparable.
			own := slices.DeleteFunc(slices.Clone(s.pairs), func(p measuredPair) bool { return p.nic != nic })
			if len(own) == 0 {
				continue
			}
			k.Source, k.Carry = s.source, s.carry
			for _, p := range own {
				k.GPUs = append(k.GPUs, RankedGPU{p.gpu, between(tree, p.gpu, nic).String(), p.gbps, p.tied})
			}
			used = append(used, pairSource{s.source, s.carry, own})
			break
		}
		r.Rankings = append(r.Rankings, byClass(k, tree, gpus))
	}
	return used
}

func byClass(k Ranking, tree *topology.Tree, gpus []string) Ranking {
	var rest []RankedGPU
	class := map[string]topology.PathClass{}
	for _, gpu := range gpus {
		if !slices.ContainsFunc(k.GPUs, func(g RankedGPU) bool { return g.GPU == gpu }) {
			class[gpu] = between(tree, gpu, k.NIC)
			rest = append(rest, RankedGPU{GPU: gpu, Path: class[gpu].String()})
		}
	}
	slices.SortStableFunc(rest, func(a, b RankedGPU) int {
		return cmp.Compare(classRank(class[a.GPU]), classRank(class[b.GPU]))
	})
	for i := range rest {
		rest[i].Tied = i > 0 && rest[i].Path == rest[i-1].Path
	}
	k.GPUs = append(k.GPUs, rest...)
	return k
}

// computing omits display adapters.
func computing(h *topology.Host) []string {
	var all []string
	for i := range h.GPUs {
		if h.GPUs[i].Kind != topology.GPUDisplay {
			all = append(all, h.GPUs[i].ID())
		}
	}
	return all
}

// classRank puts unknown classes last.
func classRank(c topology.PathClass) int {
	order := []topology.PathClass{topology.PathSYS, topology.PathNODE, topology.PathPHB, topology.PathPXB,
		topology.PathPIX, topology.PathNVLink}
	return -slices.Index(order, c)
}

// between ignores NVLinks, which connect only GPUs.
func between(t *topology.Tree, gpu, nic string) topology.PathClass {
	p := t.Path(gpu, nic)
	if p.Class == topology.PathNVLink {
		return p.PCIe
	}
	return p.Class
}

// gpuOf and nicOf take any name of a device, and return "" unless exactly one matches.
func gpuOf(h *topology.Host, name string) string {
	var found []string
	for i := range h.GPUs {
		if g := &h.GPUs[i]; g.ID() == name || g.Name == name || g.UUID != "" && g.UUID == name {
			found = append(found, g.ID())
		}
	}
	return only(found)
}

func nicOf(h *topology.Host, name string) string {
	var found []string
	for i := range h.NICs {
		n := &h.NICs[i]
		if slices.Contains(slices.Concat([]string{n.ID(), n.Name}, n.RDMA, n.Netdevs), name) {
			found = append(found, n.ID())
		}
	}
	return only(found)
}

func only(found []string) string {
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

// pairs requires the same GPUs, NICs and paths.
func (d *Document) pairs(h *topology.Host) []measuredPair {
	if slices.ContainsFunc(h.GPUs, func(g topology.GPU) bool { return g.Model != "" }) && !d.ofKind(h) {
		return nil
	}
	tree := topology.NewTree(h)
	var all []measuredPair
	for _, p := range d.Pairs {
		gpu, nic := gpuOf(h, p.GPU), nicOf(h, p.NIC)
		// One different pair shows another machine, even with the same names.
		if gpu == "" || nic == "" || between(tree, gpu, nic) != p.Class {
			return nil
		}
		all = append(all, measuredPair{gpu: gpu, nic: nic, gbps: p.Gbps})
	}
	slices.SortStableFunc(all, func(a, b measuredPair) int {
		return cmp.Or(cmp.Compare(a.nic, b.nic), cmp.Compare(b.gbps, a.gbps))
	})
	return all
}

// pairs takes Gb/s from a study with a factor lab.nodes.NODE.gpus or lab.defaults.gpus, whose levels are GPUs; other
// factors are at their first levels.
func (s *Study) pairs(h *topology.Host) []measuredPair {
	spec := s.Data.Spec
	factor := -1
	for i, f := range spec.Factors {
		if strings.HasSuffix(f.Name, "."+string(gpuDevice)) {
			factor = i
		}
	}
	nic := s.nic(h)
	if factor < 0 || nic == "" {
		return nil
	}
	values := map[string][]float64{}
	test := ""
	for _, o := range s.Data.Runs {
		if o.Status != study.StatusDone || !s.firstElsewhere(o.Cell, factor) {
			continue
		}
		for _, v := range o.Values {
			if v.Unit == "Gb/s" && v.Metric == "bw_average" && (test == "" || v.Test == test) && v.Value > 0 &&
				!math.IsInf(v.Value, 0) {
				test = v.Test
				level := o.Cell[spec.Factors[factor].Name]
				values[level] = append(values[level], v.Value)
			}
		}
	}
	var all []measuredPair
	level := map[string]string{}
	for _, l := range spec.Factors[factor].Levels {
		if gpu := gpuOf(h, l); gpu != "" && len(values[l]) > 0 && level[gpu] == "" {
			level[gpu] = l
			all = append(all, measuredPair{gpu: gpu, nic: nic, gbps: math.Round(stats.Median(values[l])*100) / 100})
		}
	}
	slices.SortStableFunc(all, func(a, b measuredPair) int { return cmp.Compare(b.gbps, a.gbps) })
	found, _, err := comparisons(s.Data)
	if err != nil {
		return nil // returned by evidence already
	}
	first := map[string]string{}
	for _, f := range spec.Factors {
		first[f.Name] = f.Levels[0]
	}
	where := spec.WhereText(first, spec.Factors[factor].Name)
	for i := 1; i < len(all); i++ {
		a, b := level[all[i-1].gpu], level[all[i].gpu]
		all[i].tied = !slices.ContainsFunc(found, func(c study.Comparison) bool {
			return c.Test == test && c.Metric == "bw_average" && c.Where == where && (c.A == a && c.B == b ||
				c.A == b && c.B == a) && apart(&c)
		})
	}
	return all
}

// apart includes differences that do not matter.
func apart(c *study.Comparison) bool {
	return c.Judged != nil && len(c.Confounded) == 0 && c.Judged.P <= 1-c.Effect.Confidence &&
		c.Effect.Interval.Bounded() && !c.Effect.Interval.Contains(c.Effect.NoEffect())
}

func (s *Study) firstElsewhere(cell map[string]string, factor int) bool {
	for i, f := range s.Data.Spec.Factors {
		if i != factor && cell[f.Name] != f.Levels[0] {
			return false
		}
	}
	return true
}

// nic returns the one NIC that the lab's nodes request by name, or "".
func (s *Study) nic(h *topology.Host) string {
	if s.Lab == nil {
		return ""
	}
	var found []string
	for i := range s.Lab.Nodes {
		for _, want := range slices.Concat(s.Lab.Nodes[i].NICRequests, s.Lab.Nodes[i].VFRequests) {
			if id := nicOf(h, want.Address); want.Address != "" && !slices.Contains(found, id) {
				found = append(found, id)
			}
		}
	}
	return only(found)
}

// model takes sources of the best rank only, because losses are relative to the best pair.
func model(sources []pairSource) (pairs []build.MeasuredPair, from string) {
	for _, s := range sources {
		if s.carry.rank() != sources[0].carry.rank() {
			continue
		}
		for _, p := range s.pairs {
			if p.gbps > 0 {
				pairs = append(pairs, build.MeasuredPair{GPU: p.gpu, NIC: p.nic, Gbps: p.gbps})
			}
		}
	}
	if len(pairs) > 0 {
		from = fmt.Sprintf("GPU-NIC bandwidths: %s (%s)", sources[0].source, sources[0].carry)
	}
	return pairs, from
}
