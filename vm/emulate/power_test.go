package emulate

import (
	"context"
	"fmt"
)

// PowerCut ends the machine at once; its disk stays as it was.
func (h *Host) PowerCut(ctx context.Context) error {
	if err := h.Process.Kill(ctx); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// Boot starts a host until its agent answers.
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
