// Package kerneltest boots the kernel of lab nodes with a test's own program.
package kerneltest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// TB is a part of *testing.T: only tests may import testing.
type TB interface {
	Helper()
	Context() context.Context
	TempDir() string
	Cleanup(f func())
	Failed() bool
	Log(args ...any)
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// accel runs all CPUs in one thread. With a thread per CPU, QEMU 10 looks up a device in one version of the memory map
// and writes to it by the next, if another CPU maps a device meanwhile, as the kernel does whenever a PCI bridge wakes
// up. It has then aborted (iotlb_to_section) or lost ends of interrupts, after which a CPU waits forever. The clock
// counts instructions, and jumps when all CPUs wait, so the kernel neither notices a busy machine nor waits for a
// driver's delays.
//
// Machines have no HPET: its timer would run on after the kernel has switched to another.
var accel = strings.Fields("-accel tcg,thread=single -icount shift=3,sleep=off -machine hpet=off")

// kernelArgs let the kernel trust the TSC of several CPUs, which counts instructions like all clocks here. Otherwise it
// reads a device's clock, which the Go runtime does all the time.
const kernelArgs = "console=ttyS0 loglevel=3 panic=-1 cryptomgr.notests tsc=reliable "

const limit = 20 * time.Minute

// A Machine is a bootable machine for a test.
type Machine struct {
	QEMU   string   // path
	Lead   []string // its leading arguments, see vm.Emulator
	Image  *image.Image
	Initrd string // path, see Keep and Add
}

// Find returns the image of lab nodes and this machine's QEMU. If a program (path) is missing, it skips the test, or
// fails it if all tests must run.
func Find(t TB, programs ...string) *Machine {
	t.Helper()
	qemu, _, err := vm.Find()
	for _, p := range programs {
		if _, e := os.Stat(p); e != nil {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("no machine can be booted here: %v", err)
	}
	d, err := userdirs.Default(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Node.Ensure(t.Context(), image.Options{Cache: d.Images(), Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	return &Machine{QEMU: qemu, Image: img, Initrd: img.InitramfsPath()}
}

// Self is the running program.
func Self(t TB, name string) cpio.Record {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return cpio.StaticFile(name, string(data), 0o755)
}

// Add adds another archive; the kernel accepts several in sequence.
func (m *Machine) Add(t TB, files ...cpio.Record) {
	t.Helper()
	in, err := os.Open(m.Initrd)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	path := filepath.Join(t.TempDir(), "initrd")
	if err := writeAfter(path, in, files); err != nil {
		t.Fatal(err)
	}
	m.Initrd = path
}

func writeAfter(path string, in io.Reader, files []cpio.Record) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	w := cpio.Newc.Writer(out)
	if err := cpio.WriteRecords(w, files); err != nil {
		return err
	}
	return cpio.WriteTrailer(w)
}

// Run boots the machine with more arguments for QEMU and the kernel, and ends it when its program prints END. It
// returns and logs the lines since BEGIN.
func (m *Machine) Run(t TB, args []string, moreArgs string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.QEMU, append(slices.Concat(m.Lead, accel, args),
		"-nodefaults", "-display", "none", "-no-reboot", "-kernel", m.Image.KernelPath(), "-initrd", m.Initrd,
		"-serial", "stdio", "-append", kernelArgs+moreArgs)...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text, all, ended := between(t, out)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed, so its status means nothing
	if !ended {
		t.Fatalf("%s ended before its machine printed END: %v\n%s\n%s", m.QEMU, context.Cause(ctx), &complaints, all)
	}
	return text
}

// between returns the lines from BEGIN to END, and all that was read.
func between(t TB, r io.Reader) (text, all string, ended bool) {
	t.Helper()
	var inside, whole strings.Builder
	began := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		fmt.Fprintln(&whole, line)
		switch {
		case strings.HasSuffix(line, "BEGIN"): // the firmware prints escape sequences before it
			began = true
		case line == "END":
			return inside.String(), whole.String(), true
		case began:
			t.Log(line)
			fmt.Fprintln(&inside, line)
		}
	}
	return inside.String(), whole.String(), false
}
