package simulate

import (
	"fmt"
	"strconv"
	"time"
)

// Forms of topologies.
const (
	star      = "star"
	leafSpine = "leaf-spine"
	fatTree   = "fat-tree"
	rails     = "rail-optimized"
	explicit  = "links"
)

// A Topology is the form of a network. Hosts are h0, h1 and so on, in the order of their switches. Those of rails are
// h0r0, h0r1 and so on: a NIC for each rail of each host.
type Topology struct {
	Form        string        `yaml:"form"`
	Hosts       int           `yaml:"hosts"` // of the switch, of each leaf, or with a NIC for each rail
	Leaves      int           `yaml:"leaves"`
	Spines      int           `yaml:"spines"`
	K           int           `yaml:"k"` // ports of a switch of a fat tree
	Rails       int           `yaml:"rails"`
	Rate        rate          `yaml:"rate"`   // of the links to the hosts
	Uplink      rate          `yaml:"uplink"` // of the links between switches; 0 means Rate
	Delay       time.Duration `yaml:"delay"`  // of each link
	UplinkDelay time.Duration `yaml:"uplink_delay"`
	LAG         int           `yaml:"lag"` // parallel links between two switches
	Links       []Link        `yaml:"links"`

	nodes []attached // of a lab file
}

// A Link is a link of an explicit topology, between two switches, or a host and its switch.
type Link struct {
	From  string        `yaml:"from"`
	To    string        `yaml:"to"`
	Rate  rate          `yaml:"rate"`  // 0 means that of the topology
	Delay time.Duration `yaml:"delay"` // 0 means that of the topology
	LAG   int           `yaml:"lag"`
}

// A layout is a topology as a list of hosts and of links between switches. The ports of a switch are numbered in the
// order of the hosts, and then of the trunks.
type layout struct {
	hosts    []attached
	trunks   []trunk
	switches int
}

// An attached is a host with the switch of its link.
type attached struct {
	name   string
	sw     int
	rate   rate
	delay  time.Duration
	subnet int // of a lab file
}

// A trunk is a number of parallel links between two switches.
type trunk struct {
	a, b  int
	n     int
	rate  rate
	delay time.Duration
}

// sizes returns how many hosts, switches and links between switches the form has.
func (t *Topology) sizes() (hosts, switches, links int) {
	n := max(1, t.LAG)
	switch t.Form {
	case leafSpine:
		return t.Hosts * t.Leaves, t.Leaves + t.Spines, t.Leaves * t.Spines * n
	case fatTree:
		return t.K * t.K * t.K / 4, t.K*t.K + t.K*t.K/4, t.K * t.K * t.K / 2 * n
	case rails:
		return t.Hosts * t.Rails, t.Rails + t.Spines, t.Rails * t.Spines * n
	case ofLab:
		if t.Leaves > 0 {
			return len(t.nodes), t.Leaves + t.Spines, t.Leaves * t.Spines
		}
		return len(t.nodes), t.nodes[len(t.nodes)-1].sw + 1, 0
	case explicit:
		for _, l := range t.Links {
			if l.From != "" && l.To != "" && l.From[0] == l.To[0] {
				links += max(1, l.LAG)
			}
		}
		names := t.names()
		return names['h'], names['s'], links
	}
	return t.Hosts, 1, 0
}

// names returns how many hosts and switches the links have, by their first letter.
func (t *Topology) names() map[byte]int {
	count := map[byte]int{}
	for _, l := range t.Links {
		for _, name := range []string{l.From, l.To} {
			if kind, i, ok := node(name); ok {
				count[kind] = max(count[kind], i+1)
			}
		}
	}
	return count
}

// node reads the name of a host or switch, such as h3 or s0.
func node(name string) (kind byte, i int, ok bool) {
	if len(name) < 2 || name[0] != 'h' && name[0] != 's' {
		return 0, 0, false
	}
	i, err := strconv.Atoi(name[1:])
	return name[0], i, err == nil && i >= 0 && i < maxShared && name[1:] == strconv.Itoa(i)
}

// layout returns the hosts and links of a form.
func (t *Topology) layout() *layout {
	l := &layout{}
	_, l.switches, _ = t.sizes()
	host := func(sw int) {
		name := "h" + strconv.Itoa(len(l.hosts))
		l.hosts = append(l.hosts, attached{name: name, sw: sw, rate: t.Rate, delay: t.Delay})
	}
	join := func(a, b int) { l.trunks = append(l.trunks, trunk{a, b, max(1, t.LAG), t.Uplink, t.UplinkDelay}) }
	switch t.Form {
	case leafSpine:
		for i := range t.Hosts * t.Leaves {
			host(i / t.Hosts)
		}
		t.leafSpine(join)
	case fatTree:
		t.fatTree(host, join)
	case rails:
		for i := range t.Hosts * t.Rails {
			h, r := i/t.Rails, i%t.Rails
			l.hosts = append(l.hosts, attached{name: fmt.Sprintf("h%dr%d", h, r), sw: r, rate: t.Rate, delay: t.Delay})
		}
		for spine := range t.Spines {
			for r := range t.Rails {
				join(r, t.Rails+spine)
			}
		}
	case explicit:
		t.explicit(l)
	case ofLab:
		l.hosts = t.nodes
		t.leafSpine(join)
	default:
		for range t.Hosts {
			host(0)
		}
	}
	return l
}

// leafSpine joins each leaf with each spine. A lab with one switch has neither.
func (t *Topology) leafSpine(join func(a, b int)) {
	for spine := range t.Spines {
		for leaf := range t.Leaves {
			join(leaf, t.Leaves+spine)
		}
	}
}

// fatTree lays out pods of K/2 edge and K/2 aggregation switches, and K*K/4 core switches above them (Al-Fares and
// others, SIGCOMM 2008). Edge switches come first, then aggregation, then core.
func (t *Topology) fatTree(host func(sw int), join func(a, b int)) {
	half := t.K / 2
	for i := range t.K * half * half {
		host(i / half)
	}
	for pod := range t.K {
		for edge := range half {
			for agg := range half {
				join(pod*half+edge, (t.K+pod)*half+agg)
			}
		}
	}
	for core := range half * half {
		for pod := range t.K {
			join((t.K+pod)*half+core/half, 2*t.K*half+core)
		}
	}
}

// explicit lays out the links of a file that has been checked.
func (t *Topology) explicit(l *layout) {
	l.hosts = make([]attached, t.names()['h'])
	for _, k := range t.Links {
		speed, delay := k.Rate, k.Delay
		if speed == 0 {
			speed = t.Rate
		}
		if delay == 0 {
			delay = t.Delay
		}
		kind, a, _ := node(k.From)
		other, b, _ := node(k.To)
		switch {
		case kind == 'h':
			l.hosts[a] = attached{name: k.From, sw: b, rate: speed, delay: delay}
		case other == 'h':
			l.hosts[b] = attached{name: k.To, sw: a, rate: speed, delay: delay}
		default:
			l.trunks = append(l.trunks, trunk{a, b, max(1, k.LAG), speed, delay})
		}
	}
}

// islands returns for each switch the lowest number of a switch that it reaches.
func (l *layout) islands() []int {
	root := make([]int, l.switches)
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	for _, t := range l.trunks {
		a, b := find(t.a), find(t.b)
		root[max(a, b)] = min(a, b)
	}
	for i := range root {
		root[i] = find(i)
	}
	return root
}

// ports returns the number of ports of each switch.
func (l *layout) ports() []int {
	count := make([]int, l.switches)
	for _, h := range l.hosts {
		count[h.sw]++
	}
	for _, t := range l.trunks {
		count[t.a] += t.n
		count[t.b] += t.n
	}
	return count
}
