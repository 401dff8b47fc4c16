package hostview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// An nvlinkSet is GPUs that NVLinks join, directly or through each other.
type nvlinkSet struct {
	Name    string   // NVLink, or XGMI: what AMD's GPUs are joined by, and NCCL's files call NVLink as well
	IDs     []string // of the GPUs, in the order of the Host
	GPUs    []string // their names
	Classes []nvlinkClass
	Uniform bool // every two are joined by the same number of links
}

// An nvlinkClass is the pairs that are joined by the same number of links.
type nvlinkClass struct {
	Label string // NV18
	Links int
	Rate  float64  // of all links together, one way, in GB/s; 0 where it is not known
	Pairs [][2]int // places in GPUs
}

// nvlinkRates are GB/s of one NVLink, one way, by what names of models contain: the data sheets of NVIDIA. The first
// that fits counts. Some names contain others, as H200 contains H20, but then both have the same rate.
var nvlinkRates = []struct {
	model string
	rate  float64
}{{"P100", 20}, {"B100", 50}, {"B200", 50}, {"B300", 50}, {"V100", 25}, {"A100", 25}, {"A800", 25}, {"A30", 25},
	{"H100", 25}, {"H800", 25}, {"H20", 25}, {"GH200", 25}}

// nvlinkRate is the rate of one NVLink of a GPU, 0 where it is not known.
func (v *view) nvlinkRate(g *topology.GPU) float64 {
	model := modelText(g.Model, v.device(g.Address))
	for _, r := range nvlinkRates {
		if strings.Contains(model, r.model) {
			return r.rate
		}
	}
	return 0
}

// text is "NV18, 450 GB/s".
func (c nvlinkClass) text() string { return joined(", ", c.Label, gbpsText(c.Rate)) }

// isAMD reports whether a GPU is known to be AMD's.
func (v *view) isAMD(g *topology.GPU) bool {
	d := v.device(g.Address)
	return d != nil && d.Vendor != nil && *d.Vendor == topology.VendorAMD || strings.HasPrefix(g.ComputeArch, "gfx")
}

// nvlinkSets finds the sets among the GPUs.
func (v *view) nvlinkSets() []nvlinkSet {
	n := len(v.gpus)
	label := func(i, j int) string {
		if c := v.classes[[2]string{v.gpus[i].ID(), v.gpus[j].ID()}]; strings.HasPrefix(c, "NV") {
			return c
		}
		return ""
	}
	seen := make([]bool, n)
	var out []nvlinkSet
	for first := range n {
		// All that can be reached over NVLinks: members grows while it is walked.
		members := []int{first}
		for k := 0; k < len(members) && !seen[first]; k++ {
			for j := range n {
				if !slices.Contains(members, j) && label(members[k], j) != "" {
					members = append(members, j)
				}
			}
		}
		if len(members) < 2 {
			continue
		}
		slices.Sort(members)
		set := nvlinkSet{Name: "NVLink"}
		if v.isAMD(v.gpus[first]) {
			set.Name = "XGMI"
		}
		pairs := map[string][][2]int{} // by label
		for a, m := range members {
			seen[m] = true
			set.IDs = append(set.IDs, v.gpus[m].ID())
			set.GPUs = append(set.GPUs, v.names[v.gpus[m].ID()])
			for b := a + 1; b < len(members); b++ {
				if l := label(m, members[b]); l != "" {
					pairs[l] = append(pairs[l], [2]int{a, b})
				}
			}
		}
		for l, p := range pairs {
			c := nvlinkClass{Label: l, Pairs: p}
			fmt.Sscanf(l, "NV%d", &c.Links) // 0 where the source did not say how many
			c.Rate = float64(c.Links) * v.nvlinkRate(v.gpus[first])
			set.Classes = append(set.Classes, c)
		}
		slices.SortFunc(set.Classes, func(a, b nvlinkClass) int {
			return cmp.Or(b.Links-a.Links, strings.Compare(a.Label, b.Label))
		})
		set.Uniform = len(set.Classes) == 1 && len(set.Classes[0].Pairs) == len(members)*(len(members)-1)/2
		out = append(out, set)
	}
	return out
}
