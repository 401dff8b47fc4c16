package simulate

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rackless/rackless/lab"
)

// Patterns of traffic.
const (
	incast       = "incast"
	permutation  = "permutation"
	single       = "flow"
	allToAll     = "all-to-all"
	ring         = "ring-all-reduce"
	hierarchical = "hierarchical-all-reduce"
	poisson      = "poisson"
	trace        = "trace"
)

// Traffic is an entry of the list of traffic, for one or more flows.
type Traffic struct {
	Pattern string        `yaml:"pattern"`
	From    []string      `yaml:"from"`
	To      string        `yaml:"to"`
	Senders int           `yaml:"senders"`
	Bytes   lab.Bytes     `yaml:"bytes"`   // of each pair of hosts, or the data of each rank of a collective
	Message lab.Bytes     `yaml:"message"` // of each write of a flow; 0 means one write for all
	QPs     int           `yaml:"qps"`     // queue pairs that share them
	Start   time.Duration `yaml:"start"`
	Every   time.Duration `yaml:"every"` // between the starts of bursts
	Times   int           `yaml:"times"` // number of bursts
	Load    share         `yaml:"load"`  // of the link of each host, of Poisson arrivals
	Sizes   string        `yaml:"sizes"` // distribution of their bytes: a name or a file
	For     time.Duration `yaml:"for"`   // time in which they arrive
	File    string        `yaml:"file"`  // of a trace

	sizes sizes
	trace []spec
}

// A spec describes a flow before the network exists.
type spec struct {
	from, to int32
	entry    int32 // of the traffic
	ring     int32 // number of the ring of a collective that it is part of, from 1; 0 means none
	bytes    int64
	start    int64
}

// plan returns the flows of all traffic in the order of their start, given the numbers of the hosts.
func (c *Config) plan(hosts map[string]int) (list []spec) {
	draw := source(c.Seed, 0)
	rings := int32(0)
	for i := range c.Traffic {
		t := &c.Traffic[i]
		first := len(list)
		for burst := range max(1, t.Times) {
			once := c.once(t, hosts, draw, &rings)
			for k := range once {
				once[k].start += int64(t.Start) + int64(burst)*int64(t.Every)
			}
			list = append(list, once...)
		}
		for k := first; k < len(list); k++ {
			list[k].entry = int32(i)
		}
	}
	slices.SortStableFunc(list, func(a, b spec) int { return cmp.Compare(a.start, b.start) })
	return list
}

// once returns the flows of one burst of an entry, with starts relative to it.
func (c *Config) once(t *Traffic, hosts map[string]int, draw *rand.Rand, rings *int32) (list []spec) {
	switch t.Pattern {
	case trace:
		return slices.Clone(t.trace)
	case poisson:
		return c.arrivals(t, len(hosts), draw)
	case ring:
		return circle(t, t.ranks(hosts), rings)
	case hierarchical:
		// Hosts reduce among their own NICs first, outside of the network. The rest is a ring in each rail.
		part := *t
		part.Bytes = (t.Bytes + lab.Bytes(c.Topology.Rails) - 1) / lab.Bytes(c.Topology.Rails)
		for rail := range c.Topology.Rails {
			var members []int
			for h := range c.Topology.Hosts {
				members = append(members, h*c.Topology.Rails+rail)
			}
			list = append(list, circle(&part, members, rings)...)
		}
		return list
	}
	for _, pair := range pairs(t, hosts, draw) {
		for q := range int64(t.QPs) {
			size := int64(t.Bytes) / int64(t.QPs)
			if q < int64(t.Bytes)%int64(t.QPs) {
				size++
			}
			list = append(list, spec{from: int32(pair[0]), to: int32(pair[1]), bytes: size})
		}
	}
	return list
}

// ranks returns the hosts that take part in an entry: those named, or all.
func (t *Traffic) ranks(hosts map[string]int) (list []int) {
	for _, name := range t.From {
		list = append(list, hosts[name])
	}
	if len(list) > 0 {
		return list
	}
	for i := range len(hosts) {
		list = append(list, i)
	}
	return list
}

// circle returns the flows of a ring of hosts, each of which sends to the next one.
func circle(t *Traffic, ranks []int, rings *int32) (list []spec) {
	*rings++
	for i, r := range ranks {
		list = append(list, spec{from: int32(r), to: int32(ranks[(i+1)%len(ranks)]), ring: *rings,
			bytes: steps(len(ranks)) * chunk(int64(t.Bytes), len(ranks))})
	}
	return list
}

// steps returns the number of messages that each rank of a ring sends: all parts but one to reduce, then to gather.
func steps(ranks int) int64 { return int64(2 * (ranks - 1)) }

// chunk returns the bytes of each of these messages.
func chunk(bytes int64, ranks int) int64 { return (bytes + int64(ranks) - 1) / int64(ranks) }

// pairs returns the senders and receivers of an entry.
func pairs(t *Traffic, hosts map[string]int, draw *rand.Rand) (list [][2]int) {
	n := len(hosts)
	switch t.Pattern {
	case permutation:
		// Each host sends to the next one of a random circle, so that none sends to itself.
		circle := draw.Perm(n)
		to := make([]int, n)
		for i, h := range circle {
			to[h] = circle[(i+1)%n]
		}
		for h, peer := range to {
			list = append(list, [2]int{h, peer})
		}
		return list
	case allToAll:
		// Each host begins with its next one, so that the first ones do not all send to the same.
		ranks := t.ranks(hosts)
		for i := range ranks {
			for d := 1; d < len(ranks); d++ {
				list = append(list, [2]int{ranks[i], ranks[(i+d)%len(ranks)]})
			}
		}
		return list
	}
	to := hosts[t.To]
	if t.Senders > 0 {
		for h := 0; len(list) < t.Senders; h++ {
			if h != to {
				list = append(list, [2]int{h, to})
			}
		}
		return list
	}
	for _, name := range t.From {
		list = append(list, [2]int{hosts[name], to})
	}
	return list
}
