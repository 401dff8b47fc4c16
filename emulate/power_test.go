package emulate

import (
	"context"
	"fmt"
	"time"

	"github.com/rackless/rackless/vm"
)

// What tests do to hosts, and the program does not: reboots from within, and power cuts.

// Reboot restarts the host from within, in an orderly way, and returns when the agent of the new boot answers.
func (h *Host) Reboot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootLimit,
		fmt.Errorf("host %s did not come back within %v; its console ended: %s", h.Name, bootLimit,
			vm.LastLines(h.SerialLog())))
	defer cancel()
	const bootID = "/proc/sys/kernel/random/boot_id"
	before, err := h.run(ctx, "cat", bootID)
	if err != nil {
		return err
	}
	// The host may be on its way before its agent is asked how the command ended.
	_, asked := h.run(ctx, "systemctl", "--no-block", "reboot")
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(500 * time.Millisecond):
		}
		if !h.Running() {
			return fmt.Errorf("host %s: QEMU ended during the reboot: %s", h.Name, vm.LastLines(h.path(vm.FileLog)))
		}
		once, cancel := context.WithTimeout(ctx, 15*time.Second)
		now, err := h.run(once, "cat", bootID)
		cancel()
		switch {
		case err != nil: // it is on its way
		case now != before:
			return nil
		case asked != nil:
			return asked
		}
	}
}

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
