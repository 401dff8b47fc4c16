package measure

import (
	"context"
	"runtime"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/expect"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack/verify/checks"
)

// A factReader is the lab as paths needs it: *rack.Rack.
type factReader interface {
	bench.Executor
	Facts(ctx context.Context, node string) (*facts.Node, error)
}

// paths collects what is known about the paths between nodes while they are measured. What cannot be read
// stays unknown, and is no error. For emulated labs nothing is read, because their figures are not judged.
type paths struct {
	lab      factReader
	emulated bool
	opts     bench.Options
	ibMTU    map[string]int         // active, by node and RDMA device, as the checks found it
	nodes    map[string]*facts.Node // nil: it could not be read
	runs     map[string]expect.Path // by run
}

// newPaths takes the active MTUs from the findings of the verification that has just been made: asking the ports again
// would disturb what is measured next.
func newPaths(lab factReader, emulated bool, opts bench.Options, findings []finding.Finding) *paths {
	w := &paths{lab: lab, emulated: emulated, opts: opts, ibMTU: map[string]int{}, nodes: map[string]*facts.Node{},
		runs: map[string]expect.Path{}}
	for _, f := range findings {
		if mtu, err := strconv.Atoi(f.Have); err == nil && f.ID == checks.IDIBMTU {
			w.ibMTU[f.Subject] = mtu
		}
	}
	return w
}

// observe measures by run, and keeps what there was to know of the path meanwhile.
func (w *paths) observe(ctx context.Context, e bench.Engine, client, server bench.Endpoint,
	run func() ([]bench.Sample, error)) ([]bench.Sample, error) {
	if w.emulated || e.Local && !e.Copies() {
		return run()
	}
	before := map[string]*facts.CPUTime{client.Node: w.cpuTime(ctx, client.Node)}
	if !e.Local {
		before[server.Node] = w.cpuTime(ctx, server.Node)
	}
	// Only the measurement is between the two readings of the CPU time. Everything slower is read after it.
	samples, err := run()
	if err != nil || len(samples) == 0 {
		return samples, err
	}
	p := expect.Path{HostCPUs: runtime.NumCPU()}
	if e.Local {
		p.Client = w.copySide(ctx, client)
	} else {
		p.Client, p.Server = w.side(ctx, e, client), w.side(ctx, e, server)
	}
	// A side whose node said nothing before has nothing to be compared with.
	for _, s := range []*expect.Side{&p.Client, &p.Server} {
		b := before[s.Node]
		if b == nil {
			continue
		}
		if a := w.cpuTime(ctx, s.Node); a != nil {
			s.Steal = expect.Steal(*b, *a)
		}
	}
	if load, err := loadAverage(); err == nil {
		p.Load = load.Load1
	} else {
		p.HostCPUs = 0 // a load that is not known is not judged
	}
	w.runs[samples[0].Run] = p
	return samples, nil
}

// path is what expect.Judge asks.
func (w *paths) path(_, _, run string) expect.Path { return w.runs[run] }

// cpuTime is what the CPUs of a node have done; nil where it does not say.
func (w *paths) cpuTime(ctx context.Context, node string) *facts.CPUTime {
	out, err := w.lab.Exec(ctx, node, []string{"cat", "/proc/stat"})
	if err != nil || out.ExitCode != 0 {
		return nil
	}
	t, err := facts.ParseCPUTime(string(out.Stdout))
	if err != nil {
		return nil
	}
	return &t
}

// side is what is known about one end of a path. The facts of a node are read once: they do not change while it is
// measured, and reading them all takes longer than a short test.
func (w *paths) side(ctx context.Context, e bench.Engine, ep bench.Endpoint) expect.Side {
	node, ok := w.nodes[ep.Node]
	if !ok {
		node, _ = w.lab.Facts(ctx, ep.Node) // nil: nothing is known
		w.nodes[ep.Node] = node
	}
	s := expect.SideOf(ep, w.opts.PlaceOf(ep), node)
	s.IBMTU = w.ibMTU[ep.Node+" "+ep.Device]
	if gpu, ok := e.GPU(); ok && node != nil {
		s.GPU = w.gpu(ctx, node, ep.Node, gpu)
	}
	return s
}

// copySide is what is known about a node that has just copied to or from its GPUs. Links are read
// again: a driver lowers the speed of one that is idle.
func (w *paths) copySide(ctx context.Context, ep bench.Endpoint) expect.Side {
	var ids string
	out, err := w.lab.Exec(ctx, ep.Node, []string{"nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"})
	if err == nil && out.ExitCode == 0 {
		ids = string(out.Stdout)
	}
	node, _ := w.lab.Facts(ctx, ep.Node) // nil: nothing is known
	return expect.CopySideOf(ep, w.opts.PlaceOf(ep), ids, node)
}

// gpu asks NVIDIA's driver where a GPU is, and the node's kernel on which NUMA node that is.
func (w *paths) gpu(ctx context.Context, node *facts.Node, name, gpu string) *expect.GPUMemory {
	out, err := w.lab.Exec(ctx, name, []string{"nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader", "-i",
		gpu})
	if err != nil || out.ExitCode != 0 {
		return nil
	}
	address, err := topology.ParsePCIAddr(strings.TrimSpace(string(out.Stdout)))
	f := topology.NewTree(&node.Host).Device(address)
	if err != nil || f == nil || f.NUMANode == nil {
		return nil
	}
	return &expect.GPUMemory{Name: "GPU " + gpu, NUMANode: *f.NUMANode}
}
