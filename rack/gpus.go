package rack

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack/verify/checks"
)

// A GPUEmulator is a runtime with emulated GPUs.
type GPUEmulator interface {
	checks.GPUReader
	// SetGPUFault makes a GPU fail, or work again if f is empty.
	SetGPUFault(ctx context.Context, node string, number int, f checks.GPUFault) error
}

// GPUs implements checks.GPUReader.
func (r *Rack) GPUs(ctx context.Context) ([]checks.GPU, error) {
	if e, ok := r.runtime.(GPUEmulator); ok {
		return e.GPUs(ctx)
	}
	return nil, nil
}

// FailGPU gives a GPU a fault, or ends it if f is empty. If last is set, it waits that long and then ends the fault.
func (r *Rack) FailGPU(ctx context.Context, node string, number int, f checks.GPUFault, last time.Duration) error {
	i := slices.IndexFunc(r.Lab.Nodes, func(n lab.Node) bool { return n.Name == node })
	if i < 0 {
		return fmt.Errorf("lab %s has no node %s", r.Lab.Name, node)
	}
	n := r.Lab.Nodes[i]
	e, ok := r.runtime.(GPUEmulator)
	switch {
	case !ok || n.GPUs == 0:
		return fmt.Errorf("node %s has no emulated GPU: its lab file asks for none; use gpus: 1 and image: "+
			"debian-13+gpu", node)
	case number < 0 || number >= n.GPUs:
		return fmt.Errorf("node %s has no GPU %d: it has %s, numbered from 0", node, number,
			words.Count(n.GPUs, "GPU"))
	case !f.Of(n.PersonalityOf(number)):
		return fmt.Errorf("GPU %d of node %s cannot have the fault %s: with its personality %s, the node's kernel "+
			"exports its memory without asking it", number, node, f, n.PersonalityOf(number))
	}
	if err := e.SetGPUFault(ctx, node, number, f); err != nil || last == 0 {
		return err
	}
	_ = wait.For(ctx, last) // an interrupted wait also ends the fault
	return e.SetGPUFault(context.WithoutCancel(ctx), node, number, "")
}
