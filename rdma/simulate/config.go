package simulate

import (
	"math"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/roce"
)

// A Config is a file of a simulation.
type Config struct {
	Name     string        `yaml:"name"`
	Level    string        `yaml:"level"` // packets, or flows with computed rates
	Topology Topology      `yaml:"topology"`
	Switch   SwitchConfig  `yaml:"switch"`
	NIC      NICConfig     `yaml:"nic"`
	Faults   []Fault       `yaml:"faults"`
	Curves   *Curves       `yaml:"curves"` // nil means none
	Traffic  []Traffic     `yaml:"traffic"`
	Seed     uint64        `yaml:"seed"`
	Until    time.Duration `yaml:"until"`

	capture *Capture // nil means none
}

// rate is a rate in bits/s, written as for rackless link set: 25Gbit.
type rate int64

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *rate) UnmarshalText(text []byte) error {
	var l fabric.Link
	if err := l.Set("rate", string(text)); err != nil {
		return err
	}
	*r = rate(l.Rate)
	return nil
}

// marks are the thresholds of ECN, written as for rackless link set: 100KiB:400KiB:20%.
type marks struct{ fabric.RED }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *marks) UnmarshalText(text []byte) error {
	var l fabric.Link
	if err := l.Set("ecn", string(text)); err != nil {
		return err
	}
	m.RED = l.ECN
	return nil
}

// losslessSet is a set of priorities with PFC, written 3, 3,4 or none.
type losslessSet struct{ fabric.Priorities }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *losslessSet) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		p.Priorities = 0
		return nil
	}
	return p.Priorities.UnmarshalText(text)
}

// A SwitchConfig describes all switches.
type SwitchConfig struct {
	Buffer      lab.Bytes   `yaml:"buffer"` // shared by all ports
	Queue       lab.Bytes   `yaml:"queue"`  // most of lossy priorities at a port; 0 means no limit
	Alpha       float64     `yaml:"alpha"`  // share of the free buffer for a priority of a port
	UplinkAlpha float64     `yaml:"uplink_alpha"`
	Reserve     lab.Bytes   `yaml:"reserve"`  // of each port, before the shared part
	Headroom    *lab.Bytes  `yaml:"headroom"` // of each port and lossless priority; nil means the need of its link
	Resume      lab.Bytes   `yaml:"resume"`   // bytes below the threshold at which senders go on
	PFC         losslessSet `yaml:"pfc"`
	ECN         marks       `yaml:"ecn"`
	UplinkECN   marks       `yaml:"uplink_ecn"` // of ports between switches
	// MarkAtDeparture applies ECN to packets as they leave, so that senders learn of a queue as it is now. Otherwise
	// it applies as they come, as in the switch of a lab.
	MarkAtDeparture bool `yaml:"mark_at_departure"`
}

func (c *SwitchConfig) lossless(prio uint8) bool { return c.PFC.Priorities>>prio&1 != 0 }

func (c *SwitchConfig) reserve() int64 { return int64(c.Reserve) }

// Kinds of congestion control.
const (
	dcqcn     = "dcqcn"
	noControl = "none"
)

// A NICConfig describes the NICs of all hosts.
type NICConfig struct {
	Profile    string            `yaml:"profile"`
	Congestion string            `yaml:"congestion"`
	CCParams   map[string]uint64 `yaml:"cc_params"`
	MTU        int               `yaml:"mtu"`         // payload of a packet
	Window     int               `yaml:"window"`      // packets in flight
	AckEvery   int               `yaml:"ack_every"`   // packets between acknowledgements
	AckTimeout int               `yaml:"ack_timeout"` // 4.096 us << AckTimeout
	Priority   int               `yaml:"priority"`
	// AckPriority is the priority of acknowledgements; nil means Priority.
	AckPriority *int `yaml:"ack_priority"`

	control roce.Congestion
	// Bytes of a packet on the cable and in buffers beyond its frame.
	overWire, overHeld int
}

// Profiles of NICs.
const (
	profileCard = "card"
	profileHPCC = "hpcc"
)

// defaults returns the configuration before a file is read.
func defaults() Config {
	return Config{Name: "simulation", Level: PacketLevel,
		Topology: Topology{Form: star, Delay: time.Microsecond},
		Switch: SwitchConfig{Buffer: 32 * lab.MiB, Reserve: 4 * lab.KiB, Resume: 3 * lab.KiB,
			PFC: losslessSet{1 << 3}},
		NIC:  NICConfig{Profile: profileCard, Congestion: dcqcn, AckTimeout: 14, Priority: 3},
		Seed: fabric.DefaultSeed, Until: 10 * time.Second,
	}
}

// complete fills in the values that the file left out, and that follow from others.
func (c *Config) complete() {
	t, s, n := &c.Topology, &c.Switch, &c.NIC
	if t.Uplink == 0 {
		t.Uplink = t.Rate
	}
	if t.UplinkDelay == 0 {
		t.UplinkDelay = t.Delay
	}
	if s.Alpha == 0 {
		s.Alpha = 1. / 8
	}
	faster := 1.0
	if n.Profile == profileHPCC {
		faster = max(1, float64(t.Uplink)/float64(t.Rate))
	}
	if s.UplinkAlpha == 0 {
		// That simulator doubles it for each doubling of the rate, up to 1.
		s.UplinkAlpha = max(s.Alpha, min(1, s.Alpha*math.Exp2(math.Ceil(math.Log2(faster)))))
	}
	if s.UplinkECN == (marks{}) {
		s.UplinkECN = s.ECN
		s.UplinkECN.Min, s.UplinkECN.Max = int(float64(s.ECN.Min)*faster), int(float64(s.ECN.Max)*faster)
	}
	n.control = roce.DefaultCongestion()
	n.overWire, n.overHeld = fcs+gaps, fcs
	mtu, window, every := 1024, 256, roce.AckEvery
	if n.Profile == profileHPCC {
		mtu, window, every = 1000, 1<<22, 1
		n.overWire, n.overHeld = hpccHead-headData, hpccHead-headData
		n.control = hpccControl(float64(t.Rate))
		s.MarkAtDeparture = true
		n.control.CNPDSCP, n.control.CNPPrio = dscpOf(n.Priority), uint8(n.Priority)
	}
	for _, v := range []struct {
		at        *int
		otherwise int
	}{{&n.MTU, mtu}, {&n.Window, window}, {&n.AckEvery, every}} {
		if *v.at == 0 {
			*v.at = v.otherwise
		}
	}
	if n.AckPriority == nil {
		n.AckPriority = &n.Priority
	}
	for name, v := range n.CCParams {
		if p := param(&n.control, name); p != nil {
			*p = uint32(v)
		}
	}
	if n.Congestion == noControl {
		n.control.React, n.control.Notify = 0, 0
	}
	for i := range c.Traffic {
		t := &c.Traffic[i]
		t.QPs, t.Times = max(1, t.QPs), max(1, t.Times)
	}
}

// Sizes in the published simulator of HPCC: of all headers of a packet, and of an acknowledgement.
const (
	hpccHead = 48
	hpccAck  = 60
)

// hpccControl returns the parameters of DCQCN as in that simulator, for hosts with links of a rate.
func hpccControl(rate float64) roce.Congestion {
	c := roce.DefaultCongestion()
	c.DCETCPG = 1024 - 1024/256
	c.AIRate, c.HAIRate = uint32(math.Round(rate/25e9*5)), uint32(math.Round(rate/25e9*50))
	c.MinRate, c.Threshold = 100, 1
	c.Periodic = true
	c.MinTimeBetweenCNPs = 0 // each acknowledgement of a marked packet tells of it
	return c
}

// Param returns a parameter of congestion control as it is in effect, by its name in debugfs. ok is false if there is
// none of that name.
func (n *NICConfig) Param(name string) (v uint32, ok bool) {
	if p := param(&n.control, name); p != nil {
		return *p, true
	}
	return 0, false
}

// Controlled reports whether senders slow down after congestion.
func (n *NICConfig) Controlled() bool { return n.Congestion != noControl }

// DSCP returns the DSCP of the packets.
func (n *NICConfig) DSCP() int { return int(dscpOf(n.Priority)) }

// Thresholds are bytes of a priority of a port of a switch at which senders are stopped, if no other port has more
// than its reserve, at which they go on, and that may come after that.
type Thresholds struct {
	XOFF     int64 `json:"xoff_bytes"`
	XON      int64 `json:"xon_bytes"`
	Headroom int64 `json:"headroom_bytes"`
}

// Thresholds returns those of the port of the first host.
func (c *Config) Thresholds() Thresholds {
	n := newNetwork(&Config{Topology: c.Topology, Switch: c.Switch, NIC: c.NIC, Seed: c.Seed})
	p := n.hosts[0].edge
	// The threshold is alpha of what it leaves free itself.
	t := Thresholds{XOFF: int64(p.alpha / (1 + p.alpha) * float64(p.sw.common)), Headroom: p.room}
	t.XON = max(0, t.XOFF-int64(c.Switch.Resume))
	return t
}

// params are the parameters of congestion control that a file may set, named as in debugfs.
var params = []struct {
	name string
	of   func(*roce.Congestion) *uint32
}{
	{"rp_time_reset", func(c *roce.Congestion) *uint32 { return &c.TimeReset }},
	{"rp_byte_reset", func(c *roce.Congestion) *uint32 { return &c.ByteReset }},
	{"rp_threshold", func(c *roce.Congestion) *uint32 { return &c.Threshold }},
	{"rp_ai_rate", func(c *roce.Congestion) *uint32 { return &c.AIRate }},
	{"rp_hai_rate", func(c *roce.Congestion) *uint32 { return &c.HAIRate }},
	{"rp_max_rate", func(c *roce.Congestion) *uint32 { return &c.MaxRate }},
	{"rp_min_dec_fac", func(c *roce.Congestion) *uint32 { return &c.MinDecFac }},
	{"rp_min_rate", func(c *roce.Congestion) *uint32 { return &c.MinRate }},
	{"rp_rate_to_set_on_first_cnp", func(c *roce.Congestion) *uint32 { return &c.RateToSetOnFirstCNP }},
	{"rp_dce_tcp_g", func(c *roce.Congestion) *uint32 { return &c.DCETCPG }},
	{"rp_dce_tcp_rtt", func(c *roce.Congestion) *uint32 { return &c.DCETCPRTT }},
	{"rp_rate_reduce_monitor_period", func(c *roce.Congestion) *uint32 { return &c.RateReduceMonitorPeriod }},
	{"rp_initial_alpha_value", func(c *roce.Congestion) *uint32 { return &c.InitialAlpha }},
	{"rp_gd", func(c *roce.Congestion) *uint32 { return &c.GD }},
	{"np_min_time_between_cnps", func(c *roce.Congestion) *uint32 { return &c.MinTimeBetweenCNPs }},
}

// param returns a parameter by its name, or nil.
func param(c *roce.Congestion, name string) *uint32 {
	for _, p := range params {
		if p.name == name {
			return p.of(c)
		}
	}
	return nil
}
