package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Group says where the ranks of an engine run that measures several nodes together: the words after its name.
type Group struct {
	Nodes     int    // the first so many nodes of the lab; 0: all. "n4"
	PerNode   int    // ranks on each node; 0: one for each CPU. "p2"
	Transport string // one of GroupTransports; "" chooses by the nodes' devices
	Library   string // one of GroupLibraries; "" is what the first node has
	// Bare runs the same number of ranks on this machine instead, outside of all nodes. "bare"
	Bare bool
}

// GroupTransports are the words for what carries messages between nodes: UCX, libfabric, TCP.
var GroupTransports = []string{"ucx", "ofi", "tcp"}

// GroupLibraries are the words for the MPI that starts the ranks, where the nodes have both.
var GroupLibraries = []string{"openmpi", "mpich"}

// maxGroup bounds the numbers of a Group: larger ones are slips of the pen.
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

// words are those that make the group.
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

// Group returns where the ranks run of an engine that measures several nodes together; false for other engines.
func (e Engine) Group() (Group, bool) {
	if e.Together == nil {
		return Group{}, false
	}
	return *e.Together, true
}

// In returns an engine that measures several nodes together for another group. Its name has the words of the group.
func (e Engine) In(g Group) Engine {
	base, _, _ := strings.Cut(e.Name, "/")
	e.Name, e.Together = strings.Join(append([]string{base}, g.words()...), "/"), &g
	return e
}

// A Program is what the ranks of a group run.
type Program struct {
	Names []string // the first one that all nodes have is run
	Args  []string
	// Source is a program that is compiled on nodes that lack all of Names; "" if there is none. Build are the
	// arguments of the compiler, and Takes says what it takes. SourceArgs come before Args there.
	Source     string
	Build      []string
	Takes      string
	SourceArgs []string
	// Own is set where the program's own library carries messages between nodes, and MPI only starts it. It is told
	// about the nodes by RACKLESS_NODES: NODE=ADDRESS=DEVICE=GID, with commas between; no device stands for TCP.
	Own   bool
	Stdin []byte   // of rank 0
	Env   []string // of all ranks, as NAME=VALUE
	// Input is a script that makes the files of a new directory, in which all ranks run; "" if they need none.
	Input string
	// Results are files there, with blanks between them, that rank 0 writes; they are read after what it prints.
	Results string
}

// A Launch is how a program ran.
type Launch struct {
	Output
	Command []string // of the launcher, which is mpirun
	MPI     string   // what the launcher says of its version
	Where   string   // nodes, ranks and transport, in words
	// RDMAPackets is how many packets the RDMA devices of all nodes have sent; 0 where none were to.
	RDMAPackets uint64
}

// A Launcher starts a program on several nodes at once, as mpirun does.
type Launcher interface {
	// Size returns the number of nodes and of ranks of a group, or why the lab cannot have it. It asks no node.
	Size(g Group) (nodes, ranks int, err error)
	// Launch runs a program and waits for its end. It fails where messages did not go by RDMA, and were to.
	Launch(ctx context.Context, g Group, p Program) (Launch, error)
}

// Grouped is a plugin of an engine with a Group.
type Grouped interface {
	Program(o Options) Program
}

// launch runs the program of an engine with a group.
func (m *measurement) launch(ctx context.Context) (Output, error) {
	var err error
	m.launched, err = m.Launcher.Launch(ctx, *m.engine.Together, m.engine.Plugin.(Grouped).Program(m.opts))
	return m.launched.Output, err
}

// Allowed tells why an engine cannot measure all nodes together with these options, or nil, also for other engines. It
// asks no node.
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

// allowed rejects what the tool would reject, before anything is started.
func (m *measurement) allowed() error {
	if err := m.size(); err != nil {
		return err
	}
	return m.engine.Check(m.client, m.server, m.opts)
}

// size finds out how many ranks the engine has, and enters it into its name and the options.
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
	// Links of many nodes carry more than that of one.
	m.opts.Ranks, m.client.Wire = ranks, Wire{}
	g.Nodes, g.PerNode = nodes, max(1, ranks/nodes)
	m.engine = m.engine.In(g)
	return nil
}
