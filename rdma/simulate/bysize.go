package simulate

import "math"

// A SizeResult is the slowdown of the flows with sizes in a range.
type SizeResult struct {
	From     int64      `json:"from_bytes"` // more than this
	To       int64      `json:"to_bytes"`   // at most this
	Flows    int        `json:"flows"`
	Slowdown *Quantiles `json:"slowdown"`
}

// bySize returns the slowdown by size, in ranges of powers of ten.
func (n *network) bySize() (list []SizeResult) {
	const ranges = 14
	var slow [ranges][]float64
	for _, f := range n.flows {
		if f.end != none {
			k := max(0, int(math.Ceil(math.Log10(float64(f.bytes)))))
			slow[k] = append(slow[k], round4(float64(f.end-f.start)/float64(f.best)))
		}
	}
	low, high := int64(0), int64(1)
	for _, s := range slow {
		if len(s) > 0 {
			list = append(list, SizeResult{low, high, len(s), quantiles(s)})
		}
		low, high = high, high*10
	}
	return list
}

// round4 rounds to four digits after the point, so that results do not depend on how a machine computes.
func round4(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// A FairnessResult says how equally the flows of an entry of the traffic got their rates.
type FairnessResult struct {
	Traffic int    `json:"traffic"` // number of the entry, from 0
	Pattern string `json:"pattern"`
	Flows   int    `json:"flows"` // that ended
	// Index is 1 if all rates are equal, and 1/Flows if one flow has everything (Jain and others, 1984).
	Index float64 `json:"jain_index"`
}

// fairness returns the fairness of each entry of which two or more flows ended.
func (n *network) fairness(c *Config) (list []FairnessResult) {
	type sums struct{ flows, rate, square float64 }
	all := make([]sums, len(c.Traffic))
	for _, f := range n.flows {
		if f.end == none {
			continue
		}
		r := float64(f.bytes) / float64(f.end-f.start)
		s := &all[f.entry]
		s.flows, s.rate, s.square = s.flows+1, s.rate+r, s.square+r*r
	}
	for i, s := range all {
		if s.flows >= 2 {
			list = append(list, FairnessResult{i, c.Traffic[i].Pattern, int(s.flows),
				round4(s.rate * s.rate / s.flows / s.square)})
		}
	}
	return list
}
