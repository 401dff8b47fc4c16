package libvirttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestNothingIsLeftOfADaemon(t *testing.T) {
	for program, debian := range Programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("no %s: install Debian's %s", program, debian)
			}
			t.Skipf("no %s: install Debian's %s to run this test", program, debian)
		}
	}
	d, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			_ = d.Stop() // this may be the very step that fails
		}
	}()
	const domain = `<domain type='qemu'><name>x</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>` +
		`<os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features></domain>`
	file := filepath.Join(d.Dir, "x.xml")
	if err := os.WriteFile(file, []byte(domain), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Virsh("create", file); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range []string{"qemu/run/x.pid", "virtlogd.pid"} {
		b, err := os.ReadFile(filepath.Join(d.Dir, "run", "libvirt", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		// there is no notification
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			// A zombie, if a container's first process does not reap.
			b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			if err != nil || strings.Contains(string(b), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("process %d is left: %s", pid, b)
				break
			}
		}
	}
	if _, err := os.Stat(d.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}
