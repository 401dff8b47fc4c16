package checks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// recorded output is described in testdata/README.md.
func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func testLab(t *testing.T, nodes, nics int) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("test.yaml", fmt.Appendf(nil, "name: pair\nnodes:\n  vm: {count: %d, nics: %d}\n", nodes, nics))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

type fakeLab struct {
	lab *lab.Lab

	mu    sync.Mutex
	nodes map[string]*fakeNode
	calls []string       // "node program", in order
	pairs map[string]int // running ibv_rc_pingpong, by node
	clash []string       // ran twice at a time

	run func(node string, argv []string) (bench.Output, error) // replaces the programs, if set
}

// A fakeNode's nil functions answer like a healthy node.
type fakeNode struct {
	facts    *facts.Node
	factsErr error
	settles  time.Time // until then eth0's operstate is "unknown" in spite of a carrier
	devinfo  func(dev string) (bench.Output, error)
	fping    func(addrs []string) (bench.Output, error)
	server   func(ctx context.Context) (bench.Output, error)
	client   func(ctx context.Context, server string) (bench.Output, error)
	adapters string        // output of adapterScript
	wrong    string        // a file that arrives corrupted
	hangs    bool          // files do not arrive
	listens  chan struct{} // by the server
}

// newFakeLab copies the recorded node, with one device per NIC.
func newFakeLab(t *testing.T, l *lab.Lab) *fakeLab {
	t.Helper()
	f := &fakeLab{lab: l, nodes: map[string]*fakeNode{}, pairs: map[string]int{}}
	text := recorded(t, "facts.txt")
	for i, n := range l.Nodes {
		own := ""
		for k, nic := range n.NICs {
			mac := strings.Split(nic.MAC, ":")
			guid := mac[0] + mac[1] + ":" + mac[2] + "ff:fe" + mac[3] + ":" + mac[4] + mac[5]
			four := nic.Addr.Addr().As4()
			own += strings.NewReplacer(
				"hostname vm00", "hostname "+n.Name, "machine-id ", fmt.Sprintf("machine-id %d", i), "uuid ",
				fmt.Sprintf("uuid %d", i),
				"eth0", nic.Name, "rxe0", "rxe"+strconv.Itoa(k), "52:54:00:ca:ee:be", nic.MAC, "5054:00ff:feca:eebe",
				guid,
				"ffff:0a00:0001", fmt.Sprintf("ffff:%02x%02x:%02x%02x", four[0], four[1], four[2], four[3]),
			).Replace(text)
		}
		parsed, err := facts.Parse([]byte(own))
		if err != nil {
			t.Fatal(err)
		}
		f.nodes[n.Name] = &fakeNode{facts: parsed, listens: make(chan struct{})}
	}
	return f
}

func nicAt(n *facts.Node, name string) int {
	return slices.IndexFunc(n.NICs, func(nic topology.NIC) bool { return nic.Has(name) })
}

func rdmaDev(n *facts.Node, name string) *topology.RDMADevice {
	_, d := n.RDMADevice(name)
	return d
}

func port1(n *facts.Node, rdma string) *topology.RDMAPort { return rdmaDev(n, rdma).Port(1) }

func removeNetdev(n *facts.Node, name string) { n.NICs[nicAt(n, name)].Ports = nil }

func removeRDMA(n *facts.Node, name string) {
	for i := range n.NICs {
		n.NICs[i].Devices = slices.DeleteFunc(n.NICs[i].Devices, func(d topology.RDMADevice) bool {
			return d.Name == name
		})
	}
}

func (f *fakeLab) Facts(ctx context.Context, node string) (*facts.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.nodes[node]
	if n.factsErr != nil {
		return nil, n.factsErr
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := *n.facts
	if time.Now().Before(n.settles) {
		d := *c.Netdev("eth0")
		d.State = "unknown"
		c.NICs = slices.Clone(c.NICs)
		c.NICs[nicAt(&c, "eth0")].Ports = []topology.Netdev{d}
	}
	c.Counters = map[string]facts.Counters{}
	for name, d := range n.facts.Counters {
		c.Counters[name] = facts.Counters{HW: maps.Clone(d.HW), Port: maps.Clone(d.Port)}
	}
	return &c, nil
}

func (n *fakeNode) fetch(files []string) (bench.Output, error) {
	var out bench.Output
	for _, f := range files {
		sum := "0" + f[len(f)-1:]
		if f == n.wrong {
			sum = "ff"
		}
		out.Stdout = fmt.Appendf(out.Stdout, "%s  %s\n", sum, f)
	}
	return out, nil
}

func (f *fakeLab) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	f.mu.Lock()
	n := f.nodes[node]
	f.calls = append(f.calls, node+" "+argv[0])
	f.mu.Unlock()
	if ctx.Err() != nil {
		return bench.Output{}, context.Cause(ctx)
	}
	if f.run != nil {
		return f.run(node, argv)
	}
	switch argv[0] {
	case "ibv_devinfo":
		if n.devinfo != nil {
			return n.devinfo(argv[2])
		}
		return bench.Output{Stdout: []byte("active_mtu: " + strconv.Itoa(f.lab.Fabric.RDMAPayload()) + " (5)\n")}, nil
	case "fping":
		addrs := argv[slices.Index(argv, "-b")+2:]
		if n.fping != nil {
			return n.fping(addrs)
		}
		return bench.Output{Stdout: []byte(strings.Join(addrs, " is alive\n") + " is alive\n")}, nil
	case "busybox": // httpd serves until killed
		<-ctx.Done()
		return bench.Output{}, context.Cause(ctx)
	case "sh":
		if strings.HasPrefix(argv[2], "md5sum") {
			return bench.Output{Stdout: []byte("0a  /usr/bin/a\n0b  /usr/bin/b\n")}, nil
		}
		if strings.Contains(argv[2], "wget") && n.hangs {
			<-ctx.Done()
			return bench.Output{}, context.Cause(ctx)
		}
		if strings.Contains(argv[2], "wget") {
			return n.fetch(argv[5:])
		}
		return bench.Output{Stdout: []byte(n.adapters)}, nil
	case "ibv_rc_pingpong":
		return f.pingpong(ctx, node, n, argv)
	}
	return bench.Output{}, fmt.Errorf("%s: %s: no such program", node, argv[0])
}

func (f *fakeLab) pingpong(ctx context.Context, node string, n *fakeNode, argv []string) (bench.Output, error) {
	defer f.enter(node)()
	addr, err := netip.ParseAddr(argv[len(argv)-1])
	if err != nil || !addr.Is4() {
		if n.server != nil {
			return n.server(ctx)
		}
		close(n.listens)
		<-ctx.Done()
		return bench.Output{}, context.Cause(ctx)
	}
	peer := f.owner(addr)
	if n.client != nil {
		return n.client(ctx, peer)
	}
	select {
	case <-f.nodes[peer].listens:
	default:
		return bench.Output{ExitCode: 1, Stderr: []byte("Couldn't connect to " + addr.String() + ":18700\n")}, nil
	}
	f.count(node, 41)
	f.count(peer, 41)
	return bench.Output{Stdout: []byte("163840 bytes in 0.15 seconds = 8.86 Mbit/sec\n20 iters in 0.15 seconds = " +
		"7397.05 usec/iter\n")}, nil
}

func (f *fakeLab) enter(node string) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pairs[node]++
	if f.pairs[node] > 1 {
		f.clash = append(f.clash, node)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.pairs[node]--
	}
}

func (f *fakeLab) count(node string, packets uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.nodes[node].facts.Counters {
		if _, soft := d.HW[counterSent]; soft {
			d.HW[counterSent] += packets
			d.HW[counterReceived] += packets
		} else {
			d.Port[portCounterSent] += packets
			d.Port[portCounterRcved] += packets
		}
	}
}

func (f *fakeLab) owner(addr netip.Addr) string {
	for _, n := range f.lab.Nodes {
		if slices.Contains(addrsOf(n), addr) {
			return n.Name
		}
	}
	return ""
}

func prints(code int, stdout, stderr string) (bench.Output, error) {
	return bench.Output{ExitCode: code, Stdout: []byte(stdout), Stderr: []byte(stderr)}, nil
}

var errSilent = errors.New("vm01: the guest agent does not answer within 5s")

// checkLab fails the test if a finding breaks the common rules.
func checkLab(t *testing.T, f *fakeLab, only ...string) []finding.Finding {
	t.Helper()
	got, err := Lab(t.Context(), f.lab, f, only, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, got)
	return got
}

func wellFormed(t interface{ Errorf(string, ...any) }, got []finding.Finding) {
	for _, g := range got {
		if c, ok := finding.Find(g.Code); !ok || c.Name != g.ID {
			t.Errorf("code %q is not that of %s", g.Code, g.ID)
		}
		if !slices.Contains(finding.Names(), g.ID) || g.Subject == "" || g.Title == "" || g.Have == "" {
			t.Errorf("not filled in: %+v", g)
		}
		switch g.Status {
		case finding.OK:
			if g.Fix != "" {
				t.Errorf("ok with a fix: %+v", g)
			}
		case finding.Failed, finding.Unknown:
			if g.Fix == "" || g.Evidence == "" {
				t.Errorf("not ok without fix or evidence: %+v", g)
			}
		default:
			t.Errorf("status %q: %+v", g.Status, g)
		}
	}
}

// faults has lines of id, subject, status, have and fix.
func faults(all []finding.Finding) []string {
	var out []string
	for _, f := range all {
		if f.Status != finding.OK {
			out = append(out, fmt.Sprintf("%s | %s | %s | %s | %s", f.ID, f.Subject, f.Status, f.Have, f.Fix))
		}
	}
	return out
}
