package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/qapi"
)

// A Probe is a trial boot under KVM, and what decides how it ends.
type Probe struct {
	BootID string `json:"boot_id"` // of this machine
	QEMU   string `json:"qemu"`    // version
	Image  string `json:"image"`   // key of what is booted
	UID    int    `json:"uid"`
	Usable bool   `json:"usable"`
	Reason string `json:"reason,omitempty"`

	Machine func(dir string) Machine `json:"-"` // that is booted, with an agent in its guest
	Limit   time.Duration            `json:"-"` // of the boot, until the agent answers
}

// KVM finds out whether a stock kernel boots under KVM here, by booting the machine: there are
// machines whose /dev/kvm opens and creates a virtual CPU that then never gets anywhere. QEMU, Image,
// Machine and Limit are given. The answer is kept in the directory cache for this boot of the host.
func (p Probe) KVM(ctx context.Context, cache string) (usable bool, reason string, err error) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return false, "no permission for /dev/kvm: add the user to group kvm", nil
		}
		return false, "no /dev/kvm: virtualisation is off in the firmware, or this is a virtual machine " +
			"without nesting", nil
	}
	f.Close()

	if p.BootID, err = BootID(); err != nil {
		return false, "", err
	}
	p.UID = os.Getuid()
	path := filepath.Join(cache, "kvm-probe.json")
	// Two labs that come up at once find out once.
	unlock, err := lockFile(ctx, filepath.Join(cache, "kvm-probe.lock"), func() {})
	if err != nil {
		return false, "", err
	}
	defer unlock()
	// An upgrade of QEMU or of the image may change the answer, and so may another user's rights.
	var have Probe
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &have) == nil && have.BootID == p.BootID &&
		have.QEMU == p.QEMU && have.Image == p.Image && have.UID == p.UID {
		return have.Usable, have.Reason, nil
	}
	err = p.boot(ctx, filepath.Join(cache, ".k"))
	if ctx.Err() != nil {
		return false, "", context.Cause(ctx)
	}
	if p.Usable = err == nil; !p.Usable {
		p.Reason = err.Error()
	}
	b, err := json.Marshal(p)
	if err != nil {
		return false, "", err
	}
	return p.Usable, p.Reason, atomicfile.WriteFile(path, b, 0o600)
}

// boot boots the machine in a directory, until its agent answers.
func (p Probe) boot(ctx context.Context, dir string) error {
	err := os.RemoveAll(dir) // of a process that was killed: this one has the lock
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	defer os.RemoveAll(dir)
	m := p.Machine(dir)
	m.Name, m.Dir, m.Bound = "the trial boot", dir, true
	var c *Child
	if err == nil {
		c, err = m.Start(nil)
	}
	if err != nil {
		return fmt.Errorf("the trial boot could not be made: %w", err)
	}
	defer c.Kill()
	ctx, release := c.Bind(ctx)
	defer release()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Limit,
		fmt.Errorf("/dev/kvm opens, but a stock kernel did not boot under it within %v", p.Limit))
	defer cancel()
	agent, err := qapi.DialAgent(ctx, filepath.Join(dir, SocketAgent))
	if err != nil {
		return c.Explain(ctx, err)
	}
	return agent.Close()
}
