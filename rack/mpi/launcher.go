package mpi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/vm/guest"
)

// A Launcher runs the programs of package bench on a lab's nodes, or on this machine for comparison.
type Launcher struct {
	Runner
	Lab      *lab.Lab
	Endpoint func(node string) (bench.Endpoint, error)
	Plan     func() (*plan.Plan, error) // of nodes on a host, or nil
	// Bare, if set, runs a command here with the nodes' packages, not installed.
	Bare func(ctx context.Context, argv []string, stdin []byte) (bench.Output, error)
	// BareCPUs is the number of ranks here with CPUs of their own; more share them.
	BareCPUs int
}

func (l *Launcher) nodes(g bench.Group) ([]Node, error) {
	n := cmp.Or(g.Nodes, len(l.Lab.Nodes))
	if n > len(l.Lab.Nodes) {
		return nil, fmt.Errorf("%s: lab %s has %d", words.Count(n, "node"), l.Lab.Name, len(l.Lab.Nodes))
	}
	names := lists.Map(l.Lab.Nodes[:n], func(node lab.Node) string { return node.Name })
	at := l.Endpoint
	if at == nil { // only to count
		at = func(name string) (bench.Endpoint, error) { return bench.Endpoint{Node: name}, nil }
	}
	return NodesOf(l.Lab, names, at)
}

// Size returns the numbers of a group's nodes and ranks.
func (l *Launcher) Size(g bench.Group) (nodes, ranks int, err error) {
	counter := Launcher{Lab: l.Lab}
	all, err := counter.nodes(g)
	if err != nil {
		return 0, 0, err
	}
	slots, err := (&Options{Nodes: all, PerNode: g.PerNode, Program: []string{"x"}}).slots()
	ranks += lists.Sum(slots, func(s int) int { return s })
	return len(slots), ranks, err
}

// Ready returns why a group's programs cannot run, and makes slow preparations.
func (l *Launcher) Ready(ctx context.Context, g bench.Group) error {
	_, _, err := l.Size(g)
	if err == nil && g.Bare && l.Bare != nil {
		_, err = l.bareVersion(ctx)
	}
	return err
}

func (l *Launcher) bareVersion(ctx context.Context) (string, error) {
	out, err := l.Bare(ctx, []string{"mpirun.openmpi", "--version"}, nil)
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("mpirun outside of nodes: exit status %d: %s", out.ExitCode, bytes.TrimSpace(out.Stderr))
	}
	first, _, _ := strings.Cut(string(out.Stdout), "\n")
	return first, err
}

// Launch runs a program. By RDMA on several nodes it fails if their devices have sent nothing.
func (l *Launcher) Launch(ctx context.Context, g bench.Group, p bench.Program) (bench.Launch, error) {
	if g.Bare {
		return l.bare(ctx, g, p)
	}
	nodes, err := l.nodes(g)
	if err != nil {
		return bench.Launch{}, err
	}
	argv, err := l.find(ctx, nodes, p, g.Library)
	if err == nil {
		err = l.provide(ctx, nodes, p)
	}
	if err != nil {
		return bench.Launch{}, err
	}
	transport, env := Transport(g.Transport), p.Env
	if p.Own {
		if transport, env, err = own(nodes, transport, env); err != nil {
			return bench.Launch{}, err
		}
	}
	var placed *plan.Plan
	if l.Plan != nil {
		if placed, err = l.Plan(); err != nil {
			return bench.Launch{}, err
		}
	}
	var stdout, stderr bytes.Buffer
	res, err := Run(ctx, l, Options{Lab: l.Lab.Name, Plan: placed, Nodes: nodes, PerNode: g.PerNode,
		Transport: transport, Library: g.Library,
		Program: argv, Env: env, Stdin: p.Stdin, Stdout: &stdout, Stderr: &stderr,
		Within: func(argv []string) []string { return within(p, argv) }})
	out := bench.Launch{Output: bench.Output{Stdout: stdout.Bytes(), Stderr: stderr.Bytes()}}
	if res == nil {
		return out, err
	}
	out.ExitCode, out.Command, out.MPI = res.Exit, res.Command, res.Launcher
	out.Where = fmt.Sprintf("%s on %s by %s", words.Count(res.Ranks, "rank"), words.Count(len(nodes), "node"),
		res.Transport)
	out.RDMAPackets += lists.Sum(res.Nodes, func(n Traffic) uint64 { return n.PacketsSent })
	// Ranks always send messages, so no packets are no proof, even with little TCP traffic.
	if err == nil && res.Exit == 0 && res.Transport != TCP && len(nodes) > 1 && out.RDMAPackets == 0 {
		err = fmt.Errorf("%w by any node: the library fell back to another transport", ErrFellBack)
	}
	return out, err
}

// own is for programs that carry messages by their own library.
func own(nodes []Node, t Transport, env []string) (Transport, []string, error) {
	switch t {
	case UCX, OFI:
		return t, nil, fmt.Errorf("its library uses RDMA devices by itself: leave out %q, or say tcp", t)
	case TCP:
		env = slices.Concat(env, ucxOverTCP(nodes))
	default:
		t = RDMA
	}
	of := lists.Map(nodes, func(n Node) string {
		device := ""
		if t == RDMA {
			device = n.Device
		}
		return fmt.Sprintf("%s=%v=%s=%d", n.Node, n.Addr, device, n.GIDIndex)
	})
	return t, append(slices.Clone(env), "RACKLESS_NODES="+strings.Join(of, ",")), nil
}

func (l *Launcher) bare(ctx context.Context, g bench.Group, p bench.Program) (bench.Launch, error) {
	if l.Bare == nil || len(p.Names) == 0 || p.Source != "" {
		return bench.Launch{}, errors.New("only programs of packages run outside of nodes, such as lammps")
	}
	_, ranks, err := l.Size(g)
	if err != nil {
		return bench.Launch{}, err
	}
	argv := []string{"mpirun.openmpi", "--allow-run-as-root", "-np", fmt.Sprint(ranks), "--mca", "btl", "self,vader",
		"--mca", "pml", "ob1"}
	if ranks > l.BareCPUs {
		argv = append(argv, "--bind-to", "none", "--oversubscribe")
	}
	for _, e := range p.Env {
		argv = append(argv, "-x", e)
	}
	argv = append(append(argv, p.Names[0]), p.Args...)
	version, err := l.bareVersion(ctx)
	if err != nil {
		return bench.Launch{}, err
	}
	run := within(p, argv)
	if p.Input != "" {
		const script = makeInput + ` || exit; shift 2; exec "$@"`
		run = slices.Concat([]string{"sh", "-c", script, "sh", inputDir(p), p.Input}, run)
	}
	out, err := l.Bare(ctx, run, p.Stdin)
	return bench.Launch{Output: out, Command: argv, MPI: version,
		Where: words.Count(ranks, "rank") + " on this machine, outside of nodes"}, err
}

const have = `for p; do command -v "$p" >/dev/null && { echo "$p"; exit; }; done; exit 1`

// compile builds $2 with the MPI in $3, unless the path exists, and prints the program. Other arguments go to the
// compiler.
const compile = `path=$1 source=$2 mpi=$3; shift 3
export HOME="${HOME:-/root}" # without which the mpicc of Open MPI 5 does not start
[ -x "$path" ] || {
	cc=$(command -v "mpicc.$mpi" || command -v mpicc) || { echo "no mpicc" >&2; exit 3; }
	printf %s "$source" | $cc -O2 -s -o "$path.new" "$@" && mv "$path.new" "$path"
} && cat "$path"`

const receive = `[ -x "$1" ] || { cat >"$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1"; }`

// makeInput fills a directory by the script in $2, unless it exists. pack also prints the directory, and unpack stores
// it.
const (
	makeInput = `[ -d "$1" ] || {
	rm -rf "$1.new" && mkdir "$1.new" && (cd "$1.new" && sh -e -c "$2" >&2 </dev/null) && mv "$1.new" "$1"
}`
	pack   = makeInput + ` && tar -C "$1" -c .`
	unpack = `[ -d "$1" ] || { rm -rf "$1.new" && mkdir "$1.new" && tar -C "$1.new" -x && mv "$1.new" "$1"; }`
)

func inputDir(p bench.Program) string {
	return fmt.Sprintf("/tmp/rackless-%.8x", sha256.Sum256([]byte(p.Input)))
}

func (l *Launcher) provide(ctx context.Context, nodes []Node, p bench.Program) error {
	if p.Input == "" {
		return nil
	}
	lacking, err := onEach(nodes, func(n Node) (bool, error) {
		res, err := l.Run(ctx, n.Node, guest.Command{Argv: []string{"test", "-d", inputDir(p)}})
		return res.ExitCode != 0, err
	})
	if err == nil && slices.Contains(lacking, true) {
		if err = l.give(ctx, nodes, pack, unpack, inputDir(p), p.Input); err != nil {
			err = fmt.Errorf("make the input of %s: %w", p.Names[0], err)
		}
	}
	return err
}

// within prints the results after the launcher's output.
func within(p bench.Program, argv []string) []string {
	if p.Input == "" {
		return argv
	}
	const script = `cd "$0" && rm -f $1 || exit; results=$1; shift; "$@"; status=$?; cat $results; exit $status`
	return append([]string{"sh", "-c", script, inputDir(p), p.Results}, argv...)
}

// find returns each rank's command: a program that all nodes have, or one compiled on the first node and copied to the
// others.
func (l *Launcher) find(ctx context.Context, nodes []Node, p bench.Program, library string) ([]string, error) {
	own := ""
	look := slices.Clone(p.Names)
	if p.Source != "" {
		own = fmt.Sprintf("/usr/local/bin/rackless-ranks-%.4x", sha256.Sum256([]byte(library+p.Source)))
		look = append(look, own)
	}
	found, err := onEach(nodes, func(n Node) (string, error) {
		res, err := l.Run(ctx, n.Node, guest.Command{Argv: append([]string{"sh", "-c", have, "sh"}, look...)})
		return string(bytes.TrimSpace(res.Stdout)), err
	})
	if err != nil {
		return nil, err
	}
	// Ranks of different programs would not understand each other.
	if all := slices.Compact(slices.Sorted(slices.Values(found))); len(all) == 1 && all[0] != "" && all[0] != own {
		return append([]string{all[0]}, p.Args...), nil
	}
	if own == "" {
		i := slices.Index(found, "")
		return nil, fmt.Errorf("%s: no program %s: it has to be on all nodes; package sets of images are in "+
			"docs/nodes.md", nodes[max(0, i)].Node, strings.Join(p.Names, " or "))
	}
	if slices.ContainsFunc(found, func(f string) bool { return f != own }) {
		err := l.give(ctx, nodes, compile, receive, own, append([]string{p.Source, cmp.Or(library, "openmpi")},
			p.Build...)...)
		if err != nil {
			err = fmt.Errorf("compile a test of MPI: %w", err)
			if !strings.Contains(err.Error(), "No space left on device") { // a full disk's error has advice
				takes := p.Takes
				if library == "mpich" {
					takes = "image: debian-12+mpich, or libmpich-dev and gcc"
				}
				err = fmt.Errorf("%w; it takes %s", err, takes)
			}
			return nil, err
		}
	}
	return slices.Concat([]string{own}, p.SourceArgs, p.Args), nil
}

// give makes a file on the first node, and stores it on the others.
func (l *Launcher) give(ctx context.Context, nodes []Node, make, take, path string, args ...string) error {
	run := func(n Node, stdin []byte, argv ...string) ([]byte, error) {
		res, err := l.Run(ctx, n.Node, guest.Command{Argv: append([]string{"sh", "-c"}, argv...), Stdin: stdin})
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("exit status %d: %s", res.ExitCode, bytes.TrimSpace(res.Stderr))
		}
		if err != nil {
			err = fmt.Errorf("%s: %s: %w", n.Node, path, err)
		}
		return res.Stdout, err
	}
	made, err := run(nodes[0], nil, append([]string{make, "sh", path}, args...)...)
	if err != nil {
		return err
	}
	_, err = onEach(nodes[1:], func(n Node) ([]byte, error) { return run(n, made, take, "sh", path) })
	return err
}

func onEach[T any](nodes []Node, ask func(Node) (T, error)) ([]T, error) {
	out, errs := make([]T, len(nodes)), make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { out[i], errs[i] = ask(n) })
	}
	wg.Wait()
	return out, errors.Join(errs...)
}
