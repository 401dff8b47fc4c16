package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Group places the ranks of an engine that measures several nodes. It comes from the words after its name.
type Group struct {
	Nodes     int    // 0 means all. "n4"
	PerNode   int    // on each node; 0 means one for each CPU. "p2"
	Transport string // of GroupTransports; "" chooses by the nodes' devices
	Library   string // of GroupLibraries; "" means that of the first node
	// Bare runs the ranks on this machine instead of on nodes. "bare"
	Bare bool
}

// GroupTransports are UCX, libfabric, TCP.
var GroupTransports = []string{"ucx", "ofi", "tcp"}

// GroupLibraries are the words for the MPI that starts the ranks.
var GroupLibraries = []string{"openmpi", "mpich"}

// maxGroup limits the numbers of a Group: larger ones are typing errors.
const maxGroup = 4096

// Apply changes the group by one word.
func (g *Group) Apply(word string) error {
	number := func(to *int) error {
		n, err := strconv.Atoi(word[1:])
		if err != nil || n < 1 || n > maxGroup || *to != 0 {
			return fmt.Errorf("%q: want one number of 1 to %d after %q", word, maxGroup, word[:1])
		}
		*to = n
		return nil
	}
	switch {
	case word == "bare":
		g.Bare = true
	case slices.Contains(GroupTransports, word) && g.Transport == "":
		g.Transport = word
	case slices.Contains(GroupLibraries, word) && g.Library == "":
		g.Library = word
	case strings.HasPrefix(word, "n"):
		return number(&g.Nodes)
	case strings.HasPrefix(word, "p"):
		return number(&g.PerNode)
	default:
		return fmt.Errorf("word %q: want nN for the first N nodes, pN for N ranks on each, %s, or bare", word,
			strings.Join(slices.Concat(GroupTransports, GroupLibraries), ", "))
	}
	return nil
}

func (g Group) words() []string {
	var all []string
	if g.Nodes > 0 {
		all = append(all, fmt.Sprintf("n%d", g.Nodes))
	}
	if g.PerNode > 0 {
		all = append(all, fmt.Sprintf("p%d", g.PerNode))
	}
	if g.Transport != "" {
		all = append(all, g.Transport)
	}
	if g.Library != "" {
		all = append(all, g.Library)
	}
	if g.Bare {
		all = append(all, "bare")
	}
	return all
}

// Group returns false for engines that do not measure several nodes together.
func (e Engine) Group() (Group, bool) {
	if e.Together == nil {
		return Group{}, false
	}
	return *e.Together, true
}

// In returns the engine for another group, with the group's words in its name.
func (e Engine) In(g Group) Engine {
	base, _, _ := strings.Cut(e.Name, "/")
	e.Name, e.Together = strings.Join(append([]string{base}, g.words()...), "/"), &g
	return e
}

// A Program is the program of a group's ranks.
type Program struct {
	Names []string // the first that all nodes have is run
	Args  []string
	// Source, if not "", is compiled with Build on nodes that lack all of Names. SourceArgs come before Args then.
	Source     string
	Build      []string
	Takes      string
	SourceArgs []string
	// Own is set if MPI only starts the program. RACKLESS_NODES tells it the nodes: NODE=ADDRESS=DEVICE=GID, separated
	// by commas; no device means TCP.
	Own   bool
	Stdin []byte   // of rank 0
	Env   []string // of all ranks, as NAME=VALUE
	// Input is a script that makes the files of a new directory in which all ranks run, or "".
	Input string
	// Results are files there, separated by blanks, that rank 0 writes. They are read after its output.
	Results string
}

// A Launch is the result of running a program.
type Launch struct {
	Output
	Command []string
	MPI     string
	Where   string // nodes, ranks and transport, in words
	// RDMAPackets were sent by the RDMA devices of all nodes, 0 if the run does not use RDMA.
	RDMAPackets uint64
}

// A Launcher starts a program on several nodes at once, as mpirun does.
type Launcher interface {
	// Size returns an error if the lab cannot have the group. It asks no node.
	Size(g Group) (nodes, ranks int, err error)
	// Launch waits for the program's end. It fails if messages should have gone by RDMA but did not.
	Launch(ctx context.Context, g Group, p Program) (Launch, error)
}

// Grouped is a plugin of an engine with a Group.
type Grouped interface {
	Program(o Options) Program
}

func (m *measurement) launch(ctx context.Context) (Output, error) {
	var err error
	m.launched, err = m.Launcher.Launch(ctx, *m.engine.Together, m.engine.Plugin.(Grouped).Program(m.opts))
	return m.launched.Output, err
}

// Allowed returns an error if an engine cannot measure all nodes so. It asks no node.
func (r *Runner) Allowed(e Engine, opts Options) error {
	if e.Together == nil {
		return nil
	}
	m := &measurement{Runner: r, engine: e, client: Endpoint{Node: "the first node"}, opts: opts}
	if err := m.allowed(); err != nil {
		return fmt.Errorf("%s: %w", e.Name, err)
	}
	return nil
}

func (m *measurement) allowed() error {
	if err := m.size(); err != nil {
		return err
	}
	return m.engine.Check(m.client, m.server, m.opts)
}

func (m *measurement) size() error {
	if m.engine.Together == nil {
		return nil
	}
	if m.Launcher == nil {
		return errors.New("nothing here starts programs on several nodes")
	}
	g := *m.engine.Together
	nodes, ranks, err := m.Launcher.Size(g)
	if err != nil {
		return err
	}
	// The links of many nodes carry more than the link of one.
	m.opts.Ranks, m.client.Wire = ranks, Wire{}
	g.Nodes, g.PerNode = nodes, max(1, ranks/nodes)
	m.engine = m.engine.In(g)
	return nil
}
