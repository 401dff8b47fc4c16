package emulated

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/connectx"
	"github.com/rackless/rackless/rdma/gpu"
)

var _ rack.GPUEmulator = (*emulatedLab)(nil)

type gpuFault struct {
	Node   string          `json:"node"`
	Number int             `json:"gpu"`
	Kind   checks.GPUFault `json:"kind,omitempty"` // "" clears the fault
}

func (a *adapters) failGPU(f *gpuFault) error {
	all, kind := a.gpus.of(f.Node), gpu.Fault(f.Kind)
	if f.Number < 0 || f.Number >= len(all) {
		return fmt.Errorf("node %s has no GPU %d", f.Node, f.Number)
	}
	if p := all[f.Number].Personality(); kind != gpu.Healthy && !slices.Contains(gpu.Faults(p), kind) {
		return fmt.Errorf("fault %q is unknown to the daemon of this lab", f.Kind)
	}
	all[f.Number].SetFault(kind)
	a.log.Info("gpu: fault", "node", f.Node, "gpu", f.Number, "kind", f.Kind)
	return nil
}

func (a *adapters) askPeers(node string) {
	var ports []*connectx.Port
	a.mu.Lock()
	for i := 0; a.there[rack.PortName(node, i)] != nil; i++ {
		ports = append(ports, a.there[rack.PortName(node, i)].Port)
	}
	a.mu.Unlock() // its holder may wait for a GPU
	for _, p := range ports {
		p.AskPeers()
	}
}

// GPUs implements rack.GPUEmulator.
func (r *emulatedLab) GPUs(ctx context.Context) ([]checks.GPU, error) {
	if !r.Lab.HasGPUs() {
		return nil, nil
	}
	got, err := ask(ctx, r.Dir, request{List: true})
	if err != nil {
		return nil, fmt.Errorf("lab %s: its daemon does not answer: %w; rackless up starts it, and the nodes that had "+
			"GPUs, again", r.Lab.Name, err)
	}
	var all []checks.GPU
	for _, n := range r.Lab.Nodes {
		all = append(all, gpuStates(r.Dir, n, got.GPUs)...)
	}
	return all, nil
}

// gpuStates joins the lab's GPUs with the daemon's. One that the daemon does not list is not connected.
func gpuStates(dir string, n lab.Node, listed []listedGPU) (all []checks.GPU) {
	for i, want := range gpusOf(dir, n) {
		g := checks.GPU{Node: n.Name, Number: i, Model: cmp.Or(want.Model, gpu.Generic), Memory: uint64(want.Memory),
			Personality: lab.GPUPersonality(want.Personality)}
		if want.NIC < len(n.NICs) {
			g.Beside = n.NICs[want.NIC].Name
		}
		// The lab file has nvidia-smi's classes in lower case.
		g.Path, _, _ = topology.ParsePathLabel(strings.ToUpper(string(want.Path)))
		have, ok := lists.Lookup(listed, func(l listedGPU) bool { return l.Node == n.Name && l.GPU == i })
		if ok {
			g.Connected, g.Driver, g.Broken, g.Address = have.Connected, have.Driver, have.Broken, have.Address
			g.Allocated, g.Fault = have.Allocated, checks.GPUFault(have.Fault)
		}
		all = append(all, g)
	}
	return all
}

// SetGPUFault implements rack.GPUEmulator.
func (r *emulatedLab) SetGPUFault(ctx context.Context, node string, number int, f checks.GPUFault) error {
	_, err := ask(ctx, r.Dir, request{GPUFault: &gpuFault{node, number, f}})
	return err
}
