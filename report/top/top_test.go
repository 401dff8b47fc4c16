package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/live"
)

var start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// reading returns a lab of n nodes after some seconds, in each of which every counter rises by one step.
func reading(n, seconds int) *Reading {
	s := uint64(seconds)
	r := &Reading{Lab: "pair", Accelerator: "tcg", Emulated: true, At: start.Add(time.Duration(seconds) * time.Second),
		RDMAAt: start.Add(time.Duration(seconds) * time.Second)}
	r.Fabric = &live.Fabric{At: r.At, Started: start}
	for i := range n {
		name := fmt.Sprintf("vm%02d", i)
		r.Nodes = append(r.Nodes, Machine{Name: name, State: "running", CPUs: 2,
			CPUTime: new(0.5 * float64(seconds))})
		r.Fabric.Ports = append(r.Fabric.Ports, live.Port{PortCounters: fabric.PortCounters{Name: name, Connected: true,
			RxBytes: 125_000 * s, TxBytes: 250_000 * s, RxFiltered: 3 * s, ECNMarked: 40 * s,
			Paused: time.Duration(s) * 250 * time.Millisecond}, Node: name, NIC: "eth0",
			Impaired: "rate 1Gbit, loss 1%"})
		r.RDMA = append(r.RDMA, live.NodeRDMA{Node: name, Devices: []live.RDMADevice{{Name: "mlx5_0",
			Port: map[string]uint64{"port_xmit_packets": 31_250 * s},
			HW:   map[string]uint64{"np_cnp_sent": 7 * s, "out_of_sequence": s, "packet_seq_err": s}}}})
	}
	return r
}

func TestRatesAreDifferencesOfCounters(t *testing.T) {
	t.Parallel()
	v := New(reading(2, 14), reading(2, 10))
	p, n := v.Ports[1], v.Nodes[1]
	for what, c := range map[string]struct {
		got  *float64
		want float64
	}{
		"rx": {p.RxRate, 1e6}, "tx": {p.TxRate, 2e6}, "drops": {p.DropRate, 3}, "marks": {p.MarkRate, 40},
		"paused": {p.PauseShare, 0.25}, "CPUs": {n.CPU, 0.5}, "CNPs": {n.CNPSent, 7}, "retries": {n.Retries, 2},
		"RDMA": {n.Sent, 31_250},
	} {
		if c.got == nil || *c.got != c.want {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
	// The devices count no packets that arrived, so nothing is said about them.
	if n.Got != nil || n.CNPs != nil {
		t.Errorf("rates without a counter: %v, %v", n.Got, n.CNPs)
	}
}

func TestARateThatIsNotKnownIsNotZero(t *testing.T) {
	t.Parallel()
	restarted := reading(2, 10)
	restarted.Fabric.Started = start.Add(5 * time.Second)
	back := reading(2, 10)
	back.Fabric.Ports[0].RxBytes, *back.Nodes[0].CPUTime, back.RDMA[0].Devices[0].HW["np_cnp_sent"] = 1<<40, 1e6, 1<<40
	added := reading(2, 10)
	added.Fabric.Ports, added.Nodes, added.RDMA = nil, nil, nil
	unread := reading(2, 10)
	unread.RDMAAt, unread.RDMA = time.Time{}, nil
	for name, c := range map[string]struct {
		before             *Reading
		port, machine, cnp bool // the rate is known
	}{
		"the first reading":                 {nil, false, false, false},
		"a switch that was started again":   {restarted, false, true, true},
		"counters that began again":         {back, false, false, false},
		"a node that was added":             {added, false, false, false},
		"devices that were not read before": {unread, true, true, false},
		"the same reading":                  {reading(2, 14), false, false, false},
	} {
		v := New(reading(2, 14), c.before)
		if got := v.Ports[0].RxRate != nil; got != c.port {
			t.Errorf("%s: the rate of a port is known: %v", name, got)
		}
		if got := v.Nodes[0].CPU != nil; got != c.machine {
			t.Errorf("%s: the CPUs of a node are known: %v", name, got)
		}
		if got := v.Nodes[0].CNPSent != nil; got != c.cnp {
			t.Errorf("%s: the CNPs of a node are known: %v", name, got)
		}
		if text, err := json.Marshal(v); err != nil || !c.port && !strings.Contains(string(text),
			`"rx_bits_per_second":null`) {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

func TestWhatCannotBeReadIsSaid(t *testing.T) {
	t.Parallel()
	r := reading(2, 14)
	r.Fabric, r.FabricErr = nil, errors.New("the switch\nhas ended")
	r.RDMA[1] = live.NodeRDMA{Node: "vm01", Err: errors.New("no answer")}
	r.RDMAErr = errors.New("a study measures")
	r.Nodes[0].CPUTime = nil
	text := New(r, reading(2, 10)).Text()
	for _, want := range []string{"switch: the switch has ended\n", "vm01: no answer\n",
		"RDMA counters: a study measures\n", "vm00  running     -   2"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestTheScreenIsNoLargerThanTheTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range []struct{ nodes, width, height int }{{2, 80, 24}, {8, 80, 24}, {64, 80, 24}, {64, 40, 8},
		{2, 20, 3}, {2, 200, 60}} {
		r := reading(size.nodes, 14)
		r.RDMAErr = errors.New("a study measures")
		lines := New(r, reading(size.nodes, 10)).Screen(size.width, size.height, "q quits")
		if len(lines) > max(size.height, 4) || lines[len(lines)-1] != "q quits" {
			t.Errorf("%+v: %d lines:\n%s", size, len(lines), strings.Join(lines, "\n"))
		}
		for _, l := range lines {
			if utf8.RuneCountInString(l) > size.width {
				t.Errorf("%+v: %q is too long", size, l)
			}
		}
		if size.height == 24 && !strings.Contains(strings.Join(lines, "\n"), "RDMA counters: a study measures") {
			t.Errorf("%+v: the note is lost:\n%s", size, strings.Join(lines, "\n"))
		}
	}
}

// At 80 columns, everything but the impairments of links is seen.
func TestEightyColumnsShowAllRates(t *testing.T) {
	t.Parallel()
	text := strings.Join(New(reading(2, 14), reading(2, 10)).Screen(80, 24, "q quits"), "\n")
	for _, want := range []string{"lab pair (emulated, tcg), 12:00:14\n",
		"PORT  LINK         RX         TX  DROPS/S  MARKS/S  PAUSED  QUEUE  DROPS  SET",
		"vm00  up    1.00 Mb/s  2.00 Mb/s      3.0       40     25%    0 B     42  rate",
		"NODE  STATE     CPU  OF  CNP OUT  CNP IN  ECN/S  RETRY/S  RDMA OUT  RDMA IN",
		"vm00  running  0.50   2      7.0       -      -      2.0       31k        -"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestCountsAreShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[uint64]string{0: "0", 9999: "9999", 10_000: "10k", 123_456_789: "123M",
		1 << 63: "9223P"} {
		if got := count(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
