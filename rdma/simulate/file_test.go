package simulate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
)

// A file with all keys is read as it says.
func TestParse(t *testing.T) {
	c := config(t, `name: two tiers
topology: {form: leaf-spine, hosts: 8, leaves: 4, spines: 2, rate: 25Gbit,
  uplink: 100Gbit, delay: 1us, uplink_delay: 2us}
switch:
  buffer: 16MiB
  alpha: 0.25
  uplink_alpha: 0.5
  reserve: 2KiB
  headroom: 20KiB
  resume: 4KiB
  pfc: 3,4
  ecn: 100KiB:400KiB:20%
  mark_at_departure: true
nic:
  profile: card
  congestion: dcqcn
  cc_params: {rp_time_reset: 55, np_min_time_between_cnps: 50}
  mtu: 4096
  window: 128
  ack_every: 16
  ack_timeout: 12
  priority: 4
  ack_priority: 5
traffic:
  - {pattern: incast, to: h3, from: [h1, h30], bytes: 1MiB, start: 10us, qps: 2}
  - {pattern: permutation, bytes: 64KiB}
  - {pattern: flow, from: [h0], to: h31, bytes: 5B}
seed: 7
until: 20ms
`)
	s, n := c.Switch, c.NIC
	if c.Topology.Rate != 25e9 || c.Topology.Uplink != 100e9 || c.Topology.UplinkDelay != 2*time.Microsecond ||
		s.Buffer != 16*lab.MiB || *s.Headroom != 20*lab.KiB || s.PFC.Priorities != 0x18 || s.ECN.Max != 400<<10 ||
		s.ECN.Probability != 0.2 || !s.MarkAtDeparture || n.control.TimeReset != 55 || n.MTU != 4096 ||
		n.Window != 128 ||
		*n.AckPriority != 5 || n.control.MinTimeBetweenCNPs != 50 || c.Seed != 7 ||
		c.Until != 20*time.Millisecond || len(c.Traffic) != 3 {
		t.Errorf("%+v", c)
	}
	net := newNetwork(c)
	if len(net.hosts) != 32 || len(net.switches) != 6 || len(net.flows) != 1+32+4 || net.flows[0].start != 0 {
		t.Errorf("%d hosts, %d switches, %d flows", len(net.hosts), len(net.switches), len(net.flows))
	}
}

// Keys that were left out have defaults, those of the profile first.
func TestDefaults(t *testing.T) {
	const text = "topology: {form: star, hosts: 2, rate: 100Gbit}\ntraffic: [{pattern: permutation, bytes: 1MiB}]\n"
	c := config(t, text)
	if n := c.NIC; n.MTU != 1024 || n.Window != 256 || *n.AckPriority != 3 || n.control.Periodic ||
		c.Switch.Alpha != 0.125 {
		t.Errorf("%+v", c)
	}
	c = config(t, text+"nic: {profile: hpcc, window: 9, cc_params: {rp_time_reset: 55}}")
	if k := c.NIC.control; c.NIC.MTU != 1000 || c.NIC.Window != 9 || !k.Periodic || k.TimeReset != 55 ||
		k.AIRate != 20 {
		t.Errorf("%+v", c)
	}
}

// A file with an error is refused with the line, and with the values that fit.
func TestFilesThatAreRefused(t *testing.T) {
	const star = "topology: {form: star, hosts: 4, rate: 100Gbit}\n"
	const flow = "traffic: [{pattern: flow, from: [h1], to: h0, bytes: 1MiB}]\n"
	const leaves = "topology: {form: leaf-spine, hosts: 4, leaves: 2, spines: 1, rate: 100Gbit}\n"
	const rail = "topology: {form: rail-optimized, hosts: 2, rails: 2, rate: 100Gbit}\n"
	const links = "topology: {form: links, rate: 100Gbit, links: "
	others := map[string]string{"host.txt": "# start\n1us h0 h9 1\n", "late.txt": "1ms h0 h1 1", "empty.txt": "\n#\n",
		"falls.txt": "0 0\n10 50\n5 100\n", "early.txt": "0 0\n10 50\n"}
	read := func(name string) ([]byte, error) {
		if text, ok := others[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New(name + ": not there")
	}
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "empty simulation file (want topology and traffic)"},
		{"unknown key", star + flow + "swich: {}", `test.yaml:3:1: unknown key (have "swich"`},
		{"no topology", flow, "missing key (want topology)"},
		{"no traffic", star, "traffic: no traffic"},
		{"unknown form", "topology: {form: ring, hosts: 3, rate: 1Gbit}\n" + flow,
			"topology.form: unknown value (have \"ring\""},
		{"rate without a unit", "topology: {form: star, hosts: 3, rate: 100}\n" + flow, "topology.rate: rate \"100\""},
		{"one host", "topology: {form: star, hosts: 1, rate: 1Gbit}\n" + flow,
			"topology.hosts: out of range (have 1, want 2 to"},
		{"key of another form", "topology: {form: star, hosts: 3, rate: 1Gbit, spines: 2}\n" + flow,
			"topology.spines: key has no effect with form star"},
		{"islands", "topology: {form: leaf-spine, hosts: 3, leaves: 2, spines: 0, rate: 1Gbit}\n" + flow,
			"topology.spines: islands"},
		{"too many hosts", "topology: {form: leaf-spine, hosts: 1000, leaves: 1000, spines: 1, rate: 1Gbit}\n" + flow,
			"wrong number of hosts in all (have 1000000, want 2 to 65536)"},
		{"delay", "topology: {form: star, hosts: 3, rate: 1Gbit, delay: 2h}\n" + flow, "topology.delay: out of range"},
		{"unknown parameter", star + flow + "nic: {cc_params: {rp_time_rest: 1}}",
			"nic.cc_params.rp_time_rest: unknown parameter (have \"rp_time_rest\"); did you mean rp_time_reset?"},
		{"large parameter", star + flow + "nic: {cc_params: {rp_gd: 4294967296}}", "nic.cc_params.rp_gd: out of range"},
		{"MTU", star + flow + "nic: {mtu: 9000}", "nic.mtu: out of range (have 9000, want 256 to 4096)"},
		{"priority of control", star + flow + "nic: {priority: 6}", "nic.priority: out of range (have 6, want 0 to 5)"},
		{"priority of acknowledgements", star + flow + "nic: {ack_priority: 8}", "ack_priority: out of range (have 8"},
		{"profile", star + flow + "nic: {profile: hpc}", "did you mean hpcc?"},
		{"marks that nobody heeds", star + flow + "nic: {congestion: none}\nswitch: {ecn: \"1KiB:2KiB:1%\"}",
			"switch.ecn: key has no effect with congestion none"},
		{"parameters that nobody heeds", star + flow + "nic: {congestion: none, cc_params: {rp_gd: 11}}",
			"nic.cc_params: key has no effect"},
		{"marks upside down", star + flow + "switch: {ecn: \"4KiB:2KiB:1%\"}", "switch.ecn: marks begin above"},
		{"alpha", star + flow + "switch: {alpha: 0}", "switch.alpha: out of range (have 0"},
		{"alpha of uplinks of a star", star + flow + "switch: {uplink_alpha: 1}", "switch.uplink_alpha: key has no " +
			"effect"},
		{"buffer smaller than headroom", star + flow + "switch: {buffer: 64KiB, headroom: 20KiB}",
			"switch.buffer: buffer is smaller than its reserves and headrooms, and a packet of each port, at " +
				"switch s0 (have 64KiB, want at least 101KiB); or a smaller headroom"},
		{"buffer of a fat tree", "topology: {form: fat-tree, k: 4, rate: 400Gbit, delay: 10us}\n" + flow +
			"switch: {buffer: 1MiB}", "at switch s0 (have 1MiB, want at least 3941KiB)"},
		{"end", star + flow + "until: 0s", "until: out of range"},
		{"no pattern", star + "traffic: [{to: h0}]", "traffic[0]: missing key (want pattern)"},
		{"unknown pattern", star + "traffic: [{pattern: incats, to: h0}]", "did you mean incast?"},
		{"no bytes", star + "traffic: [{pattern: permutation}]", "traffic[0]: missing key (want bytes)"},
		{"zero bytes", star + "traffic: [{pattern: permutation, bytes: 0B}]",
			"traffic[0].bytes: out of range (have 0B"},
		{"too many bytes", star + "traffic: [{pattern: permutation, bytes: 2TiB}]", "have 2TiB, want 1B to 1TiB"},
		{"start after the end", star + "traffic: [{pattern: permutation, bytes: 1B, start: 11s}]",
			"before the end at 10s"},
		{"more queue pairs than bytes", star + "traffic: [{pattern: permutation, bytes: 3B, qps: 4}]",
			"more queue pairs than bytes (have 4, want at most 3)"},
		{"unknown host", star + "traffic: [{pattern: flow, from: [h4], to: h0, bytes: 1B}]",
			"traffic[0].from[0]: no such host (have \"h4\", want h0 to h3)"},
		{"host written in another way", star + "traffic: [{pattern: flow, from: [h01], to: h0, bytes: 1B}]",
			"no such host"},
		{"no receiver", star + "traffic: [{pattern: incast, senders: 2, bytes: 1B}]", "missing key (want to)"},
		{"itself", star + "traffic: [{pattern: flow, from: [h1], to: h1, bytes: 1B}]", "host sends to itself"},
		{"two senders of a flow", star + "traffic: [{pattern: flow, from: [h1, h2], to: h0, bytes: 1B}]",
			"wrong number of senders (have 2"},
		{"senders counted and named", star + "traffic: [{pattern: incast, from: [h1], senders: 1, to: h0, bytes: 1B}]",
			"senders are both counted and named"},
		{"more senders than hosts", star + "traffic: [{pattern: incast, senders: 4, to: h0, bytes: 1B}]",
			"traffic[0].senders: out of range (have 4, want 1 to 3"},
		{"senders of a permutation", leaves + "traffic: [{pattern: permutation, senders: 4, bytes: 1B}]",
			"traffic[0].senders: key has no effect with pattern permutation"},
		{"too many flows", star + "traffic: [{pattern: permutation, bytes: 1TiB, qps: 65536}," +
			strings.Repeat("{pattern: permutation, bytes: 1TiB, qps: 65536},", 4) + "]",
			"too many flows (have 1310720"},
		{"odd fat tree", "topology: {form: fat-tree, k: 5, rate: 1Gbit}\n" + flow,
			"topology.k: wrong number of ports of a switch (have 5, want an even number from 2 to 64"},
		{"hosts of a fat tree", "topology: {form: fat-tree, k: 4, hosts: 16, rate: 1Gbit}\n" + flow,
			"topology.hosts: key has no effect with form fat-tree"},
		{"fat tree without k", "topology: {form: fat-tree, rate: 1Gbit}\n" + flow, "topology: missing key (want k)"},
		{"rails that do not meet", rail + "traffic: [{pattern: flow, from: [h0r0], to: h1r1, bytes: 1B}]",
			"traffic[0]: no way from h0r0 to h1r1: without spines, rails are islands; add spines"},
		{"hosts without rails", rail + flow, "traffic[0].to: no such host (have \"h0\", want h0r0 to h1r1)"},
		{"link between hosts", links + "[{from: h0, to: h1}]}\n" + flow, "topology.links[0]: link between two hosts"},
		{"two links of a host", links + "[{from: h0, to: s0}, {from: h1, to: s0}, {from: s1, to: h0}]}\n" + flow,
			"topology.links[2]: host has another link (have h0, want one, which is topology.links[0])"},
		{"LAG of a host", links + "[{from: h0, to: s0, lag: 2}, {from: h1, to: s0}]}\n" + flow,
			"topology.links[0].lag: a host has one link"},
		{"gap in hosts", links + "[{from: h0, to: s0}, {from: h2, to: s0}]}\n" + flow,
			"topology.links: hosts are not numbered in a row (have 2 hosts, want a link of h1)"},
		{"gap in switches", links + "[{from: h0, to: s0}, {from: h1, to: s0}, {from: s2, to: s0}]}\n" + flow,
			"switch without links (have s1)"},
		{"islands of links", links + "[{from: h0, to: s0}, {from: h1, to: s1}]}\n" + flow,
			"topology.links: islands: s1 does not reach s0"},
		{"neither", links + "[{from: h0, to: t0}]}\n" + flow,
			"topology.links[0].to: neither a host nor a switch (have \"t0\""},
		{"link to itself", links + "[{from: s0, to: s0}]}\n" + flow, "topology.links[0]: link from a switch to itself"},
		{"fault of no link", star + flow + "faults: [{link: \"s0:4\", down: true}]",
			"faults[0].link: no such link (have \"s0:4\", want a host, or a port of a switch such as s0:3)"},
		{"fault of nothing", star + flow + "faults: [{link: h0}]",
			"faults[0]: a fault makes a link either slow or dead"},
		{"fault after the end", star + flow + "faults: [{link: h0, down: true, at: 10s}]",
			"faults[0].at: out of range (have 10s, want before the end at 10s)"},
		{"link faster than its NIC", star + flow + "faults: [{link: h0, rate: 200Gbit}]",
			"faults[0].rate: faster than the NIC"},
		{"bytes of a trace", star + "traffic: [{pattern: trace, file: t, bytes: 1B}]",
			"traffic[0].bytes: key has no effect with pattern trace"},
		{"no trace", star + "traffic: [{pattern: trace, file: none.txt}]", "traffic[0].file: none.txt: not there"},
		{"trace of unknown hosts", star + "traffic: [{pattern: trace, file: host.txt}]",
			"traffic[0].file: host.txt: line 2: \"1us h0 h9 1\" (want two different hosts"},
		{"trace with a time after the end", star + "until: 1ms\ntraffic: [{pattern: trace, file: late.txt}]",
			"line 1: \"1ms h0 h1 1\" (want a start such as 12.5us, before the end at 1ms)"},
		{"empty trace", star + "traffic: [{pattern: trace, file: empty.txt}]", "empty.txt: no flows"},
		{"sizes that fall", star + "traffic: [{pattern: poisson, load: 30%, for: 1ms, sizes: falls.txt}]",
			"falls.txt: line 3: \"5 100\" (want more bytes and a higher percentage than before)"},
		{"sizes that end early", star + "traffic: [{pattern: poisson, load: 30%, for: 1ms, sizes: early.txt}]",
			"early.txt: the last size has 50% (want 100%)"},
		{"load", star + "traffic: [{pattern: poisson, load: 130%, for: 1ms, sizes: hadoop}]",
			"share \"130%\" (want more than 0%, less than 100%)"},
		{"arrivals after the end", star + "traffic: [{pattern: poisson, load: 30%, for: 11s, sizes: hadoop}]",
			"traffic[0].for: out of range (have 11s"},
		{"too many arrivals", star + "traffic: [{pattern: poisson, load: 90%, for: 10s, sizes: hadoop}]",
			"traffic[0]: too many flows (have "},
		{"all-reduce over rails that are none", star + "traffic: [{pattern: hierarchical-all-reduce, bytes: 1MiB}]",
			"pattern is for two or more hosts on rails (have form star"},
		{"all-reduce of one", star + "traffic: [{pattern: ring-all-reduce, from: [h1], bytes: 1MiB}]",
			"traffic[0].from: too few hosts (have 1, want 2 or more)"},
		{"all-reduce with a host twice", star + "traffic: [{pattern: ring-all-reduce, from: [h1, h1], bytes: 1MiB}]",
			"host takes part twice (have \"h1\")"},
		{"all-reduce of too much", star + "traffic: [{pattern: ring-all-reduce, bytes: 5GiB}]",
			"more than 1GiB in a message (have 5GiB, want at most 4GiB with 4 ranks)"},
		{"bursts without a number", star + "traffic: [{pattern: permutation, bytes: 1B, every: 1us}]",
			"traffic[0]: bursts need both every and times"},
		{"bursts after the end", star + "traffic: [{pattern: permutation, bytes: 1B, every: 1s, times: 11}]",
			"traffic[0].times: the last burst starts too late (have 11"},
		{"more than memory holds", "topology: {form: leaf-spine, hosts: 64, leaves: 1000, spines: 500, rate: 1Gbit}\n" +
			"traffic: [{pattern: permutation, bytes: 1MiB}]", "network and traffic need too much memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("test.yaml", []byte(c.text), read)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// FuzzParse checks that no text makes the reader fail in another way than with an error.
func FuzzParse(f *testing.F) {
	f.Add("topology: {form: star, hosts: 4, rate: 100Gbit}\ntraffic: [{pattern: incast, to: h0, senders: 3, bytes: " +
		"1KiB}]")
	f.Add("topology: {form: leaf-spine, hosts: 2, leaves: 2, spines: 1, rate: 1Gbit}\n" +
		"traffic: [{pattern: permutation}]")
	f.Add("switch: {pfc: none, ecn: 1KiB:2KiB:3%}\nnic: {cc_params: {rp_gd: 1}}")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 500 {
			return
		}
		c, err := Parse("test.yaml", []byte(text), nil)
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
	})
}
