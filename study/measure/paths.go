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

type factReader interface {
	bench.Executor
	Facts(ctx context.Context, node string) (*facts.Node, error)
}

// paths keeps unreadable properties unknown, and skips emulated labs: their figures are not judged.
type paths struct {
	lab      factReader
	emulated bool
	opts     bench.Options
	ibMTU    map[string]int         // by node and RDMA device, from the checks
	nodes    map[string]*facts.Node // nil if unreadable
	runs     map[string]expect.Path // by run
}

// newPaths takes the MTUs from the last verification: querying ports would disturb the next measurement.
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

func (w *paths) observe(ctx context.Context, e bench.Engine, client, server bench.Endpoint,
	run func() ([]bench.Sample, error)) ([]bench.Sample, error) {
	if w.emulated || e.Local && !e.Copies() {
		return run()
	}
	before := map[string]*facts.CPUTime{client.Node: w.cpuTime(ctx, client.Node)}
	if !e.Local {
		before[server.Node] = w.cpuTime(ctx, server.Node)
	}
	// Only the measurement is between the two readings of CPU time.
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
		p.HostCPUs = 0 // unknown: not judged
	}
	w.runs[samples[0].Run] = p
	return samples, nil
}

func (w *paths) path(_, _, run string) expect.Path { return w.runs[run] }

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

// side reads a node's facts once: that takes longer than a short test.
func (w *paths) side(ctx context.Context, e bench.Engine, ep bench.Endpoint) expect.Side {
	node, ok := w.nodes[ep.Node]
	if !ok {
		node, _ = w.lab.Facts(ctx, ep.Node) // nil if unknown
		w.nodes[ep.Node] = node
	}
	s := expect.SideOf(ep, w.opts.PlaceOf(ep), node)
	s.IBMTU = w.ibMTU[ep.Node+" "+ep.Device]
	if gpu, ok := e.GPU(); ok && node != nil {
		s.GPU = w.gpu(ctx, node, ep.Node, gpu)
	}
	return s
}

// copySide reads the links after a copy, because a driver lowers the speed of an idle link.
func (w *paths) copySide(ctx context.Context, ep bench.Endpoint) expect.Side {
	var ids string
	out, err := w.lab.Exec(ctx, ep.Node, []string{"nvidia-smi", "--query-gpu=pci.bus_id", "--format=csv,noheader"})
	if err == nil && out.ExitCode == 0 {
		ids = string(out.Stdout)
	}
	node, _ := w.lab.Facts(ctx, ep.Node) // nil if unknown
	return expect.CopySideOf(ep, w.opts.PlaceOf(ep), ids, node)
}

// gpu gets the address from NVIDIA's driver, and the NUMA node from the facts.
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
