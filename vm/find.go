package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/words"
)

// minVersion is the oldest QEMU that rackless uses: the igb NIC with SR-IOV came with it.
const minVersion = 8

// An Emulator is a QEMU that can be started.
type Emulator struct {
	Path    string
	Version string   // "10.0.2"
	Lead    []string // arguments before all others: those of the loader of a QEMU that is not installed
}

// Program is the name of the emulator of machines of an architecture, which is named as in Go.
func Program(arch string) string {
	return "qemu-system-" + words.Either(arch == "arm64", "aarch64", "x86_64")
}

// Find returns the path of the installed emulator of machines like this one, and its version, e.g. "10.0.2", or an
// error that says how to get one. With the error for one that is too old, it returns them as well.
func Find() (path, version string, err error) { return FindFor(runtime.GOARCH) }

// FindFor is Find for machines of an architecture.
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

// AskVersion runs the emulator with --version and picks the number out of
// "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)".
func (e Emulator) AskVersion() (string, error) {
	out, err := e.command("--version").Output()
	if err != nil {
		if e, ok := errors.AsType[*exec.ExitError](err); ok && len(e.Stderr) > 0 { // a library is missing, say
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

// HasVFIOUser reports whether the emulator connects to devices in other processes. QEMU can since 10.1, if it was built
// with that.
func (e Emulator) HasVFIOUser() bool {
	var major, minor int
	if n, _ := fmt.Sscanf(e.Version, "%d.%d", &major, &minor); n < 2 || major < 10 || major == 10 && minor < 1 {
		return false
	}
	return e.Has("vfio-user-pci")
}

// Has reports whether the emulator has a device.
func (e Emulator) Has(device string) bool { return e.command("-device", device+",help").Run() == nil }

// checkVersion refuses a QEMU that is too old.
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
