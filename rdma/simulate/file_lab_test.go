package simulate

import (
	"os"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/fabric"
)

// A lab file is simulated as its lab comes up: nodes, NICs, rates of their models, and a switch without ECN and PFC.
func TestLabFile(t *testing.T) {
	c := config(t, `name: mixed
fabric: {mtu: 1500}
nodes:
  a: {}
  b: {count: 2, nic: connectx-6, nics: 2}
`)
	n := newNetwork(c)
	var names []string
	for _, h := range n.hosts {
		names = append(names, h.name)
	}
	if got := strings.Join(names, " "); got != "a b00 b01 b00.1 b01.1" || len(n.switches) != 2 {
		t.Errorf("hosts %s at %d switches", got, len(n.switches))
	}
	if n.hosts[0].rate != 25e9 || n.hosts[1].rate != 200e9 || c.NIC.MTU != 1024 || c.Switch.PFC.Priorities != 0 ||
		c.Switch.Queue != fabric.DefaultQueueBytes || c.Name != "mixed" {
		t.Errorf("rates %g, %g; %+v", n.hosts[0].rate, n.hosts[1].rate, c)
	}
	// Without traffic, all nodes send to the first one.
	r := Run(c, never)
	if len(r.Flows) != 2 || r.Flows[0].To != "a" || r.Flows[1].Bytes != int64(labBytes) || r.Unfinished > 0 {
		t.Errorf("%+v", r.Flows)
	}
	c = config(t, `name: pair
nodes: {vm: {count: 3, nic: virtio}}
simulation: {rate: 10Gbit, delay: 2us, switch: {pfc: 3, ecn: "40KiB:80KiB:10%", buffer: 1MiB}, seed: 9, until: 1s}
traffic:
  - {pattern: flow, from: [vm02], to: vm00, bytes: 1MiB}
`)
	if c.Topology.Rate != 10e9 || c.Switch.ECN.Max != 80<<10 || c.Seed != 9 || c.Switch.Queue != 0 ||
		c.NIC.MTU != 4096 || len(c.Traffic) != 1 || c.Switch.Alpha != 0.125 {
		t.Errorf("%+v", c)
	}
}

// The example with all keys of a lab file is simulated with the rate that it states.
func TestLabExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("full.yaml", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := Run(c, never); len(r.Flows) != 2 || r.Unfinished > 0 || c.Topology.Rate != 100e9 {
		t.Errorf("%+v", r)
	}
}

// A queue of a lossy priority has the limit of a port of a lab.
func TestQueueLimit(t *testing.T) {
	const text = "topology: {form: star, hosts: 9, rate: 100Gbit}\nnic: {congestion: none}\n" +
		"switch: {pfc: none, alpha: 8, queue: 64KiB}\ntraffic: [{pattern: incast, to: h0, senders: 8, bytes: 256KiB}]"
	r := Run(config(t, text), never)
	if r.Counts.Drops == 0 || len(r.Queues) == 0 || r.Queues[0].Most > 64<<10 || r.Unfinished > 0 {
		t.Errorf("%d drops, queues %+v", r.Counts.Drops, r.Queues)
	}
	r = Run(config(t, strings.Replace(text, ", queue: 64KiB", "", 1)), never)
	if r.Counts.Drops > 0 {
		t.Errorf("%d drops without a limit", r.Counts.Drops)
	}
}

// Faults of a lab file have the line and the key of that file.
func TestLabFilesThatAreRefused(t *testing.T) {
	const nodes = "name: pair\nnodes:\n  vm: {count: 2}\n"
	for _, c := range []struct{ name, text, want string }{
		{"lab", "name: pair\nnodes: {vm: {count: 2, cpu: 1}}", "test.yaml:2:24: nodes.vm: unknown key"},
		{"traffic", nodes + "traffic: 5", "test.yaml:4:10: traffic: wrong type"},
		{"simulation", nodes + "simulation: 5", "test.yaml:4:13: simulation: wrong type"},
		{"key", nodes + "simulation:\n  swich: {}", `test.yaml:5:3: simulation: unknown key (have "swich"`},
		{"value", nodes + "simulation:\n  switch: {alpha: 0}", "test.yaml:5:19: simulation.switch.alpha: out of range"},
		{"pattern", nodes + "traffic:\n- {pattern: incst}", "test.yaml:5:13: traffic[0].pattern: unknown value"},
		{"node", nodes + "traffic:\n- {pattern: incast, to: vm09, senders: 1, bytes: 1KiB}",
			`traffic[0].to: no such host (have "vm09", want vm00 to vm01)`},
		{"no traffic", nodes + "traffic: []", "traffic: no traffic"},
		{"soft RoCE", "name: pair\nnodes:\n  vm: {count: 2, nic: virtio}\n",
			"test.yaml:3:7: nodes.vm: unknown rate of the NICs of vm00 (want simulation: {rate: 25Gbit}"},
		{"host", "name: pair\ndriver: libvirt\nnodes: {vm: {count: 2}}", "unknown rate of the NICs of vm00"},
		{"alone", "name: one\nnodes: {vm: {}}", "nodes: fewer than two nodes with a NIC"},
		{"payload", "name: pair\nfabric: {mtu: 1500}\nnodes: {vm: {count: 2}}\nsimulation: {nic: {mtu: 4096}}",
			"simulation.nic.mtu: larger than the fabric carries (have 4096, want at most 1024 with fabric.mtu 1500)"},
		{"subnets", "name: rails\nnodes: {vm: {count: 2, nics: 2}}\ntraffic: [{pattern: permutation, bytes: 1KiB}]",
			"their subnets are islands"},
		{"rails", nodes + "traffic: [{pattern: hierarchical-all-reduce, bytes: 1KiB}]", "pattern is for two or more " +
			"hosts on rails (have form lab"},
		{"both", nodes + "topology: {form: star, hosts: 2, rate: 1Gbit}", `unknown key (have "nodes"`},
		{"queue", nodes + "simulation: {switch: {queue: 2MiB, buffer: 1MiB}}", "simulation.switch.queue: out of range"},
		{"delay", nodes + "simulation: {delay: 2h}", "simulation.delay: out of range"},
	} {
		if _, err := Parse("test.yaml", []byte(c.text), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: have %v, want %s", c.name, err, c.want)
		}
	}
}
