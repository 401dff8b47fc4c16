package tune

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/rackless/rackless/vm/kerneltest"
)

const inGuest = "RACKLESS_TUNE_GUEST"

// TestMain lets the test binary also act as the program inside the machine.
func TestMain(m *testing.M) {
	if os.Getenv(inGuest) == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(holdPage) != "" {
		hold()
		return
	}
	g := &guestReport{}
	fmt.Println("BEGIN")
	g.run()
	fmt.Println("END")
}

var guestArgs = strings.Fields(
	`-machine q35 -cpu qemu64,+pdpe1gb -m 3072 -smp 8,sockets=2,cores=4,threads=1
-object memory-backend-ram,id=m0,size=1536M -object memory-backend-ram,id=m1,size=1536M
-numa node,nodeid=0,cpus=0-3,memdev=m0 -numa node,nodeid=1,cpus=4-7,memdev=m1 -numa dist,src=0,dst=1,val=21
-device virtio-rng-pci -device virtio-serial-pci`)

// guestPrograms are copied from this machine, with their libraries.
var guestPrograms = []string{"/usr/lib/systemd/systemd", "/usr/bin/systemctl", "/usr/bin/mount", "/usr/bin/umount"}

// guestFiles has stand-ins for irqbalance and virtqemud that do nothing.
var guestFiles = map[string]string{
	"etc/machine-id": "0123456789abcdef0123456789abcdef\n",
	"etc/systemd/system/default.target": "[Unit]\nRequires=tune.service irqbalance.service virtqemud.service " +
		"guest.service\n" +
		"After=irqbalance.service virtqemud.service guest.service\n",
	"etc/systemd/system/irqbalance.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/busybox " +
		"sleep 10000\n",
	"etc/systemd/system/virtqemud.service": "[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=/bin/busybox " +
		"sleep 10000\n",
	// A VM, as libvirt and systemd-machined place it.
	"etc/systemd/system/guest.service": "[Unit]\nDefaultDependencies=no\n[Service]\nSlice=machine.slice\n" +
		"ExecStart=/bin/busybox sleep 10000\n",
	"etc/systemd/system/tune.service": "[Unit]\nDefaultDependencies=no\nAfter=irqbalance.service virtqemud.service " +
		"guest.service\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\n" +
		"ExecStart=/tune.test\nEnvironment=" + inGuest +
		"=1 PATH=/usr/bin:/bin\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/ttyS0\n",
}

// With a real kernel and a real systemd.
func TestOnARealKernelUnderSystemd(t *testing.T) {
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	m := kerneltest.Find(t, guestPrograms...)
	m.Keep(t, "bin/busybox", "usr/bin/numactl", "lib/modules/load", "lib/modules/virtio*")
	m.Add(t, guestRecords(t)...)
	report := m.Run(t, guestArgs, "rdinit=/usr/lib/systemd/systemd systemd.show_status=0 "+
		"systemd.unified_cgroup_hierarchy=1")
	for line := range strings.Lines(report) {
		if text, ok := strings.CutPrefix(line, "FAIL "); ok {
			message, err := strconv.Unquote(strings.TrimSpace(text))
			if err != nil {
				message = text
			}
			t.Errorf("in the machine: %s", message)
		}
	}
	if !strings.Contains(report, "done") {
		t.Error("it did not come to its end")
	}
}

func guestRecords(t *testing.T) []cpio.Record {
	t.Helper()
	files := map[string]cpio.Record{}
	add := func(name, from string) {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = cpio.StaticFile(name, string(b), 0o755)
	}
	files["tune.test"] = kerneltest.Self(t, "tune.test")
	for _, p := range guestPrograms {
		add(p[1:], p)
		for _, lib := range libraries(t, p) {
			add(lib[1:], lib)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, lib := range libraries(t, self) {
		add(lib[1:], lib)
	}
	for name, text := range guestFiles {
		files[name] = cpio.StaticFile(name, text, 0o644)
	}
	var records []cpio.Record
	dirs := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var above []cpio.Record
		for dir := filepath.Dir(name); dir != "." && !dirs[dir]; dir = filepath.Dir(dir) {
			dirs[dir] = true
			above = append(above, cpio.Directory(dir, 0o755))
		}
		slices.Reverse(above)
		records = append(append(records, above...), files[name])
	}
	return records
}

var libraryPath = regexp.MustCompile(`(?m)(?:=> |^\s*)(/\S+) \(0x`)

func libraries(t *testing.T, program string) []string {
	t.Helper()
	out, err := exec.Command("ldd", program).CombinedOutput()
	if err != nil && !bytes.Contains(out, []byte("not a dynamic executable")) {
		t.Fatalf("ldd %s: %v: %s", program, err, out)
	}
	var all []string
	for _, m := range libraryPath.FindAllSubmatch(out, -1) {
		all = append(all, string(m[1]))
	}
	return all
}
