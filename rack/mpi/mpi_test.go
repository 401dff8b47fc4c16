package mpi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/guest"
)

func node(name, device string, gid, cpus int) Node {
	return Node{Endpoint: bench.Endpoint{Node: name, Addr: netip.MustParseAddr("10.0.0.1"), Device: device,
		GIDIndex: gid},
		Subnet: netip.MustParsePrefix("10.0.0.1/24"), CPUs: cpus}
}

func TestRanksAreSpreadOverNodes(t *testing.T) {
	for _, c := range []struct {
		cpus           []int
		ranks, perNode int
		over           bool
		want           string
	}{
		{[]int{1, 1}, 0, 0, false, "[1 1]"},
		{[]int{4, 2}, 0, 0, false, "[4 2]"},
		{[]int{4, 2}, 0, 1, false, "[1 1]"},
		{[]int{4, 2}, 3, 0, false, "[3]"},
		{[]int{4, 2, 2}, 5, 0, false, "[4 1]"},
		{[]int{1, 1}, 3, 0, false, "3 ranks on 2 nodes, which take 2 (2 CPUs): --oversubscribe"},
		{[]int{1, 1}, 3, 0, true, "[2 1]"},
		{[]int{1, 1}, 0, 2, false, "2 ranks on node n0, which has 1 CPU: give it more in the lab file (cpus: 2)"},
		{[]int{1, 1}, 0, 2, true, "[2 2]"},
		{[]int{1, 1}, 5, 2, true, "5 ranks on 2 nodes, which take 4"},
		{[]int{1}, -1, 0, true, "negative"},
		{nil, 0, 0, false, "no nodes"},
	} {
		o := Options{Ranks: c.ranks, PerNode: c.perNode, Oversubscribe: c.over, Program: []string{"p"}}
		for i, n := range c.cpus {
			o.Nodes = append(o.Nodes, node(fmt.Sprint("n", i), "mlx5_0", 3, n))
		}
		slots, err := o.slots()
		got := fmt.Sprint(slots)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) && !strings.Contains(got, c.want) || (err == nil) != (c.want[0] == '[') {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

const (
	openMPI4 = "program yes\nmpirun mpirun.openmpi\nversion mpirun (Open MPI) 4.1.4\nversion \n" +
		"version Report bugs to http://www.open-mpi.org/community/help/\nucx # UCT version=1.13.1 revision 09f27c0\n"
	mpich = "program yes\nmpirun mpirun.mpich\nversion HYDRA build details:\n" +
		"version     Version:                                 4.0.2\nversion     Release Date:  Thu Apr  7 12:34:45 " +
		"CDT 2022\n" +
		"ucx # Library version: 1.18.1\n"
)

func TestCommands(t *testing.T) {
	cards := []Node{node("a", "mlx5_0", 3, 2), node("b", "mlx5_1", 3, 1)}
	soft := []Node{node("a", "rxe0", 1, 1), node("b", "rxe0", 1, 1)}
	mixed := []Node{node("a", "rxe0", 1, 1), node("b", "mlx5_0", 3, 1)}
	for _, c := range []struct {
		says   string
		asked  Transport
		nodes  []Node
		slots  []int
		chosen Transport
		want   []string // in this order
	}{
		{openMPI4, Auto, cards, []int{2, 1}, UCX, []string{"mpirun.openmpi --allow-run-as-root --host a:2,b:1 -np 3",
			"oob_tcp_if_include 10.0.0.0/24 --rankfile FILE --mca pml ucx",
			"-x UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1", "-x UCX_IB_GID_INDEX=3 prog -v"}},
		{openMPI4, Auto, soft, []int{1, 1}, OFI, []string{"--mca pml cm --mca mtl ofi", "FI_UNIVERSE_SIZE=16 prog -v"}},
		{strings.ReplaceAll(openMPI4, "4.1.4", "5.0.7"), TCP, soft, []int{1, 1}, TCP, []string{
			"--bind-to core --mca pml ob1", "prog -v"}},
		{openMPI4, UCX, soft, []int{1, 1}, UCX, []string{"--mca pml ucx", "UCX_IB_GID_INDEX=1 prog -v"}},
		{openMPI4, TCP, soft, []int{2, 1}, TCP, []string{"--bind-to none --oversubscribe --mca pml ob1", "prog -v"}},
		{openMPI4, UCX, mixed, []int{1, 1}, UCX, []string{"UCX_NET_DEVICES=mlx5_0:1,rxe0:1", "sm prog -v"}},
		{mpich, Auto, soft, []int{1, 1}, OFI, []string{"env HOME=/root mpirun.mpich -launcher ssh ",
			"-hosts a:1,b:1 -n 2 -bind-to core ",
			"-genv FI_PROVIDER verbs;ofi_rxm -genv FI_UNIVERSE_SIZE 16 -genv MPIR_CVAR_CH4_NETMOD ofi prog -v"}},
		{mpich, TCP, cards, []int{1, 1}, TCP, []string{"ofi -genv FI_PROVIDER tcp;ofi_rxm prog -v"}},
		{mpich + "device ch4:ucx\n", TCP, cards, []int{1, 1}, TCP, []string{
			"-bind-to core -genv UCX_TLS tcp,self,sm -genv UCX_NET_DEVICES  prog -v"}},
		{mpich, UCX, cards, []int{1, 1}, UCX, []string{"-genv MPIR_CVAR_CH4_NETMOD ucx prog -v"}},
	} {
		p, found := parseProbe([]byte(c.says))
		if !found {
			t.Errorf("no program in %q", c.says)
		}
		probed := []probe{p, p}
		chosen := choose(c.asked, c.nodes, probed)
		ranks := ""
		if p.takesRankfile() && !crowded(c.nodes, c.slots) {
			ranks = (&Options{Lab: "x", Nodes: c.nodes}).rankfile(c.slots)
		}
		got := strings.Join(command(chosen, c.nodes, c.slots, p, ranks, nil, []string{"prog", "-v"}), " ")
		got = strings.ReplaceAll(got, rankfilePath(ranks), "FILE")
		rest := got
		for _, want := range c.want {
			i := strings.Index(rest, want)
			if i < 0 {
				t.Errorf("%s on %s:\n%s\nlacks %s", c.asked, c.nodes[0].Device, got, want)
				break
			}
			rest = rest[i+len(want):]
		}
		if chosen != c.chosen || rest != "" {
			t.Errorf("%s became %s, want %s; left over: %s", c.asked, chosen, c.chosen, rest)
		}
	}
}

func TestVersionsThatARunAsksFor(t *testing.T) {
	o := Options{Nodes: []Node{node("a", "rxe0", 1, 1), node("b", "mlx5_0", 3, 1), node("c", "rxe0", 1, 1)}}
	for transport, want := range map[Transport]string{Auto: "launcher ucx,,ucx", "": "launcher ucx,,ucx",
		OFI: "launcher ,,"} {
		o.Transport = transport
		var got []string
		for _, n := range o.Nodes {
			got = append(got, o.versions(n))
		}
		if s := strings.Join(got, ","); s != want {
			t.Errorf("%q: got %q, want %q", transport, s, want)
		}
	}
}

type fake struct {
	mu   sync.Mutex
	rdma uint64 // sent by each node
	tcp  uint64 // bytes
	exit int
	runs int
	says string // "" means openMPI4
	lack string // a node without the program
	dead string
	ends string // a node that ends during the run

	streamed []string
}

func (f *fake) Alive(_ context.Context, node string) error {
	if node == f.ends {
		return fmt.Errorf("node %s has ended", node)
	}
	return nil
}

func (f *fake) Run(_ context.Context, node string, c guest.Command) (guest.Result, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node == f.dead && f.runs > 0 {
		return guest.Result{}, errors.New("b: the node does not answer")
	}
	text := cmp.Or(f.says, openMPI4)
	for file, n := range f.counters(c.Argv[len(c.Argv)-1]) {
		text += fmt.Sprintln(file, n)
	}
	if node == f.lack {
		text = strings.Replace(text, "program yes\n", "", 1)
	}
	return guest.Result{Stdout: []byte(text)}, nil
}

func (f *fake) counters(nic string) map[string]uint64 {
	const port = "/sys/class/infiniband/mlx5_0/ports/1/counters/"
	return map[string]uint64{port + "port_xmit_packets": 100 + uint64(f.runs)*f.rdma,
		port + "port_rcv_packets": uint64(f.runs) * f.rdma, nic: uint64(f.runs) * f.tcp}
}

func (f *fake) ReadFile(_ context.Context, node, path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if node == f.dead && f.runs > 0 {
		return nil, errors.New("b: the node does not answer")
	}
	return fmt.Appendln(nil, f.counters("/sys/class/net//statistics/tx_bytes")[path]), nil
}

func (f *fake) Stream(ctx context.Context, _ string, c guest.Command, stdout, _ io.Writer) (int, error) {
	f.streamed = c.Argv
	f.runs++
	if f.ends != "" {
		<-ctx.Done()
		return 137, ctx.Err()
	}
	fmt.Fprintln(stdout, "out")
	return f.exit, nil
}

func TestRunsProveWhatCarriedThem(t *testing.T) {
	for name, c := range map[string]struct {
		fake      *fake
		transport Transport
		want      string // of the error
		exit      int
	}{
		"RDMA":                  {&fake{rdma: 9, tcp: 50e6}, Auto, "", 0},
		"fell back":             {&fake{tcp: 50e6}, Auto, "no RDMA packet was sent by any node, and ", 0},
		"TCP, as asked":         {&fake{tcp: 50e6}, TCP, "", 0},
		"no messages":           {&fake{tcp: 100e3}, Auto, "", 0},
		"a program that failed": {&fake{tcp: 50e6, exit: 7}, Auto, "", 7},
		"MPICH without libfabric": {&fake{says: mpich + "device ch4:ucx\n"}, OFI,
			"a: this MPICH has no libfabric (ch4:ucx)", 0},
		"a node without it":         {&fake{lack: "b"}, Auto, "b: no program prog: it has to be on all nodes", 0},
		"a node that dies in a run": {&fake{ends: "b"}, Auto, "a node ended during the run: node b has ended", 0},
		"a node that died": {&fake{dead: "b", exit: 1}, Auto, "the run ended with status 1, and then: b: the node",
			0},
	} {
		var out bytes.Buffer
		var res *Result
		var err error
		synctest.Test(t, func(t *testing.T) {
			res, err = Run(t.Context(), c.fake, Options{Nodes: []Node{node("a", "mlx5_0", 3, 1),
				node("b", "mlx5_0", 3, 1)}, Transport: c.transport, Program: []string{"prog"}, Stdout: &out})
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && (res.Exit != c.exit || res.Ranks != 2 || out.String() != "out\n" ||
			res.Nodes[1].PacketsSent != c.fake.rdma || res.Launcher != "mpirun (Open MPI) 4.1.4") {
			t.Errorf("%s: %+v, printed %q", name, res, out.String())
		}
		if errors.Is(err, ErrFellBack) != (name == "fell back") || name == "RDMA" && !strings.Contains(res.Text(),
			"2 ranks on 2 nodes by ucx, mpirun (Open MPI) 4.1.4\na mlx5_0: RDMA sent 9, received 9 packets; ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNodesOfALab(t *testing.T) {
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes: {a: {cpus: 2}, b: {}, c: {vfs: 1}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l.Nodes[2].NICs = nil
	at := func(name string) (bench.Endpoint, error) { return bench.Endpoint{Node: name}, nil }
	for names, want := range map[string]string{"": "node c has no NIC", "b a": "b a", "a a": "named twice",
		"d": "node d: lab x has none of that name; it has a, b, c"} {
		nodes, err := NodesOf(l, strings.Fields(names), at)
		var got []string
		for _, n := range nodes {
			got = append(got, n.Node)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, want) {
			t.Errorf("%q: got %s, want %s", names, text, want)
		}
		if names == "b a" && (nodes[1].CPUs != 2 || !slices.Equal(got, []string{"b", "a"})) {
			t.Errorf("got %+v", nodes)
		}
	}
}

func TestHostfiles(t *testing.T) {
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes: {a: {cpus: 2}, b: {cpus: 2}, c: {cpus: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) (bench.Endpoint, error) { return bench.Endpoint{Node: name}, nil }
	for text, want := range map[string]string{
		"# two\nc slots=1 max_slots=2\n\na:2 # both\nb\n": "c1 a2 b0",
		"a slots=3":         "",
		"a\nd slots=1\n":    "hosts: node d: lab x has none of that name; it has a, b, c",
		"a\na\n":            "hosts: node a is named twice",
		"a\nb slots=none\n": `hosts: line 2: "none" ranks on b: want a number of 1 to 4096`,
		"a:0\n":             `hosts: line 1: "0" ranks on a`,
		"a:1 slots=2\n":     `hosts: line 1: "slots=2": write NODE, NODE slots=N or NODE:N`,
		"a cpus=2\n":        `hosts: line 1: "cpus=2": write`,
		"# nothing\n":       "hosts: no node is in it",
		"\x7fELF\x00\x01\n": "hosts: node \x7fELF",
	} {
		nodes, err := NodesOfFile(l, "hosts", []byte(text), at)
		var got []string
		for _, n := range nodes {
			got = append(got, fmt.Sprint(n.Node, n.Slots))
		}
		line := strings.Join(got, " ")
		if err != nil {
			line = err.Error()
		}
		if !strings.HasPrefix(line, want) {
			t.Errorf("%q: %s, want %s", text, line, want)
		}
	}
	nodes, _ := NodesOfFile(l, "hosts", []byte("a slots=3"), at)
	if _, err := (&Options{Nodes: nodes, Program: []string{"x"}}).slots(); err == nil ||
		!strings.Contains(err.Error(), "3 ranks on node a, which has 2 CPUs") {
		t.Error(err)
	}
}

func FuzzHostfile(f *testing.F) {
	f.Add([]byte("a slots=2\nb:1 # x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if names, slots, err := parseHostfile(text); err == nil && (len(names) == 0 || len(names) != len(slots)) {
			t.Errorf("%q, %v", names, slots)
		}
	})
}

func FuzzProbe(f *testing.F) {
	f.Add([]byte(openMPI4 + "sent_pkts 5\n"))
	f.Add([]byte(mpich))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, _ := parseProbe(text)
		_, _ = p.oldUCX(), p.hydra()
	})
}
