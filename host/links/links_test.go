package links

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	from := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	for _, way := range []Way{Cable, Network} {
		g := greeting{Run: "x", Port: 7, Way: way}
		frame, err := g.frame(from)
		if err != nil || len(frame) < leastFrame || !bytes.Equal(frame[6:12], from) {
			t.Fatalf("frame % x, %v", frame, err)
		}
		if forwarded := bytes.Equal(frame[:6], broadcast); forwarded != (way == Network) {
			t.Errorf("%s goes to % x", way, frame[:6])
		}
		if got, ok := parseGreeting(frame); !ok || got != g {
			t.Errorf("read %+v, %v; want %+v", got, ok, g)
		}
		for n := range frame[:40] {
			if _, ok := parseGreeting(frame[:n]); ok {
				t.Errorf("a frame of %d bytes counts", n)
			}
		}
	}
	if _, err := (greeting{}).frame(nil); err == nil {
		t.Error("a port without an address sends")
	}
}

// A network is a set of wires, each with the sockets that hear each other on it.
type wires map[string][]string

type fakeSocket struct {
	name  string
	all   map[string]*fakeSocket
	cable wires // reached by a frame to the nearest bridge
	air   wires // reached by a broadcast
	inbox chan []byte
}

func (f *fakeSocket) Address() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, f.name[0]} }

func (f *fakeSocket) Send(frame []byte) error {
	to := f.cable[f.name]
	if bytes.Equal(frame[:6], broadcast) {
		to = f.air[f.name]
	}
	for _, name := range to {
		if s := f.all[name]; s != nil {
			s.inbox <- frame
		}
	}
	return nil
}

func (f *fakeSocket) Receive(deadline time.Time) ([]byte, error) {
	select {
	case frame := <-f.inbox:
		return frame, nil
	case <-time.After(time.Until(deadline)):
		return nil, nil
	}
}

func (f *fakeSocket) Close() error { return nil }

// fakePorts returns the sysfs of ports: up with a carrier, unless their name says otherwise.
func fakePorts(t *testing.T, names ...string) (*change.System, []Port) {
	t.Helper()
	s := &change.System{Root: t.TempDir()}
	var ports []Port
	for _, name := range names {
		files := map[string]string{"flags": "0x1003", "carrier": "1", "type": "1"}
		switch {
		case strings.HasSuffix(name, "-down"):
			files["flags"] = "0x1002"
		case strings.HasSuffix(name, "-out"):
			files["carrier"] = "0"
		case strings.HasSuffix(name, "-ib"):
			files["type"] = "32"
		}
		for file, text := range files {
			path := s.Path(netFile(name, file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(text+"\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		ports = append(ports, Port{Netdev: name, Joined: []Joint{}})
	}
	return s, ports
}

func TestAProbeTellsCablesFromNetworks(t *testing.T) {
	t.Parallel()
	s, ports := fakePorts(t, "a", "b", "c", "d", "e-down", "f-out", "g-ib")
	all := map[string]*fakeSocket{}
	p := &Probe{Wait: 10 * time.Millisecond, open: func(netdev string) (socket, error) {
		f := &fakeSocket{name: netdev, all: all, inbox: make(chan []byte, 100),
			cable: wires{"a": {"b"}, "b": {"a"}},
			// a and b are joined by a cable; c and d by a switch, and d hears itself.
			air: wires{"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c", "d"}}}
		all[netdev] = f
		return f, nil
	}}
	if err := p.Run(t.Context(), s, ports); err != nil {
		t.Fatal(err)
	}
	want := [][2]Joint{{{"a", Cable}, {"b", Cable}}, {{"c", Network}, {"d", Network}}}
	if diff := cmp.Diff(want, Joints(ports)); diff != "" {
		t.Errorf("joints (-want +got):\n%s", diff)
	}
	var reasons []string
	for _, p := range ports {
		reasons = append(reasons, p.Unprobed)
	}
	if diff := cmp.Diff([]string{"", "", "", "", "it is set down", "it has no carrier", "it is no Ethernet port"},
		reasons); diff != "" {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
}

// Frames of another probe at the same time, and damaged ones, join nothing.
func TestFramesOfOthersJoinNothing(t *testing.T) {
	t.Parallel()
	_, ports := fakePorts(t, "a", "b")
	x := newExchange(ports, nil)
	for _, g := range []greeting{{"another", 0, Cable}, {x.id, 1, Cable}, {x.id, -1, Cable}, {x.id, 2, Network}} {
		frame, err := g.frame(net.HardwareAddr{2, 0, 0, 0, 0, 1})
		if err != nil {
			t.Fatal(err)
		}
		x.arrived(1, frame)
	}
	x.arrived(1, nil)
	if x.note(); len(Joints(ports)) > 0 {
		t.Errorf("joined: %v", Joints(ports))
	}
}

// Ports that a probe has set up are down afterwards, also if it fails or is interrupted, and the journal is empty.
func TestWhatIsSetUpGoesDownAgain(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(string) (socket, error){
		"a probe": func(netdev string) (socket, error) {
			return &fakeSocket{name: netdev, inbox: make(chan []byte)}, nil
		},
		"a probe that fails": func(string) (socket, error) { return nil, errors.New("no frames today") },
	} {
		s, ports := fakePorts(t, "a-down", "b", "c-down")
		p := &Probe{Wait: time.Millisecond, Up: true, Journal: filepath.Join(t.TempDir(), "journal"), Kinds: Kinds()}
		raised := 0
		p.open = func(netdev string) (socket, error) {
			if text, _ := s.Value(netFile("a-down", "flags")); text == "0x1003" {
				raised++
			}
			return open(netdev)
		}
		err := p.Run(t.Context(), s, ports)
		if (err != nil) != (name == "a probe that fails") || raised == 0 {
			t.Errorf("%s: %v, %d sockets of a port that is up", name, err, raised)
		}
		for _, netdev := range []string{"a-down", "c-down"} {
			if text, err := s.Value(netFile(netdev, "flags")); text != "0x1002" {
				t.Errorf("%s: %s has flags %s, %v", name, netdev, text, err)
			}
		}
		if entries, err := change.ReadJournal(p.Journal, Kinds()); err != nil || len(entries) > 0 {
			t.Errorf("%s: the journal has %d entries, %v", name, len(entries), err)
		}
	}
}

// A rollback sets ports down that a killed probe has left up.
func TestAKilledProbeIsUndoneByARollback(t *testing.T) {
	t.Parallel()
	s, ports := fakePorts(t, "a-down")
	path := filepath.Join(t.TempDir(), "journal")
	j, err := change.Open(path, Kinds())
	if err != nil {
		t.Fatal(err)
	}
	p := &Probe{}
	if _, err := p.raise(t.Context(), s, j, ports); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil { // without the undo
		t.Fatal(err)
	}
	if j, err = change.Open(path, Kinds()); err != nil {
		t.Fatal(err)
	}
	if _, err := change.Rollback(t.Context(), s, j, nil); err != nil {
		t.Fatal(err)
	}
	if text, _ := s.Value(netFile("a-down", "flags")); text != "0x1002" {
		t.Errorf("flags %s", text)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
}

// A port that is down again, or gone, needs no undo.
func TestAPortThatOthersHaveSetDownStaysDown(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]func(path string) error{
		"set down": func(path string) error { return os.WriteFile(path, []byte("0x1002\n"), 0o644) },
		"gone":     func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		s, ports := fakePorts(t, "a-down")
		j, err := change.Open(filepath.Join(t.TempDir(), "journal"), Kinds())
		if err != nil {
			t.Fatal(err)
		}
		undo, err := (&Probe{}).raise(t.Context(), s, j, ports)
		if err != nil {
			t.Fatal(err)
		}
		if err := others(s.Path(netFile("a-down", "flags"))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(undo(), j.Close()); err != nil || len(j.Entries()) > 0 {
			t.Errorf("%s: %v, %d entries are left", name, err, len(j.Entries()))
		}
		if text, _ := s.ValueOr(netFile("a-down", "flags"), ""); text == "0x1003" {
			t.Errorf("%s: flags %s", name, text)
		}
	}
}

func TestVirtualFunctionsAndRepresentorsAreNoPorts(t *testing.T) {
	t.Parallel()
	pf := topology.PCIAddr{Bus: 0x41}
	h := &topology.Host{NICs: []topology.NIC{
		{Name: "NIC0", Ports: []topology.Netdev{
			{Name: "eno1", State: "up", PhysPort: "p0", SpeedMbps: new(int64(100_000))},
			{Name: "eno1_rep", PhysPort: "pf0vf3"}},
			Devices: []topology.RDMADevice{{Name: "mlx5_0", Ports: []topology.RDMAPort{{Number: 1,
				GIDs: []topology.GID{{Netdev: "eno1"}}}}}}},
		{Name: "NIC1", PF: &pf, Ports: []topology.Netdev{{Name: "eno1v0"}}},
	}}
	want := []Port{{NIC: "NIC0", Netdev: "eno1", RDMA: "mlx5_0", Mbps: new(int64(100_000)), Up: true,
		Joined: []Joint{}}}
	if diff := cmp.Diff(want, Of(h)); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

// lldp returns a frame of LLDP with TLVs, each of which is its type and its value.
func lldp(tlvs ...[]byte) []byte {
	b := append(append([]byte(nil), nearest...), 2, 0, 0, 0, 0, 1, 0x88, 0xcc)
	for _, v := range tlvs {
		b = append(b, v[0]<<1|byte((len(v)-1)>>8), byte(len(v)-1))
		b = append(b, v[1:]...)
	}
	return append(b, 0, 0)
}

func TestLLDPNamesTheOtherEnd(t *testing.T) {
	t.Parallel()
	mac := []byte{tlvChassis, chassisMAC, 0x02, 0, 0, 0, 0, 0x0a}
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"names": {lldp(mac, append([]byte{tlvPort, 5}, "Ethernet1/7"...), append([]byte{tlvSystem}, "leaf1"...)),
			"leaf1 Ethernet1/7"},
		"a port that is a MAC address, with a description": {lldp(mac, []byte{tlvPort, portMAC, 2, 0, 0, 0, 0, 9},
			append([]byte{tlvPortText}, "swp7"...)), "02:00:00:00:00:0a swp7"},
		"an address": {lldp([]byte{tlvChassis, chassisAddress, 1, 192, 0, 2, 7}, []byte{tlvPort, 7, '3'}),
			"192.0.2.7 3"},
		"no port":                             {lldp(mac), ""},
		"a TLV that is longer than the frame": {append(lldp(mac)[:20], 0xff), ""},
		"another frame":                       {make([]byte, 60), ""},
	} {
		got, ok := parseLLDP(c.frame)
		if ok != (c.want != "") || ok && got.String() != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, ok, c.want)
		}
	}
}

func FuzzLLDP(f *testing.F) {
	f.Add(lldp([]byte{tlvChassis, chassisMAC, 2, 0, 0, 0, 0, 1}, []byte{tlvPort, 7, '3'}))
	f.Add(lldp([]byte{tlvChassis, chassisAddress, 1}, []byte{tlvPort}))
	f.Fuzz(func(_ *testing.T, frame []byte) {
		n, _ := parseLLDP(frame)
		_ = n.String()
		parseGreeting(frame)
	})
}

func TestTheDaemonOfLLDPIsRead(t *testing.T) {
	t.Parallel()
	const text = `{"lldp":[{"interface":[{"name":"eno1","via":"LLDP","chassis":[{"id":[{"type":"mac","value":
"02:00:00:00:00:0a"}],"name":[{"value":"leaf1"}]}],"port":[{"id":[{"type":"ifname","value":"Ethernet1/7"}],
"descr":[{"value":"to node1"}]}]},{"name":"eno2","chassis":[{"id":[{"value":"02:00:00:00:00:0b"}]}],
"port":[{"id":[{"value":"02:00:00:00:00:0c"}],"descr":[{"value":"swp3"}]}]}]}]}`
	got, err := ParseLLDPCtl([]byte(text))
	want := map[string]Neighbour{"eno1": {System: "leaf1", Port: "Ethernet1/7", Chassis: "02:00:00:00:00:0a"},
		"eno2": {Port: "swp3", Chassis: "02:00:00:00:00:0b"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := ParseLLDPCtl([]byte(`{"lldp":[{}]}`)); err != nil || len(got) > 0 {
		t.Errorf("no neighbour: %v, %v", got, err)
	}
	if _, err := ParseLLDPCtl([]byte("not found")); err == nil {
		t.Error("an error message was read")
	}
	ports := []Port{{Netdev: "eno2"}, {Netdev: "eno3"}}
	Neighbours(ports, want)
	if ports[0].Neighbour.String() != "02:00:00:00:00:0b swp3" || ports[1].Neighbour != nil {
		t.Errorf("%+v", ports)
	}
}

// inside names the environment variable of the process in its own network namespace.
const inside = "RACKLESS_TEST_LINKS"

// TestAProbeOfRealPorts probes veth pairs in a network namespace: a cable, two ports at a bridge, a port that is down,
// and one whose other end is elsewhere.
func TestAProbeOfRealPorts(t *testing.T) {
	if os.Getenv(inside) != "" {
		probeNamespace(t)
		return
	}
	t.Parallel()
	// sysfs shows the network devices of the namespace in which it was mounted.
	script := `mount -t sysfs sysfs /sys && exec "$0" -test.run '^TestAProbeOfRealPorts$' -test.v`
	cmd := exec.CommandContext(t.Context(), "unshare", "--map-root-user", "--net", "--mount", "sh", "-c", script,
		os.Args[0])
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "unshare failed") || errors.Is(err, exec.ErrNotFound) {
		t.Skipf("no namespaces here: %s", out) // a container may forbid them
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func probeNamespace(t *testing.T) {
	add := func(link netlink.Link) {
		t.Helper()
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
	}
	link := func(name string) netlink.Link {
		t.Helper()
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for _, pair := range [][2]string{{"a0", "b0"}, {"c0", "c1"}, {"d0", "d1"}, {"e0", "f0"}, {"g0", "g1"}} {
		add(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: pair[0]}, PeerName: pair[1]})
	}
	add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
	for _, name := range []string{"c1", "d1"} {
		if err := netlink.LinkSetMaster(link(name), link("br0")); err != nil {
			t.Fatal(err)
		}
	}
	// g1 stays down, so g0 has no carrier; e0 is down until the probe.
	for _, name := range []string{"a0", "b0", "c0", "c1", "d0", "d1", "f0", "g0", "br0"} {
		if err := netlink.LinkSetUp(link(name)); err != nil {
			t.Fatal(err)
		}
	}
	s := &change.System{Root: "/"}
	probe := func(p *Probe) []Port {
		t.Helper()
		var ports []Port
		for _, name := range []string{"a0", "b0", "c0", "d0", "e0", "f0", "g0"} {
			ports = append(ports, Port{Netdev: name, Joined: []Joint{}})
		}
		p.Wait = 500 * time.Millisecond
		if err := p.Run(t.Context(), s, ports); err != nil {
			t.Fatal(err)
		}
		return ports
	}
	want := [][2]Joint{{{"a0", Cable}, {"b0", Cable}}, {{"c0", Network}, {"d0", Network}}}
	ports := probe(&Probe{})
	if diff := cmp.Diff(want, Joints(ports)); diff != "" {
		t.Errorf("joints (-want +got):\n%s", diff)
	}
	if ports[4].Unprobed != "it is set down" || ports[6].Unprobed != "it has no carrier" {
		t.Errorf("e0: %q, g0: %q", ports[4].Unprobed, ports[6].Unprobed)
	}
	journal := filepath.Join(t.TempDir(), "journal")
	ports = probe(&Probe{Up: true, Carrier: 5 * time.Second, Journal: journal, Kinds: Kinds()})
	want = append(want, [2]Joint{{"e0", Cable}, {"f0", Cable}})
	if diff := cmp.Diff(want, Joints(ports)); diff != "" {
		t.Errorf("joints of ports that were set up (-want +got):\n%s", diff)
	}
	if link("e0").Attrs().Flags&net.FlagUp != 0 || link("f0").Attrs().Flags&net.FlagUp == 0 {
		t.Error("e0 is not down again, or f0 is not up any more")
	}
	if entries, err := change.ReadJournal(journal, Kinds()); err != nil || len(entries) > 0 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
	if text, err := json.Marshal(ports); err != nil || !slices.Contains(Names(ports), "g0") {
		t.Errorf("%v\n%s", err, text)
	}
}
