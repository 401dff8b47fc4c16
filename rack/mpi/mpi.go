// Package mpi runs MPI programs on a lab's nodes, over the transport that fits their devices, and proves with the
// counters of these devices that the messages used it.
package mpi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
)

// A Transport carries messages between nodes.
type Transport string

// The transports.
const (
	Auto Transport = "auto" // UCX, or OFI if a node's UCX cannot use its device
	UCX  Transport = "ucx"
	OFI  Transport = "ofi" // libfabric
	TCP  Transport = "tcp"
	// RDMA is for a program with its own library for the devices. MPI starts it over TCP, so that the packets of the
	// devices are the program's.
	RDMA Transport = "rdma"
)

// Transports are in the order of help and errors.
func Transports() []string { return []string{string(Auto), string(UCX), string(OFI), string(TCP)} }

// Options select the program and its nodes.
type Options struct {
	Nodes   []Node
	Ranks   int // 0 means as many as the nodes take
	PerNode int // 0 means one for each CPU
	// Oversubscribe allows more ranks than CPUs.
	Oversubscribe bool
	Transport     Transport
	Library       string   // one of bench.GroupLibraries; "" means the first node's
	Program       []string // with arguments
	Env           []string // of all ranks, as NAME=VALUE
	Lab           string
	// Plan, of nodes on a host, binds the ranks to cores. If nil, the nodes are emulated.
	Plan  *plan.Plan
	Stdin []byte
	// Within, if set, returns a command that runs the launcher's.
	Within func(argv []string) []string
	Stdout io.Writer
	Stderr io.Writer
}

// A Node is a node with ranks.
type Node struct {
	bench.Endpoint
	Subnet netip.Prefix // of its address
	NIC    string       // network device with the address
	CPUs   int
	Slots  int // ranks by a hostfile; 0 means Options.PerNode
}

// A Runner runs commands on nodes, like a *rack.Rack.
type Runner interface {
	// Alive returns why a node has ended, or nil, without disturbing it.
	Alive(ctx context.Context, node string) error
	Run(ctx context.Context, node string, c guest.Command) (guest.Result, error)
	ReadFile(ctx context.Context, node, path string) ([]byte, error)
	Stream(ctx context.Context, node string, c guest.Command, stdout, stderr io.Writer) (exit int, err error)
}

// A Result is a run that ended.
type Result struct {
	Exit      int       `json:"exit"` // of the launcher: that of the first failed rank
	Ranks     int       `json:"ranks"`
	Launcher  string    `json:"launcher"` // "mpirun (Open MPI) 4.1.4"
	Command   []string  `json:"command"`
	Transport Transport `json:"transport"`
	Nodes     []Traffic `json:"nodes"`
}

// Traffic is a node's in a run.
type Traffic struct {
	Node            string `json:"node"`
	Device          string `json:"device"`
	PacketsSent     uint64 `json:"packets_sent"` // by RDMA
	PacketsReceived uint64 `json:"packets_received"`
	BytesSent       uint64 `json:"bytes_sent"` // with soft RoCE
}

// ErrFellBack is returned for a run that should have used RDMA, and did not.
var ErrFellBack = errors.New("no RDMA packet was sent")

// quiet is the largest number of bytes per rank that the network devices may send to start a program without messages
// over ssh.
const quiet = 256 << 10

// Run waits for a program's end. With ErrFellBack, it also returns the result.
func Run(ctx context.Context, r Runner, o Options) (*Result, error) {
	slots, err := o.slots()
	if err != nil {
		return nil, err
	}
	nodes := o.Nodes[:len(slots)]
	probed, err := onEach(nodes, func(n Node) (probe, error) {
		return probeNode(ctx, r, n, o.versions(n), o.Program[0], o.Library)
	})
	if err != nil {
		return nil, err
	}
	if p := probed[0]; o.Library != "" && p.hydra() != (o.Library == "mpich") {
		return nil, fmt.Errorf("%s: no %s: %s is %q", nodes[0].Node, o.Library, p.program, p.launcher)
	} else if p.hydra() && o.Transport == RDMA {
		return nil, fmt.Errorf("%s: the program's own library needs Open MPI to start it", nodes[0].Node)
	}
	res := &Result{Transport: choose(o.Transport, nodes, probed), Launcher: probed[0].launcher}
	if p := probed[0]; res.Transport == OFI && p.lacksOFI() {
		why := ""
		if o.Transport != OFI {
			why = ", and its UCX gives up on soft RoCE: have ConnectX NICs (nic: connectx-5), start Open MPI, " +
				"or use TCP"
		}
		return nil, fmt.Errorf("%s: this MPICH has no libfabric (%s)%s", nodes[0].Node, p.device, why)
	}
	res.Ranks += lists.Sum(slots, func(s int) int { return s })
	ranks := ""
	if probed[0].takesRankfile() && !crowded(nodes, slots) {
		ranks = o.rankfile(slots)
	}
	res.Command = command(res.Transport, nodes, slots, probed[0], ranks, o.Env, o.Program)
	run := res.Command
	if o.Within != nil {
		run = o.Within(run)
	}
	if ranks != "" {
		run = writing(ranks, run)
	}
	if res.Exit, err = stream(ctx, r, nodes, guest.Command{Argv: run, Stdin: o.Stdin, MaxPoll: endPoll}, o.Stdout,
		o.Stderr); err != nil {
		return nil, err
	}
	res.Nodes, err = onEach(nodes, func(n Node) (Traffic, error) {
		return probed[slices.Index(nodes, n)].since(ctx, r, n)
	})
	if err != nil {
		return nil, fmt.Errorf("the run ended with status %d, and then: %w", res.Exit, err)
	}
	return res, res.proof()
}

// endPoll is long: each check costs the first node a few milliseconds.
const endPoll = 100 * time.Millisecond

const lifePause = time.Second

// stream stops the command when a node ends: ranks wait forever for a missing one.
func stream(ctx context.Context, r Runner, nodes []Node, c guest.Command, stdout, stderr io.Writer) (int, error) {
	ctx, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end(nil)
	watch.Go(func() {
		for wait.For(ctx, lifePause) == nil {
			for _, n := range nodes {
				if err := r.Alive(ctx, n.Node); err != nil && ctx.Err() == nil {
					end(fmt.Errorf("a node ended during the run: %w", err))
				}
			}
		}
	})
	exit, err := r.Stream(ctx, nodes[0].Node, c, stdout, stderr)
	if ctx.Err() != nil {
		return exit, context.Cause(ctx)
	}
	return exit, err
}

func (res *Result) proof() error {
	if res.Transport == TCP || len(res.Nodes) < 2 || res.Exit != 0 {
		return nil
	}
	bytes := uint64(0)
	for _, n := range res.Nodes {
		if n.PacketsSent > 0 {
			return nil
		}
		bytes += n.BytesSent
	}
	if bytes < quiet*uint64(res.Ranks) {
		return nil
	}
	return fmt.Errorf("%w by any node, and %s went by TCP: the library fell back", ErrFellBack, words.Bytes(bytes))
}

// Text has a line for the run and for each node.
func (res *Result) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s on %s by %s, %s\n", words.Count(res.Ranks, "rank"), words.Count(len(res.Nodes), "node"),
		res.Transport, res.Launcher)
	for _, n := range res.Nodes {
		fmt.Fprintf(&b, "%s %s: RDMA sent %d, received %d packets; network device sent %s\n", n.Node, n.Device,
			n.PacketsSent, n.PacketsReceived, words.Bytes(n.BytesSent))
	}
	return b.String()
}

// slots leaves out nodes at the end without ranks.
func (o *Options) slots() ([]int, error) {
	if len(o.Nodes) == 0 || len(o.Program) == 0 {
		return nil, errors.New("no nodes or no program")
	}
	if o.PerNode < 0 || o.Ranks < 0 {
		return nil, errors.New("a number of ranks is negative")
	}
	var slots []int
	room, cpus := 0, 0
	for _, n := range o.Nodes {
		s := cmp.Or(n.Slots, o.PerNode, n.CPUs)
		if s > n.CPUs && !o.Oversubscribe {
			return nil, fmt.Errorf("%d ranks on node %s, which has %s: give it more in the lab file (cpus: %d); "+
				"rackless mpirun runs them all the same with --oversubscribe", s, n.Node, words.Count(n.CPUs, "CPU"), s)
		}
		slots, room, cpus = append(slots, s), room+s, cpus+n.CPUs
	}
	want := cmp.Or(o.Ranks, room)
	if want > room && (o.PerNode > 0 || !o.Oversubscribe) {
		return nil, fmt.Errorf("%d ranks on %s, which take %d (%s): --oversubscribe runs more than one on a CPU", want,
			words.Count(len(o.Nodes), "node"), room, words.Count(cpus, "CPU"))
	}
	for i := 0; want > room; i, room = (i+1)%len(slots), room+1 {
		slots[i]++
	}
	for i := range slots {
		slots[i] = min(slots[i], want)
		if want -= slots[i]; want == 0 {
			return slots[:i+1], nil
		}
	}
	return slots, nil
}

// versions selects the launcher's if it starts on the node, and UCX's if it may not work with the device.
func (o *Options) versions(n Node) string {
	v := ""
	if n.Node == o.Nodes[0].Node {
		v = "launcher "
	}
	if (o.Transport == Auto || o.Transport == "") && soft(n) {
		v += "ucx"
	}
	return v
}

func soft(n Node) bool { return strings.HasPrefix(n.Device, "rxe") }

func choose(asked Transport, nodes []Node, probed []probe) Transport {
	if asked != Auto && asked != "" {
		return asked
	}
	for i, n := range nodes {
		if soft(n) && probed[i].oldUCX() {
			return OFI
		}
	}
	return UCX
}

// command binds ranks to the cores in order if rankfile is "".
func command(t Transport, nodes []Node, slots []int, p probe, rankfile string, env, program []string) []string {
	env = append(environment(t, nodes, slots), env...)
	var hosts []string
	ranks := 0
	for i, n := range nodes {
		hosts = append(hosts, fmt.Sprintf("%s:%d", n.Node, slots[i]))
		ranks += slots[i]
	}
	// The guest agent sets no home, in which Open MPI 5 keeps its session.
	argv := []string{"env", "HOME=/root"}
	if p.hydra() {
		bindTo := "core"
		if crowded(nodes, slots) {
			bindTo = "none"
		}
		argv = append(argv, p.program, "-launcher", "ssh", "-hosts", strings.Join(hosts, ","), "-n", fmt.Sprint(ranks),
			"-bind-to", bindTo)
		netmod := map[Transport][]string{UCX: {"MPIR_CVAR_CH4_NETMOD=ucx"}, OFI: {"MPIR_CVAR_CH4_NETMOD=ofi"},
			TCP: {"MPIR_CVAR_CH4_NETMOD=ofi", "FI_PROVIDER=tcp;ofi_rxm"}}[t]
		if t == TCP && p.lacksOFI() {
			netmod = ucxOverTCP(nodes)
		}
		for _, e := range append(env, netmod...) {
			name, value, _ := strings.Cut(e, "=")
			argv = append(argv, "-genv", name, value)
		}
		return append(argv, program...)
	}
	subnet := nodes[0].Subnet.Masked().String()
	argv = append(argv, "OMPI_MCA_plm_rsh_agent="+agent, p.program, "--allow-run-as-root", "--host",
		strings.Join(hosts, ","), "-np", fmt.Sprint(ranks), "--mca", "btl_tcp_if_include", subnet, "--mca",
		"oob_tcp_if_include", subnet)
	switch {
	case crowded(nodes, slots):
		argv = append(argv, "--bind-to", "none", "--oversubscribe")
	case rankfile == "":
		argv = append(argv, "--bind-to", "core")
	default:
		argv = append(argv, "--rankfile", rankfilePath(rankfile))
	}
	argv = append(argv, openMPI[t]...)
	for _, e := range env {
		argv = append(argv, "-x", e)
	}
	return append(argv, program...)
}

// agent keeps connections for the next run: on emulated CPUs a key exchange takes most of the time of a remote command.
const agent = "ssh -o ControlMaster=auto -o ControlPath=/run/rackless-ssh-%h -o ControlPersist=10m"

// openMPI selects exactly one transport, so that a run fails instead of falling back.
var openMPI = map[Transport][]string{
	UCX: {"--mca", "pml", "ucx"},
	OFI: {"--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "verbs;ofi_rxm"},
	TCP: overTCP, RDMA: overTCP,
}

var overTCP = []string{"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"}

func ucxOverTCP(nodes []Node) []string {
	nics := slices.Sorted(slices.Values(lists.Map(nodes, func(n Node) string { return n.NIC })))
	return []string{"UCX_TLS=tcp,self,sm", "UCX_NET_DEVICES=" + strings.Join(slices.Compact(nics), ",")}
}

func environment(t Transport, nodes []Node, slots []int) []string {
	var devices, gids []string
	ranks := 0
	for i, n := range nodes {
		devices, gids, ranks = append(devices, n.Device+":1"), append(gids, fmt.Sprint(n.GIDIndex)), ranks+slots[i]
	}
	slices.Sort(devices)
	slices.Sort(gids)
	switch t {
	case UCX, RDMA:
		env := []string{"UCX_NET_DEVICES=" + strings.Join(slices.Compact(devices), ","), "UCX_TLS=rc_v,ud_v,self,sm"}
		// Different cards may have different GID indexes, but UCX takes one for all.
		if gids = slices.Compact(gids); len(gids) == 1 {
			env = append(env, "UCX_IB_GID_INDEX="+gids[0])
		}
		return env
	case OFI:
		// By default libfabric makes a completion queue for 256 peers, which has one entry more than soft RoCE allows:
		// 32768 for a max_cqe of 32767.
		return []string{"FI_PROVIDER=verbs;ofi_rxm", fmt.Sprintf("FI_UNIVERSE_SIZE=%d", max(16, ranks))}
	}
	return nil
}

// NodesOfFile returns a hostfile's nodes. Errors name the file.
func NodesOfFile(l *lab.Lab, file string, text []byte, endpoint func(node string) (bench.Endpoint, error)) ([]Node,
	error) {
	names, slots, err := parseHostfile(text)
	if err == nil {
		var nodes []Node
		if nodes, err = NodesOf(l, names, endpoint); err == nil {
			for i := range nodes {
				nodes[i].Slots = slots[i]
			}
			return nodes, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", file, err)
}

// parseHostfile reads Open MPI's form ("vm00 slots=2") or MPICH's ("vm00:2"), with comments from # on. Slots are 0 if
// not given.
func parseHostfile(text []byte) (names []string, slots []int, err error) {
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		name, count, given := strings.Cut(fields[0], ":")
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if key == "slots" && !given {
				count, given = value, true
			} else if key != "max_slots" && key != "max-slots" {
				return nil, nil, fmt.Errorf("line %d: %q: write NODE, NODE slots=N or NODE:N", number, f)
			}
		}
		n := 0
		if given {
			if n, err = strconv.Atoi(count); err != nil || n < 1 || n > maxSlots {
				return nil, nil, fmt.Errorf("line %d: %q ranks on %s: want a number of 1 to %d", number, count, name,
					maxSlots)
			}
		}
		names, slots = append(names, name), append(slots, n)
	}
	if len(names) == 0 {
		return nil, nil, errors.New("no node is in it: write one on each line")
	}
	return names, slots, nil
}

// maxSlots finds typing errors.
const maxSlots = 4096

// NodesOf returns the named nodes of a lab, in this order; without names, all.
func NodesOf(l *lab.Lab, names []string, endpoint func(node string) (bench.Endpoint, error)) (nodes []Node, err error) {
	if len(names) == 0 {
		names = append(names, l.NodeNames()...)
	}
	for i, name := range names {
		k := slices.IndexFunc(l.Nodes, func(n lab.Node) bool { return n.Name == name })
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("node %s is named twice", name)
		}
		if k < 0 {
			return nil, fmt.Errorf("node %s: lab %s has none of that name; it has %s", name, l.Name,
				strings.Join(l.NodeNames(), ", "))
		}
		if len(l.Nodes[k].NICs) == 0 {
			return nil, fmt.Errorf("node %s has no NIC", name)
		}
		n := Node{Subnet: l.Nodes[k].NICs[0].Addr, NIC: l.Nodes[k].NICs[0].Name, CPUs: l.Nodes[k].CPUs}
		if n.Endpoint, err = endpoint(name); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// ForLab returns the launcher of a running lab. On this machine it runs the packages of the first node's image,
// unpacked on first use into the directories of images.
func ForLab(r *rack.Rack, images image.Options) *Launcher {
	var unpacked *image.Image
	return &Launcher{Runner: r, Lab: r.Lab, Endpoint: r.Endpoint, BareCPUs: runtime.NumCPU(),
		Plan: func() (*plan.Plan, error) { return PlanOf(r) },
		Bare: func(ctx context.Context, argv []string, stdin []byte) (bench.Output, error) {
			if unpacked == nil {
				kind, err := image.Bare(r.Lab.Nodes[0].Image)
				if err != nil {
					return bench.Output{}, err
				}
				if unpacked, err = kind.Ensure(ctx, images); err != nil {
					return bench.Output{}, err
				}
			}
			ran, err := unpacked.RunBare(ctx, argv, stdin)
			return bench.Output{Stdout: ran.Stdout, Stderr: ran.Stderr, ExitCode: ran.ExitCode, CPU: ran.CPU}, err
		}}
}
