package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// minVersion is the oldest QEMU that rackless uses: the igb NIC with SR-IOV came with it.
const minVersion = 8

// CheckVersion refuses a QEMU that is too old.
func CheckVersion(version string) error {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return fmt.Errorf("QEMU version %q: want a number first", version)
	}
	if n < minVersion {
		return fmt.Errorf("QEMU %s is too old: rackless needs %d.0 or newer (on Debian 12: apt-get install -t "+
			"bookworm-backports qemu-system-x86; make setup does it)", version, minVersion)
	}
	return nil
}

// probeLimit bounds the trial boot under KVM. One that works takes about a second to its agent; one
// that does not never ends.
const probeLimit = 8 * time.Second

// emulatedProbeLimit is the same in a host that is emulated itself, with all that it offers to its guests.
const emulatedProbeLimit = 4 * time.Minute

// probeResult is what a probe found, kept until the next boot of the host.
type probeResult struct {
	BootID string `json:"boot_id"`
	QEMU   string `json:"qemu"`
	Image  string `json:"image"`
	UID    int    `json:"uid"`
	Usable bool   `json:"usable"`
	Reason string `json:"reason,omitempty"`
}

// ProbeKVM finds out whether a stock kernel boots under KVM here, by booting one: there are
// machines whose /dev/kvm opens and creates a virtual CPU that then never gets anywhere. The answer
// is kept in cache for this boot of the host.
func (d *Driver) ProbeKVM(ctx context.Context, cache string) (usable bool, reason string, err error) {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return false, "no permission for /dev/kvm: add the user to group kvm", nil
		}
		return false, "no /dev/kvm: virtualisation is off in the firmware, or this is a virtual machine " +
			"without nesting", nil
	}
	f.Close()

	boot, err := vm.BootID()
	if err != nil {
		return false, "", err
	}
	want := probeResult{BootID: boot, QEMU: d.Version, Image: d.Image.Key, UID: os.Getuid()}
	path := filepath.Join(cache, "kvm-probe.json")
	unlock, err := lockFile(ctx, filepath.Join(cache, "kvm-probe.lock")) // two labs that come up at once find out once
	if err != nil {
		return false, "", err
	}
	defer unlock()
	if b, err := os.ReadFile(path); err == nil {
		var have probeResult
		if json.Unmarshal(b, &have) == nil {
			want.Usable, want.Reason = have.Usable, have.Reason
			if have == want {
				return have.Usable, have.Reason, nil
			}
		}
	}
	want.Usable, want.Reason = d.bootKVM(ctx, cache)
	if ctx.Err() != nil {
		return false, "", context.Cause(ctx)
	}
	b, err := json.Marshal(want)
	if err != nil {
		return false, "", err
	}
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return false, "", err
	}
	return want.Usable, want.Reason, os.Rename(path+".new", path)
}

// bootKVM boots the image under KVM once.
func (d *Driver) bootKVM(ctx context.Context, cache string) (bool, string) {
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	work := filepath.Join(cache, ".k")
	err := os.RemoveAll(work) // of a process that was killed: this one has the lock
	if err == nil {
		err = os.Mkdir(work, 0o700)
	}
	if err != nil {
		return false, fmt.Sprintf("the trial boot could not be made: %v", err)
	}
	defer os.RemoveAll(work)
	s := Spec{Lab: "probe", Name: "kvm", Dir: work, CPUs: 1, Memory: 256 << 20}
	c, err := d.start(machine{spec: s, accel: "kvm", image: d.Image}, nil, true)
	if err != nil {
		return false, fmt.Sprintf("the trial boot could not be made: %v", err)
	}
	defer c.kill()
	ctx, cancel := c.context(ctx, "the trial boot")
	defer cancel()
	limit := probeLimit
	if d.EmulatedHost {
		limit = emulatedProbeLimit
	}
	ctx, cancelTime := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("/dev/kvm opens, but a stock kernel did not boot under it within %v", limit))
	defer cancelTime()
	agent, err := qapi.DialAgent(ctx, socketPath(work, "ga"))
	if err != nil {
		return false, c.explain(ctx, "the trial boot", err).Error()
	}
	defer agent.Close()
	return true, ""
}
