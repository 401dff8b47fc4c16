package fabric

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// racks starts a switch with nodes p0, p1, ... at leaves 0, 1, ..., 0, 1, ... that know each other's addresses.
func racks(t *testing.T, nodes int, topology Topology) (*testSwitch, []*node) {
	t.Helper()
	s, all := attachAll(t, nodes, func(cfg *Config) {
		cfg.Topology = topology
		for i := range cfg.Ports {
			cfg.Ports[i].Leaf = i % topology.Leaves
		}
	})
	for i, n := range all {
		f := frame(broadcast, station(i), 60, uint32(i))
		n.send(f)
		for j, o := range all {
			if j != i {
				o.expect(f)
			}
		}
	}
	return s, all
}

// tx returns the frames that each link between switches has sent since before.
func (s *testSwitch) tx(before map[string]uint64) map[string]uint64 {
	s.Helper()
	out := map[string]uint64{}
	for _, p := range s.counters().Ports {
		if p.Peer != "" && p.TxFrames > before[p.Name] {
			out[p.Name] = p.TxFrames - before[p.Name]
		}
	}
	return out
}

func TestFramesBetweenLeavesGoBySpines(t *testing.T) {
	s, n := racks(t, 5, Topology{Leaves: 3, Spines: 2})
	was := s.tx(nil)
	if want := uint64(5); was["leaf0-spine0"] != 2 || was["leaf1-spine0"] != 2 || was["leaf2-spine0"] != 1 ||
		was["spine0-leaf2"] != want-1 || was["leaf0-spine1"] != 0 {
		t.Errorf("broadcasts went by %v", was)
	}
	near := frame(station(3), station(0), 100, 1) // both at leaf 0
	n[0].send(near)
	n[3].expect(near)
	if got := s.tx(was); len(got) > 0 {
		t.Errorf("a frame within a leaf went by %v", got)
	}
	// An unknown address, as a multicast, reaches everybody once.
	for _, dst := range []mac{station(77), 0x33_33_00_00_00_01} {
		f := frame(dst, station(1), 90, 2)
		n[1].send(f)
		for _, i := range []int{0, 2, 3, 4} {
			n[i].expect(f)
		}
	}
	// Each flow takes the spine that the hash says, and all spines are used.
	was = s.tx(nil)
	want := map[string]uint64{}
	for port := range uint16(64) {
		f := udpFrame(1, 0, 0xc000+port, 200)
		flow := FlowOf(f)
		spine := SpineName(Choose(flow.Hash(), Salt(DefaultSeed, 0), 2))
		want["leaf0-"+spine]++
		want[spine+"-leaf1"]++
		n[0].send(f)
		n[1].expect(f)
	}
	if got := s.tx(was); fmt.Sprint(got) != fmt.Sprint(want) || len(want) != 4 {
		t.Errorf("flows went by %v, want %v", got, want)
	}
	fl, err := s.client.Flows(context.Background())
	if err != nil || len(fl.Flows) != 64 || fl.Unlisted != 0 {
		t.Fatalf("%d flows, %d unlisted, %v", len(fl.Flows), fl.Unlisted, err)
	}
	for _, f := range fl.Flows {
		if f.From != "p0" || f.To != "p1" || f.Src.String() != "10.0.0.0" || f.Dst.String() != "10.0.0.1" ||
			f.Frames != 1 || f.Bytes != 200 || f.QP == nil || *f.QP != 0x100|uint32(f.SrcPort&0xff) ||
			f.DstPort != rocePort || want["leaf0-"+f.Via] == 0 {
			t.Fatalf("%+v", f)
		}
	}
	// A node that claims the address of another leaf's node is believed as with one switch, and then frames follow.
	moved := frame(broadcast, station(1), 60, 9)
	n[2].send(moved)
	for _, i := range []int{0, 1, 3, 4} {
		n[i].expect(moved)
	}
	f := udpFrame(1, 0, 0xc000, 200)
	n[0].send(f)
	n[2].expect(f)
}

func TestLinksBetweenSwitchesThatAreDown(t *testing.T) {
	s, n := racks(t, 4, Topology{Leaves: 2, Spines: 2})
	all := func() {
		t.Helper()
		for port := range uint16(16) {
			f := udpFrame(1, 0, 0xc000+port, 200)
			n[0].send(f)
			n[1].expect(f)
		}
		f := frame(broadcast, station(0), 60, 5)
		n[0].send(f)
		for _, o := range n[1:] {
			o.expect(f)
		}
	}
	all()
	// Either end takes the link down, and so does the far leaf's link of the same spine.
	for _, port := range []string{"leaf0-spine0", "spine0-leaf0", "leaf1-spine0", "spine0-leaf1"} {
		s.set(port, Link{Down: true})
		was := s.tx(nil)
		all()
		if got := s.tx(was); got["leaf0-spine0"] != 0 || got["spine1-leaf1"] != 17 {
			t.Errorf("with %s down frames went by %v", port, got)
		}
		if s.portCounters("leaf0-spine0").Connected == strings.Contains(port, "leaf0") {
			t.Errorf("with %s down: %+v", port, s.portCounters("leaf0-spine0"))
		}
		s.set(port, Link{})
	}
	s.set("leaf0-spine0", Link{Down: true})
	s.set("leaf1-spine1", Link{Down: true})
	before := s.portCounters("p0").RxNowhere
	n[0].send(udpFrame(1, 0, 0xc000, 200))
	s.until("no path", "p0", func(c PortCounters) bool { return c.RxNowhere == before+1 })
	f := frame(station(2), station(0), 60, 6)
	n[0].send(f)
	n[2].expect(f)
	s.set(AllPorts, Link{})
	all()
}

func TestALinkBetweenSwitchesHasARate(t *testing.T) {
	const rate, frames, size = 20e6, 40, 1500
	s, n := racks(t, 2, Topology{Leaves: 2, Spines: 1, Rate: rate})
	all := make([][]byte, frames)
	for i := range all {
		all[i] = udpFrame(1, 0, 0xc000, size)
	}
	run := func() time.Duration {
		begin := time.Now()
		n[0].send(all...)
		n[1].expect(all...)
		return time.Since(begin)
	}
	const least = (frames - 1) * (size + 24) * 8 * time.Second / rate
	if d := run(); d < least {
		t.Errorf("%d frames of %d bytes took %v, want %v at least", frames, size, d, least)
	}
	// A link that is set slower is slower, and its rate comes back.
	s.set("leaf0-spine0", Link{Rate: rate / 4})
	if d := run(); d < 4*least {
		t.Errorf("at a quarter of the rate it took %v", d)
	}
	s.set("leaf0-spine0", Link{Rate: MaxRate})
	if d := run(); d < least {
		t.Errorf("a link faster than its cable: %v", d)
	}
	s.set(AllPorts, Link{})
	if c := s.portCounters("leaf0-spine0"); c.Rate != rate || c.Link.Impaired() {
		t.Errorf("%+v", c)
	}
}

func TestMarksOfALinkBetweenSwitches(t *testing.T) {
	const frames = 50
	s, n := racks(t, 2, Topology{Leaves: 2, Spines: 1, Rate: 50e6})
	s.set("leaf0-spine0", Link{ECN: RED{Min: 10_000, Max: 10_000, Probability: 1}})
	for range frames {
		n[0].send(udpFrame(1, 0, 0xc000, 1000))
	}
	marked := uint64(0)
	for range frames {
		f, err := n[1].receive()
		if err != nil {
			t.Fatal(err)
		}
		if f[minFrame+1]&ecnMask == ecnCE {
			marked++
		}
	}
	if c := s.portCounters("leaf0-spine0"); marked == 0 || marked == frames || c.ECNMarked != marked {
		t.Errorf("%d marks arrived: %+v", marked, c)
	}
}

// Pauses go back hop by hop from a slow node, and no frame is lost.
func TestPausesBetweenSwitches(t *testing.T) {
	const frames, size = 3000, 1500
	s, n := racks(t, 2, Topology{Leaves: 2, Spines: 1, Rate: 1e9})
	s.set(AllPorts, Link{PFC: PFC{High: 60_000, Low: 30_000}, Buffer: 100_000})
	s.set("p1", Link{Rate: 200e6, PFC: PFC{High: 60_000, Low: 30_000}, Buffer: 100_000})
	go func() {
		var all [][]byte
		for range frames {
			all = append(all, udpFrame(1, 0, 0xc000, size))
		}
		n[0].conn.Write(framed(all...))
	}()
	for i := range frames {
		if _, err := n[1].receive(); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	for _, c := range s.counters().Ports {
		if c.Drops.Total() > 0 {
			t.Errorf("%s dropped %+v", c.Name, c.Drops)
		}
		// A port counts the pauses of the sender at its other end.
		if held := slices.Contains([]string{"p0", "leaf1-spine0", "spine0-leaf0"}, c.Name); held != (c.Pauses > 0) {
			t.Errorf("%s counts %d pauses", c.Name, c.Pauses)
		}
	}
	// A port that is set down lets go of what it held.
	n[0].send(to(1, 0, 5, size)...)
	n[1].expect(to(1, 0, 5, size)...)
}

func TestCaptureBetweenSwitches(t *testing.T) {
	s, n := racks(t, 4, Topology{Leaves: 2, Spines: 1})
	link, all := s.startCapture(CaptureOptions{Port: "leaf0-spine0"}), s.startCapture(CaptureOptions{})
	there, back, near := udpFrame(1, 0, 0xc000, 100), udpFrame(0, 1, 0xc000, 110), udpFrame(2, 0, 0xc000, 120)
	n[0].send(there)
	n[1].expect(there)
	n[1].send(back)
	n[0].expect(back)
	n[0].send(near)
	n[2].expect(near)
	got, _ := link.end()
	var list []string
	for _, p := range got {
		list = append(list, fmt.Sprintf("%s:%d", p.Port, p.Length))
	}
	if want := []string{"spine0-leaf0:100", "leaf0-spine0:110"}; !slices.Equal(list, want) {
		t.Errorf("a link has %v, want %v", list, want)
	}
	got, stats := all.end()
	list = nil
	for _, p := range got {
		list = append(list, fmt.Sprintf("%s:%d", p.Port, p.Length))
	}
	if want := []string{"p0:100", "p1:110", "p0:120"}; !slices.Equal(list, want) || len(stats) != 4 {
		t.Errorf("all ports have %v, want %v; %v", list, want, stats)
	}
}

func TestTheDirectPathIsOffBetweenSwitches(t *testing.T) {
	told := make(chan bool, 8)
	s := start(t, 2, func(cfg *Config) {
		cfg.Topology, cfg.Direct = Topology{Leaves: 1, Spines: 1}, func(direct bool) { told <- direct }
	})
	s.set("p0", Link{Delay: time.Millisecond})
	s.set("p0", Link{})
	s.stop()
	if close(told); <-told || len(told) > 0 {
		t.Error("RDMA may be copied from memory to memory")
	}
}

func TestANodeThatInventsFlows(t *testing.T) {
	s, n := racks(t, 3, Topology{Leaves: 2, Spines: 2})
	const flows = flowsPerPort + 100
	for port := range uint16(flows) {
		f := udpFrame(1, 0, port, 100)
		n[0].send(f)
		n[1].expect(f)
	}
	f := udpFrame(1, 2, 7, 100)
	n[2].send(f)
	n[1].expect(f)
	fl, err := s.client.Flows(context.Background())
	if err != nil || len(fl.Flows) != flowsPerPort+1 || fl.Unlisted != flows-flowsPerPort {
		t.Errorf("%d flows, %d unlisted, %v", len(fl.Flows), fl.Unlisted, err)
	}
	// A silent flow makes room, but the search for one is not for each frame.
	var table flowTable
	p, flow := &port{}, Flow{Proto: protoUDP}
	for i := range flowsPerPort + 1 {
		flow.SrcPort = uint16(i)
		table.count(p, p, p, &flow, nil, 60, int64(i)+int64(time.Hour))
	}
	for i, want := range []uint64{2, 2, 2} {
		at := time.Hour + flowIdle + time.Second*time.Duration(1+i)
		if i == 0 {
			at = time.Hour + sweepEvery/2
		}
		table.count(p, p, p, &flow, nil, 60, int64(at))
		if table.unlisted != want || i > 0 && len(table.ports[p].all) != 1 {
			t.Errorf("step %d: %d unlisted, %d flows", i, table.unlisted, len(table.ports[p].all))
		}
	}
	if err := s.client.RemovePort(context.Background(), "p1"); err != nil {
		t.Fatal(err)
	}
	if fl, err = s.client.Flows(context.Background()); err != nil || len(fl.Flows) != 0 {
		t.Errorf("flows to a port that is gone: %v, %v", fl.Flows, err)
	}
}

func TestTopologiesThatAreRefused(t *testing.T) {
	for want, topology := range map[string]Topology{
		"0 leaves: want 1 to 16":        {Spines: 2},
		"-1 leaves":                     {Leaves: -1, Spines: 1},
		"17 leaves":                     {Leaves: 17, Spines: 1},
		"0 spines: want 1 to 16":        {Leaves: 2},
		"1000 spines":                   {Leaves: 2, Spines: 1000},
		"link: rate of 5 bit/s: want 0": {Leaves: 2, Spines: 2, Rate: 5},
	} {
		err := Run(t.Context(), Config{Control: filepath.Join(t.TempDir(), "control"), Topology: topology})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %s", topology, err, want)
		}
	}
	s := start(t, 1, func(cfg *Config) { cfg.Topology = Topology{Leaves: 2, Spines: 1} })
	ctx := context.Background()
	at := func(name string, leaf int) Port {
		p := s.port(name)
		p.Leaf = leaf
		return p
	}
	for want, err := range map[string]error{
		`add port "x" at leaf 2: want 0 to 1`: s.client.AddPort(ctx, at("x", 2)),
		`add port "y" at leaf -1`:             s.client.AddPort(ctx, at("y", -1)),
		`add port "leaf0-spine0": a link`:     s.client.AddPort(ctx, at("leaf0-spine0", 0)),
		`remove port "spine0-leaf1": it is`:   s.client.RemovePort(ctx, "spine0-leaf1"),
		`has no port "leaf0-spine7"`:          s.client.Capture(ctx, CaptureOptions{Port: "leaf0-spine7"}, nil),
		`it has leaf0-spine0, spine0-leaf0`:   s.client.SetLink(ctx, "leaf0-spine7", Link{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	one := start(t, 1, nil)
	if err := one.client.AddPort(ctx, Port{Name: "x", Path: one.port("x").Path, Leaf: 1}); err == nil ||
		!strings.Contains(err.Error(), "there is one switch") {
		t.Errorf("got %v", err)
	}
}
