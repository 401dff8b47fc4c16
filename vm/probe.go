package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	if usable, reason = OpensKVM(); !usable {
		return false, reason, nil
	}
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
	// Another QEMU or image may have another answer, and so may another user. Labs of several QEMUs take turns, so the
	// answers for all are kept until the machine boots again. A file that cannot be read has none.
	var known []Probe
	if b, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(b, &known)
	}
	known = slices.DeleteFunc(known, func(k Probe) bool { return k.BootID != p.BootID })
	for _, k := range known {
		if k.QEMU == p.QEMU && k.Image == p.Image && k.UID == p.UID {
			return k.Usable, k.Reason, nil
		}
	}
	err = p.boot(ctx, filepath.Join(cache, ".k"))
	if ctx.Err() != nil {
		return false, "", context.Cause(ctx)
	}
	if p.Usable = err == nil; !p.Usable {
		p.Reason = err.Error()
	}
	b, err := json.Marshal(append(known, p))
	if err != nil {
		return false, "", err
	}
	return p.Usable, p.Reason, atomicfile.WriteFile(path, b, 0o600)
}

// OpensKVM reports whether this user may use /dev/kvm, and why not.
func OpensKVM() (usable bool, reason string) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if errors.Is(err, os.ErrPermission) {
		return false, "no permission for /dev/kvm: add the user to group kvm"
	}
	if err != nil {
		return false, "no /dev/kvm: virtualisation is off in the firmware, or this is a virtual machine " +
			"without nesting"
	}
	f.Close()
	return true, ""
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
