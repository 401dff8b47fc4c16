package emulate

import (
	"context"
	"fmt"
)

// What tests do to hosts, and the program does not: power cuts.

// PowerCut ends the host's machine at once, as a power cut does. Its disk stays as it was.
func (h *Host) PowerCut(ctx context.Context) error {
	if err := h.Process.Kill(ctx); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// Boot starts the machine of a host that is off, as the power button does, and returns when its agent answers.
func (h *Host) Boot(ctx context.Context, o Options) (err error) {
	defer func() { o.Progress.End(err) }()
	if h.Running() {
		return fmt.Errorf("host %s runs already", h.Name)
	}
	if h.unlock == nil {
		unlock, err := lock(ctx, o.Dirs, h.Name, nil)
		if err != nil {
			return err
		}
		defer unlock()
	}
	return h.boot(ctx, o)
}
