package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/smi"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/record"
)

// forGPUs makes the engines for GPUs and NICs that all nodes have.
func forGPUs(ctx context.Context, r *rack.Rack, exec bench.Executor) ([]bench.Engine, error) {
	gpus, nics := -1, -1
	least := func(have *int, n int) {
		if *have < 0 || n < *have {
			*have = n
		}
	}
	ask := func(ctx context.Context, node string, argv ...string) (bench.Output, error) {
		return exec.Exec(ctx, node, argv)
	}
	for _, n := range r.Lab.Nodes {
		found, err := tool.GPUs(ctx, ask, n.Name)
		if err != nil {
			return nil, err
		}
		if found == 0 {
			return nil, fmt.Errorf("suite %s: nvidia-smi -L finds no GPU on %s; a lab with gpus: 1 and image: "+
				"debian-13+gpu has one on each node", bench.SuiteGPUDirect, n.Name)
		}
		least(&gpus, found)
		least(&nics, len(n.NICs))
	}
	return tool.GPUDirect(gpus, nics), nil
}

func (s *session) between(endpoints map[string]bench.Endpoint) [][2]bench.Endpoint {
	return lists.Map(s.Pairs, func(p bench.Pair) [2]bench.Endpoint {
		server := endpoints[p.Server]
		server.Place = s.opts.ServerPlace(s.ServerCPU, s.ServerNUMA)
		return [2]bench.Endpoint{endpoints[p.Client], server}
	})
}

func (s *session) chooseNICs(r *rack.Rack) error {
	s.byNIC = make(map[int][][2]bench.Endpoint)
	for _, e := range s.engines {
		nic, ok := e.NIC()
		if !ok || s.byNIC[nic] != nil {
			continue
		}
		endpoints := make(map[string]bench.Endpoint)
		for _, p := range s.Pairs {
			for _, node := range []string{p.Client, p.Server} {
				ep, err := r.EndpointOf(node, nic)
				if err != nil {
					return fmt.Errorf("%s: %w", e.Name, err)
				}
				endpoints[node] = ep
			}
		}
		s.byNIC[nic] = s.between(endpoints)
	}
	return nil
}

func (s *session) fit(ctx context.Context, nodes []bench.Endpoint) (err error) {
	if s.Suite != "" {
		s.engines, err = runnable(ctx, s.runner, s.engines, s.opts, nodes, s.progress)
	}
	return err
}

type gpuLab interface {
	bench.Executor
	VRAM(ctx context.Context) ([]rack.VRAM, error)
}

// A prover observes, in labs with emulated GPUs, which bytes NICs moved to and from memory of GPUs.
type prover struct {
	lab   gpuLab // nil if not emulated
	nics  map[string][]string
	nodes map[string]*gpuNode
	seen  []record.GPUPath
}

// A gpuNode has its GPUs in CUDA's order.
type gpuNode struct {
	starts [][]uint64 // of each GPU's regions
	matrix *smi.Matrix
}

func newProver(r *rack.Rack) *prover {
	p := &prover{nics: map[string][]string{}, nodes: map[string]*gpuNode{}}
	if r.HasVRAM() {
		p.lab = r
	}
	for _, n := range r.Lab.Nodes {
		for _, nic := range n.NICs {
			p.nics[n.Name] = append(p.nics[n.Name], nic.Name)
		}
	}
	return p
}

func (p *prover) paths() []record.GPUPath {
	if p == nil {
		return nil
	}
	return p.seen
}

// modelled adds the rates of the nodes' profiles.
func modelled(all []record.GPUPath, l *lab.Lab) []record.GPUPath {
	for i := range all {
		g := &all[i]
		for _, n := range l.Nodes {
			if p, ok := lab.ProfileOf(n.Profile); ok && n.Name == g.Node {
				g.ModelledBits = p.Rates[lab.GPUPath(strings.ToLower(g.Path))]
			}
		}
	}
	return all
}

// look notes the paths also if a result is there from before.
func (p *prover) look(ctx context.Context, e bench.Engine, ends ...bench.Endpoint) error {
	nic, ok := e.NIC()
	if p == nil || p.lab == nil || !ok {
		return nil
	}
	for _, ep := range ends {
		if _, err := p.node(ctx, ep, nic); err != nil {
			return err
		}
	}
	return nil
}

// observe adds the bytes that the NICs moved to the samples. Fewer than the tool's make a failed measurement.
func (p *prover) observe(ctx context.Context, e bench.Engine, client, server bench.Endpoint,
	run func() ([]bench.Sample, error)) ([]bench.Sample, error) {
	if _, ok := e.NIC(); p == nil || p.lab == nil || !ok {
		return run()
	}
	before, err := p.read(ctx, e, client, server)
	samples, failed := run()
	if failed != nil || err != nil {
		return samples, errors.Join(failed, err)
	}
	after, err := p.read(ctx, e, client, server)
	if err != nil {
		return samples, err
	}
	if before == nil || after == nil {
		return samples, nil // the figure is shown without proof
	}
	moved := &bench.VRAM{Client: since(after.Client, before.Client), Server: since(after.Server, before.Server)}
	for i := range samples {
		samples[i].VRAM = moved
	}
	return proven(e, samples, moved), nil
}

func since(after, before bench.Moved) bench.Moved {
	return bench.Moved{Written: after.Written - before.Written, Read: after.Read - before.Read,
		Received: after.Received - before.Received, Sent: after.Sent - before.Sent}
}

func proven(e bench.Engine, samples []bench.Sample, moved *bench.VRAM) []bench.Sample {
	if _, ok := e.GPU(); !ok {
		return samples
	}
	for _, s := range samples {
		n := uint64(s.Iterations * s.Bytes)
		if s.Error != "" || n == 0 {
			continue
		}
		short := func(what string, have uint64) string {
			if have >= n {
				return ""
			}
			return fmt.Sprintf("%s, the NIC has %s %s of VRAM, and the tool says it moved %s", s.Server, what,
				words.Exact(have), words.Exact(n))
		}
		why := short("written", moved.Server.Written)
		if e.Traffic().Both {
			why = cmp.Or(why, short("read", moved.Server.Read))
		}
		if why != "" {
			s.Metric, s.Value, s.Unit, s.Error = "", 0, "", "on "+why
			return []bench.Sample{s}
		}
	}
	return samples
}

// read returns nil if the emulation does not know a GPU of the test.
func (p *prover) read(ctx context.Context, e bench.Engine, client, server bench.Endpoint) (*bench.VRAM, error) {
	all, err := p.lab.VRAM(ctx)
	if err != nil {
		return nil, err
	}
	v := &bench.VRAM{}
	for _, end := range []struct {
		bench.Endpoint
		to *bench.Moved
	}{{client, &v.Client}, {server, &v.Server}} {
		ok, err := p.readEnd(ctx, e, end.Endpoint, all, end.to)
		if err != nil || !ok {
			return nil, err
		}
	}
	return v, nil
}

func (p *prover) readEnd(ctx context.Context, e bench.Engine, ep bench.Endpoint, all []rack.VRAM,
	to *bench.Moved) (ok bool, err error) {
	nic, _ := e.NIC()
	n, err := p.node(ctx, ep, nic)
	if err != nil || nic >= len(p.nics[ep.Node]) {
		return false, err
	}
	wanted := -1 // all
	if number, has := e.GPU(); has {
		wanted, _ = strconv.Atoi(number)
	}
	found := false
	for _, g := range all {
		if g.Node != ep.Node || wanted >= 0 && n.number(g.Address) != wanted {
			continue
		}
		m := g.Of(p.nics[ep.Node][nic])
		to.Written, to.Read, found = to.Written+m.Written, to.Read+m.Read, true
	}
	if !found {
		return false, nil
	}
	to.Received, to.Sent, err = p.ported(ctx, ep)
	return err == nil, err
}

// number is in CUDA's order, or -1.
func (n *gpuNode) number(address uint64) int {
	if address == 0 {
		return -1
	}
	return slices.IndexFunc(n.starts, func(all []uint64) bool { return slices.Contains(all, address) })
}

// gpuRegions prints PCI addresses in CUDA's order, with the regions.
const gpuRegions = `nvidia-smi --query-gpu=pci.bus_id --format=csv,noheader | tr A-Z a-z | while read -r id; do
	echo $id $(cut -d" " -f1 "/sys/bus/pci/devices/${id#0000}/resource"); done`

func (p *prover) node(ctx context.Context, ep bench.Endpoint, nic int) (*gpuNode, error) {
	n := p.nodes[ep.Node]
	if n == nil {
		out, err := p.lab.Exec(ctx, ep.Node, []string{"sh", "-c", gpuRegions})
		if err != nil {
			return nil, err
		}
		n = &gpuNode{starts: regions(string(out.Stdout))}
		if out, err = p.lab.Exec(ctx, ep.Node, []string{"nvidia-smi", "topo", "-m"}); err != nil {
			return nil, err
		}
		n.matrix, _ = smi.ParseMatrix(out.Stdout) // without it, paths are unknown
		p.nodes[ep.Node] = n
	}
	if nic >= len(p.nics[ep.Node]) || slices.ContainsFunc(p.seen, func(g record.GPUPath) bool {
		return g.Node == ep.Node && g.NIC == nic
	}) {
		return n, nil
	}
	for gpu := range n.starts {
		p.seen = append(p.seen, record.GPUPath{Node: ep.Node, GPU: gpu, NIC: nic,
			Name: p.nics[ep.Node][nic] + ", " + ep.Device, Path: n.path(gpu, ep.Device)})
	}
	return n, nil
}

func regions(text string) (all [][]uint64) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var starts []uint64
		for _, f := range fields[1:] {
			if at, err := strconv.ParseUint(f, 0, 64); err == nil && at != 0 {
				starts = append(starts, at)
			}
		}
		all = append(all, starts)
	}
	return all
}

func (n *gpuNode) path(gpu int, device string) string {
	if n.matrix == nil {
		return ""
	}
	at := func(is func(smi.Device) bool) int { return slices.IndexFunc(n.matrix.Devices, is) }
	g := at(func(d smi.Device) bool { return d.Index != nil && *d.Index == gpu })
	nic := at(func(d smi.Device) bool { return d.RDMA == device && device != "" })
	if g < 0 || nic < 0 || n.matrix.Cells[g][nic].Class == topology.PathUnknown {
		return ""
	}
	return n.matrix.Cells[g][nic].String()
}

// ported reads counters in words of four bytes.
func (p *prover) ported(ctx context.Context, ep bench.Endpoint) (received, sent uint64, err error) {
	dir := "/sys/class/infiniband/" + ep.Device + "/ports/1/counters/"
	out, err := p.lab.Exec(ctx, ep.Node, []string{"cat", dir + "port_rcv_data", dir + "port_xmit_data"})
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(out.Stdout))
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("%s: the counters of %s cannot be read: %q", ep.Node, ep.Device, out.Stderr)
	}
	received, err1 := strconv.ParseUint(fields[0], 10, 64)
	sent, err2 := strconv.ParseUint(fields[1], 10, 64)
	return 4 * received, 4 * sent, errors.Join(err1, err2)
}
