package simulate

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// Switches of a lab are simulated as they come up: the same nodes at the same leaves, and the same path for a flow.
func TestLabWithLeavesTakesThePathsOfTheLab(t *testing.T) {
	const text = `name: racks
fabric: {topology: leaf-spine, leaves: 2, spines: 3, rate: 1Gb/s}
nodes: {vm: {count: 4}}
traffic: [{pattern: flow, from: [vm00], to: vm01, bytes: 1MiB}]
`
	c := config(t, text)
	n := newNetwork(c)
	if len(n.switches) != 5 || n.hosts[1].edge.sw != n.switches[1] || n.hosts[2].edge.sw != n.switches[0] ||
		n.hosts[0].rate != 25e9 || n.switches[0].ports[2].out.rate != 1e9 {
		t.Fatalf("%d switches, vm01 at %s", len(n.switches), n.hosts[1].edge.name)
	}
	if r := Run(c, never); r.Unfinished > 0 || r.Flows[0].Completion < 8*time.Millisecond {
		t.Errorf("1 MiB at 1 Gb/s took %v", r.Flows[0].Completion)
	}
	if c := config(t, "name: x\nfabric: {topology: leaf-spine, leaves: 2, spines: 2}\n"+
		"nodes: {a: {}, b: {nic: connectx-6}}"); c.Topology.Uplink != 200e9 {
		t.Errorf("without a rate, links have %d bit/s", c.Topology.Uplink)
	}

	dir := t.TempDir()
	cfg := fabric.Config{Control: filepath.Join(dir, "c"), Topology: fabric.Topology{Leaves: 2, Spines: 3}}
	for i := range 4 {
		name := fmt.Sprintf("vm%02d", i)
		cfg.Ports = append(cfg.Ports, fabric.Port{Name: name, Path: filepath.Join(dir, name), Leaf: i % 2})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fabric.Run(ctx, cfg) }()
	var client *fabric.Client
	for end := time.Now().Add(time.Minute); client == nil; {
		var err error
		if client, err = fabric.Dial(cfg.Control); err != nil && time.Now().After(end) {
			t.Fatal(err)
		}
	}
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	station := func(i int) []byte { return []byte{2, 0, 0, 0, 0, byte(i)} }
	conns := make([]net.Conn, 4)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("unix", cfg.Ports[i].Path); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
	}
	send := func(i int, frame []byte) {
		if _, err := conns[i].Write(append(be.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(i int) {
		if _, err := io.ReadFull(conns[i], make([]byte, 4+60)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range conns { // until vm01 has seen a broadcast of each, the switch knows none
		hello := make([]byte, 60)
		copy(hello, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		copy(hello[6:], station(i))
		send(i, hello)
	}
	for range 3 {
		read(1)
		read(0)
	}
	const flows = 100
	want := map[uint16]string{}
	for port := uint16(0xc000); port < 0xc000+flows; port++ {
		k := packet{n: 60}
		frame := k.frame[:60]
		copy(frame, station(1))
		copy(frame[6:], station(0))
		be.PutUint16(frame[offType:], 0x0800)
		frame[14], frame[23] = 0x45, 17
		from, to := address(0), address(1)
		copy(frame[26:], from[12:])
		copy(frame[offDest:], to[12:])
		be.PutUint16(frame[34:], port)
		be.PutUint16(frame[36:], 4791)
		k.read()
		want[port] = fabric.SpineName(int(n.switches[0].next(&k).far().index) - 2)
		send(0, frame)
		read(1)
	}
	got, err := client.Flows(ctx)
	if err != nil || len(got.Flows) != flows {
		t.Fatalf("%d flows, %v", len(got.Flows), err)
	}
	used := map[string]bool{}
	for _, f := range got.Flows {
		if used[f.Via] = true; f.Via != want[f.SrcPort] {
			t.Errorf("port %d takes %s in the lab and %s in the simulation", f.SrcPort, f.Via, want[f.SrcPort])
		}
	}
	if len(used) != 3 {
		t.Errorf("only %v are used", used)
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
