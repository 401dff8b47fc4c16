package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/vm/qapi"
)

// minVersion introduced the igb NIC with SR-IOV.
const minVersion = 8

// An Emulator is a QEMU executable.
type Emulator struct {
	Path    string
	Version string   // "10.0.2"
	Lead    []string // of an uninstalled QEMU's loader
}

// Program names the emulator for Go's name of an architecture.
func Program(arch string) string {
	if arch == "arm64" {
		return "qemu-system-aarch64"
	}
	return "qemu-system-x86_64"
}

// Find returns the installed emulator for this machine and its version ("10.0.2"). The error says how to get one, with
// path and version if it is too old.
func Find() (path, version string, err error) { return FindFor(runtime.GOARCH) }

// FindFor is Find for any architecture.
func FindFor(arch string) (path, version string, err error) {
	path, err = exec.LookPath(Program(arch))
	if err != nil {
		return "", "", fmt.Errorf("%s is not in PATH: install QEMU 8.0 or newer; rackless doctor says how",
			Program(arch))
	}
	if version, err = (Emulator{Path: path}).AskVersion(); err != nil {
		return "", "", err
	}
	return path, version, checkVersion(version)
}

// AskVersion returns the version in "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)".
func (e Emulator) AskVersion() (string, error) {
	out, err := e.command("--version").Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok && len(e.Stderr) > 0 { // for example, a missing library
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(e.Stderr))
		}
		return "", fmt.Errorf("%s --version: %w", e.Path, err)
	}
	var v string
	if _, err := fmt.Sscanf(string(out), "QEMU emulator version %s", &v); err != nil {
		return "", fmt.Errorf("%s --version: unexpected %.80q", e.Path, out)
	}
	return v, nil
}

func (e Emulator) command(args ...string) *exec.Cmd {
	args = append(append([]string(nil), e.Lead...), args...)
	trace.Runs("", append([]string{e.Path}, args...))
	return exec.Command(e.Path, args...)
}

// HasVFIOUser asks for devices in other processes (since QEMU 10.1, depending on the build).
func (e Emulator) HasVFIOUser() bool {
	var major, minor int
	if n, _ := fmt.Sscanf(e.Version, "%d.%d", &major, &minor); n < 2 || major < 10 || major == 10 && minor < 1 {
		return false
	}
	return e.Has("vfio-user-pci")
}

// Has reports whether QEMU supports a device.
func (e Emulator) Has(device string) bool { return e.command("-device", device+",help").Run() == nil }

func checkVersion(version string) error {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return fmt.Errorf("QEMU version %q: want a number first", version)
	}
	if n < minVersion {
		return fmt.Errorf("QEMU %s is too old: rackless needs %d.0 or newer; rackless doctor says how to get it",
			version, minVersion)
	}
	return nil
}

// A Probe is a trial boot under KVM.
type Probe struct {
	BootID string `json:"boot_id"` // of this machine
	QEMU   string `json:"qemu"`    // version
	Image  string `json:"image"`   // key of the booted image
	UID    int    `json:"uid"`
	Usable bool   `json:"usable"`
	Reason string `json:"reason,omitempty"`

	Machine func(dir string) Machine `json:"-"`
	Limit   time.Duration            `json:"-"` // until the agent answers
}

// KVM boots the machine, because some machines have a /dev/kvm whose virtual CPUs never make progress. The caller sets
// QEMU, Image, Machine and Limit; cache keeps the result until the next boot of this machine.
func (p Probe) KVM(ctx context.Context, cache string) (usable bool, reason string, err error) {
	if usable, reason = OpensKVM(); !usable {
		return false, reason, nil
	}
	if err := p.identify(); err != nil {
		return false, "", err
	}
	// Two labs probe only once.
	unlock, err := Lock(ctx, cache, "kvm-probe", func() {})
	if err != nil {
		return false, "", err
	}
	defer unlock()
	known := p.known(cache)
	if i := slices.IndexFunc(known, p.same); i >= 0 {
		return known[i].Usable, known[i].Reason, nil
	}
	err = p.boot(ctx, filepath.Join(cache, ".k"))
	if ctx.Err() != nil {
		return false, "", context.Cause(ctx)
	}
	if p.Usable = err == nil; !p.Usable {
		p.Reason = err.Error()
	}
	return p.Usable, p.Reason, atomicfile.WriteJSON(filepath.Join(cache, probeFile), append(known, p))
}

// Known returns a result of KVM without a boot.
func (p Probe) Known(cache string) (usable bool, reason string, known bool) {
	if usable, reason = OpensKVM(); !usable {
		return false, reason, true
	}
	if p.identify() != nil {
		return false, "", false
	}
	all := p.known(cache)
	if i := slices.IndexFunc(all, p.same); i >= 0 {
		return all[i].Usable, all[i].Reason, true
	}
	return false, "", false
}

const probeFile = "kvm-probe.json"

func (p *Probe) identify() (err error) {
	p.BootID, err = BootID()
	p.UID = os.Getuid()
	return err
}

func (p *Probe) same(k Probe) bool { return k.QEMU == p.QEMU && k.Image == p.Image && k.UID == p.UID }

// known returns the results since this machine's boot; an unreadable file has none. Other QEMUs, images and users may
// have other results, and labs alternate.
func (p *Probe) known(cache string) []Probe {
	var all []Probe
	_ = atomicfile.ReadJSON(filepath.Join(cache, probeFile), &all)
	return slices.DeleteFunc(all, func(k Probe) bool { return k.BootID != p.BootID })
}

// OpensKVM reports whether this user may use /dev/kvm, or why not.
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

func (p Probe) boot(ctx context.Context, dir string) error {
	err := os.RemoveAll(dir) // left by a killed process
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
