package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/vm/qapi"
)

// needEmulation fails if the test run must be complete.
func needEmulation(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("hosts are not emulated with -short")
	}
	for _, program := range []string{"qemu-system-x86_64", "mmdebstrap"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// An emulatedHost is controlled through the command line.
type emulatedHost struct {
	name    string
	profile []string
	run0    string // RACKLESS_RUN
	program string
	env     []string
	onStart func()
	cpu     string // for its commands; "" for any
}

func newEmulated(t *testing.T, name string, profile ...string) *emulatedHost {
	t.Helper()
	run, err := os.MkdirTemp("/tmp", "rl") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// TestMain runs the test binary under this name.
	program := filepath.Join(run, "rackless")
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	e := &emulatedHost{name: name, profile: profile, run0: run, program: program, onStart: func() {},
		env: append(os.Environ(), "RACKLESS_RUN="+run)}
	t.Cleanup(func() {
		e.run(t, "emulate", "rm", name)
		nothingLeft(t, run)
	})
	return e
}

// commandLimit is for nested machines, which take minutes to boot. It exceeds the timeout of up, whose error says more.
const commandLimit = 25 * time.Minute

func (e *emulatedHost) run(t *testing.T, args ...string) (output string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, e.program, args...)
	cmd.Env = e.env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	status = cmd.ProcessState.ExitCode()
	output = stdout.String()
	if status != 0 {
		output += stderr.String()
	}
	return output, status
}

// host runs in the host's shell, as root in its home.
func (e *emulatedHost) host(t *testing.T, command string) (output string, status int) {
	t.Helper()
	argv := []string{"emulate", "-n", e.name, "--"}
	if e.cpu != "" {
		argv = append(argv, "taskset", "-c", e.cpu)
	}
	return e.run(t, append(argv, "sh", "-c", "cd && "+command)...)
}

func (e *emulatedHost) mustHost(t *testing.T, command string) string {
	t.Helper()
	out, status := e.host(t, command)
	if status != 0 {
		t.Fatalf("%s: status %d\n%s", command, status, out)
	}
	return out
}

func (e *emulatedHost) start(t *testing.T, command string) (output string, status int) {
	t.Helper()
	return e.run(t, slices.Concat([]string{"emulate", "--keep"}, e.profile, []string{"--", "sh", "-c", command})...)
}

const bootID = "cat /proc/sys/kernel/random/boot_id"

const reboot = "systemctl reboot"

func (e *emulatedHost) reboot(t *testing.T) {
	t.Helper()
	old := e.mustHost(t, bootID)
	e.host(t, reboot)
	if !e.bootAgain(t, old, commandLimit) {
		t.Fatalf("host %s does not come back", e.name)
	}
}

// offAtReset makes QEMU exit when the guest resets. The same QEMU would take a third longer to boot, because it must
// invalidate the translated code of the previous boot.
func (e *emulatedHost) offAtReset(t *testing.T) {
	t.Helper()
	q, err := qapi.DialQMP(t.Context(), filepath.Join(e.run0, "hosts", e.name, "qmp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Call(t.Context(), "set-action", map[string]string{"reboot": "shutdown"}, nil); err != nil {
		t.Fatal(err)
	}
}

// bootAgain waits for the next boot and its services, and starts the host if QEMU has exited. It returns false if the
// old boot still answers after limit.
func (e *emulatedHost) bootAgain(t *testing.T, old string, limit time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		if id, status := e.start(t, bootID); status == 0 && id != old {
			e.awaitServices(t)
			return true
		}
	}
	return false
}

func (e *emulatedHost) awaitServices(t *testing.T) {
	t.Helper()
	// Until systemd answers, the command fails. "degraded" may be prepare's service at boot.
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(time.Second) {
		out, _ := e.host(t, "systemctl is-system-running --wait; udevadm settle")
		if strings.HasPrefix(out, "running") || strings.HasPrefix(out, "degraded") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("host %s does not end its boot: %s", e.name, out)
		}
	}
}

// fingerprintScript prints all state that prepare may change, except state that a running system changes by itself: the
// slice that libvirtd creates when first asked for domains, its empty directory of storage pools, the CPUs of single
// interrupts, which irqbalance moves, and the clock drift set by rackless emulate. Large files have the times of the
// last write and rename, which cannot be restored: reading them takes an emulated CPU seconds.
const fingerprintScript = `
find /etc /boot /usr/local /var/lib/rackless -xdev \( -path /etc/mtab -o -path /boot/grub/grubenv \
	-o -path /etc/ld.so.cache -o -path /etc/adjtime -o -path /etc/libvirt/storage -empty \) -prune \
	-o -printf '%M %u:%g %p %l\n' 2>/dev/null | sort -k3
find /etc /boot /usr/local -xdev -type f -size -1024k \( -path /boot/grub/grubenv \
	-o -path /etc/ld.so.cache -o -path /etc/adjtime \) -prune -o -xdev -type f -size -1024k -print0 |
	sort -z | xargs -0 sha256sum
find /etc /boot /usr/local -xdev -type f -size +1023k -printf '%p %s bytes, inode %i, changed %C@\n' | sort
cat /proc/cmdline
grep -s '' /sys/devices/system/cpu/isolated /sys/devices/system/cpu/nohz_full \
	/sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages \
	/sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing \
	/proc/irq/default_smp_affinity /sys/bus/pci/devices/*/driver_override \
	/sys/bus/pci/devices/*/sriov_numvfs /sys/bus/pci/devices/*/d3cold_allowed \
	/sys/class/net/*/mtu /sys/class/net/*/address \
	/proc/sys/vm/stat_interval /sys/devices/virtual/workqueue/cpumask \
	/sys/fs/cgroup/*.slice/cpuset.cpus.effective /sys/fs/cgroup/init.scope/cpuset.cpus.effective \
	/sys/fs/cgroup/*/cpuset.cpus.partition | grep -v '^/sys/fs/cgroup/machine.slice/'
ip -o -d link show | sed -E 's/^[0-9]+: //; s/ (state|qdisc) [a-zA-Z_]+//g; s/,LOWER_UP|NO-CARRIER,//g' | sort
ls /sys/bus/pci/devices
find /sys/bus/pci/devices/*/driver /sys/bus/pci/devices/*/iommu_group -maxdepth 0 -printf '%p %l\n'
ls /sys/fs/cgroup | grep -v '^machine.slice$'
grep -o '^vfio[^ ]*' /proc/modules | sort
grep hugetlbfs /proc/mounts
true
`

func diffLines(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

func (e *emulatedHost) fingerprint(t *testing.T) string {
	t.Helper()
	return e.mustHost(t, fingerprintScript)
}
