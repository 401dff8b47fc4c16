package render

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rackless/rackless/topology"
)

// script returns one script of a case.
func hostScript(t *testing.T, in Input, path string) []byte {
	t.Helper()
	a, ok := render(t, in)[path]
	if !ok {
		t.Fatalf("no %s", path)
	}
	return a.Data
}

func pool(node int, kb int) string {
	return fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages", node, kb)
}

func TestHugepagesComeAndGo(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	for node := range 4 {
		r.write(pool(node, 1048576), []string{"0", "20", "3", "16"}[node])
	}
	script := hostScript(t, hostEPYC(t), "libexec/hugepages.sh")
	r.mustFail(script, "/nr_hugepages: 0, wanted 16", "status")
	for range 2 { // the second start changes nothing and forgets nothing
		r.mustRun(script, "start")
		r.want(map[string]string{pool(0, 1048576): "16", pool(1, 1048576): "20", pool(2, 1048576): "16",
			pool(3, 1048576): "16"})
	}
	r.mustRun(script, "status")
	for range 2 {
		r.mustRun(script, "stop")
		r.want(map[string]string{pool(0, 1048576): "0", pool(1, 1048576): "20", pool(2, 1048576): "3",
			pool(3, 1048576): "16"})
	}
}

func TestANodeThatIsShortOfPagesIsAFailure(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	for node := range 4 {
		r.write(pool(node, 1048576), "0")
	}
	r.write("sys/devices/system/node/node2/compact", "")
	r.write("proc/sys/vm/compact_memory", "")
	// The kernel gives what it has and reports no error.
	r.program("cat", `case $1 in
*/node2/*/nr_hugepages) n=$(/bin/cat "$1"); [ "$n" -le 9 ] || n=9; echo "$n" ;;
*) exec /bin/cat "$@" ;;
esac`)
	script := hostScript(t, hostEPYC(t), "libexec/hugepages.sh")
	r.mustFail(script, "node2/hugepages/hugepages-1048576kB/nr_hugepages is 9, wanted 16: stop what uses NUMA node 2",
		"start")
	r.want(map[string]string{pool(3, 1048576): "16", "sys/devices/system/node/node2/compact": "1",
		"proc/sys/vm/compact_memory": ""})
}

func TestAKernelWithoutPagesOfTheSizeIsNamed(t *testing.T) {
	t.Parallel()
	newFakeRoot(t).mustFail(hostScript(t, hostEPYC(t), "libexec/hugepages.sh"),
		"node0/hugepages/hugepages-1048576kB/nr_hugepages is not there: stop what uses NUMA node 0, or boot with",
		"start")
}

func TestGovernorsComeBack(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	file := func(cpu int) string {
		return fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu)
	}
	r.write(file(0), "schedutil")
	r.write(file(1), "performance")
	r.write(file(10), "powersave")
	preference := "sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference"
	r.write(preference, "balance_performance")
	values := func(r *fakeRoot) {
		r.write("proc/sys/kernel/numa_balancing", "1")
		r.write("proc/sys/vm/stat_interval", "1")
		r.write("sys/kernel/mm/ksm/run", "1")
	}
	values(r)
	script := hostScript(t, hostEPYC(t), "libexec/governor.sh")
	for range 2 {
		r.mustRun(script, "start")
		r.want(map[string]string{file(0): "performance", file(1): "performance", file(10): "performance",
			preference: "performance", "proc/sys/kernel/numa_balancing": "0", "proc/sys/vm/stat_interval": "10",
			"sys/kernel/mm/ksm/run": "0"})
	}
	r.mustRun(script, "status")
	r.mustRun(script, "stop")
	r.want(map[string]string{file(0): "schedutil", file(1): "performance", file(10): "powersave",
		preference: "balance_performance", "proc/sys/kernel/numa_balancing": "1", "sys/kernel/mm/ksm/run": "1"})
	without := newFakeRoot(t)
	values(without)
	if out := without.mustRun(script, "start"); !strings.Contains(out, "scaling_governor is not there: nothing to do") {
		t.Errorf("without cpufreq it says %q", out)
	}
}

// epycBus has the functions of the EPYC lab and the bridge above one.
func epycBus(t *testing.T) (*fakeRoot, *pciBus, []byte) {
	r := newFakeRoot(t)
	b := startBus(r)
	b.add("0000:06:00.0", "20", "0x10de", "0x2204", "0x030000", "nvidia")
	b.add("0000:06:00.1", "20", "0x10de", "0x1aef", "0x040300", "snd_hda_intel")
	b.add("0000:00:03.1", "20", "0x1022", "0x1453", "0x060400", "pcieport")
	b.add("0000:21:00.0", "21", "0x10de", "0x2204", "0x030000", "nvidia")
	b.add("0000:21:00.1", "21", "0x10de", "0x1aef", "0x040300", "snd_hda_intel")
	b.add("0000:41:00.0", "37", "0x15b3", "0x1015", "0x020000", "mlx5_core")
	b.add("0000:61:00.0", "39", "0x15b3", "0x1015", "0x020000", "")
	r.write(busDir+"devices/0000:06:00.0/d3cold_allowed", "1")
	return r, b, hostScript(t, hostEPYC(t), "libexec/vfio.sh")
}

func TestDevicesGoToVFIOAndBack(t *testing.T) {
	t.Parallel()
	r, b, script := epycBus(t)
	all := []string{"0000:06:00.0", "0000:06:00.1", "0000:41:00.0", "0000:21:00.0", "0000:21:00.1", "0000:61:00.0"}
	r.mustFail(script, "0000:41:00.0: mlx5_core", "status")
	for range 2 {
		r.mustRun(script, "start")
		for _, a := range all {
			if got := b.driver(a); got != "vfio-pci" {
				t.Errorf("%s is with %q", a, got)
			}
			r.want(map[string]string{busDir + "devices/" + a + "/driver_override": "vfio-pci"})
		}
		r.want(map[string]string{busDir + "devices/0000:06:00.0/d3cold_allowed": "0"})
	}
	if got := b.driver("0000:00:03.1"); got != "pcieport" {
		t.Errorf("the bridge is with %q", got)
	}
	r.mustRun(script, "status")
	r.mustRun(script, "stop")
	for _, a := range all {
		if got := b.driver(a); got != b.home[a] {
			t.Errorf("%s is with %q, before with %q", a, got, b.home[a])
		}
		r.want(map[string]string{busDir + "devices/" + a + "/driver_override": ""})
	}
	r.want(map[string]string{busDir + "devices/0000:06:00.0/d3cold_allowed": "1"})
	r.mustRun(script, "stop")
}

func TestVFIORefusesBeforeItChangesAnything(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*fakeRoot, *pciBus)
		want   string
	}{
		{"another card at the address", func(r *fakeRoot, _ *pciBus) {
			r.write(busDir+"devices/0000:61:00.0/device", "0x1521")
		},
			"0000:61:00.0 is 0x15b3 0x1521, and the plan was made for 0x15b3 0x1015"},
		{"a device that is gone", func(r *fakeRoot, _ *pciBus) {
			os.RemoveAll(r.path(busDir + "devices/0000:61:00.0"))
		}, "0000:61:00.0 is not there"},
		{"no IOMMU", func(r *fakeRoot, _ *pciBus) {
			os.Remove(r.path(busDir + "devices/0000:61:00.0/iommu_group"))
		}, "0000:61:00.0 is in no IOMMU group"},
		{"a neighbour in the group that the host uses", func(_ *fakeRoot, b *pciBus) {
			b.add("0000:61:00.1", "39", "0x15b3", "0x1015", "0x020000", "mlx5_core")
		}, "group 39 of 0000:61:00.0 also has 0000:61:00.1, which the host uses with mlx5_core"},
		{"a GPU in use", func(r *fakeRoot, _ *pciBus) {
			r.write("proc/driver/nvidia/gpus/0000:21:00.0/information", "Model: x\nDevice Minor: \t 1")
			r.open("4242", "dev/nvidia1")
		}, "0000:21:00.0 is in use by processes 4242"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, b, script := epycBus(t)
			tt.change(r, b)
			r.mustFail(script, tt.want, "start")
			for a, home := range b.home {
				if got := b.driver(a); got != home {
					t.Errorf("%s is with %q now; want it left with %q", a, got, home)
				}
			}
		})
	}
}

func TestDevicesOfARunningGuestStay(t *testing.T) {
	t.Parallel()
	r, b, script := epycBus(t)
	r.mustRun(script, "start")
	r.open("777", "dev/vfio/37")
	r.mustFail(script, "in use by process", "stop")
	if got := b.driver("0000:06:00.0"); got != "vfio-pci" {
		t.Errorf("taken away from a guest: %q", got)
	}
}

func TestWhatTheUdevRuleBoundComesBackToo(t *testing.T) {
	t.Parallel()
	for _, rule := range []bool{true, false} {
		r, b, script := epycBus(t)
		dir := busDir + "devices/0000:41:00.0/"
		if err := os.Remove(r.path(dir + "driver")); err != nil {
			t.Fatal(err)
		}
		r.link(dir+"driver", "../../drivers/vfio-pci")
		r.write(dir+"driver_override", "vfio-pci")
		want := "vfio-pci" // somebody else's: not ours to give
		if rule {
			r.write("etc/udev/rules.d/10-rackless-epyc-pair.rules", "")
			want = "mlx5_core"
		}
		r.mustRun(script, "start")
		r.mustRun(script, "stop")
		if err := waitFor(func() bool { return b.driver("0000:41:00.0") == want }); err != nil {
			t.Errorf("udev rule %v: with %q; want %q", rule, b.driver("0000:41:00.0"), want)
		}
	}
}

func TestInterruptsMoveAndComeBack(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	list := func(irq int) string { return fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq) }
	r.write("proc/irq/default_smp_affinity", "ffffffff,ffffffff")
	r.write(list(1), "0-63")
	r.write("proc/irq/1/node", "0")
	r.write(list(2), "0,32")
	r.write(list(3), "24-31")
	r.write("proc/irq/3/node", "3")
	r.write(list(4), "16-23")
	r.write("proc/irq/4/node", "2") // no housekeeping there
	if err := os.MkdirAll(r.path("proc/irq/5"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.link(list(5), "/proc/sys/kernel/ngroups_max") // can be read, and written by nobody: as a managed interrupt
	script := hostScript(t, hostEPYC(t), "libexec/irq.sh")
	for i := range 2 {
		out := r.mustRun(script, "start")
		if want := "3 interrupts moved"; i == 0 && !strings.Contains(out, want) ||
			!strings.Contains(out, "1 cannot be moved") {
			t.Errorf("start says %q", out)
		}
		r.want(map[string]string{"proc/irq/default_smp_affinity": "c0000003,c0000003", list(1): "0-1,32-33",
			list(2): "0,32", list(3): "30-31,62-63", list(4): "0-1,30-33,62-63"})
	}
	r.mustFail(script, "interrupt 5 may run on CPUs", "status")
	r.mustRun(script, "stop")
	r.want(map[string]string{"proc/irq/default_smp_affinity": "ffffffff,ffffffff", list(1): "0-63", list(2): "0,32",
		list(3): "24-31", list(4): "16-23"})
	r.mustRun(script, "stop")
}

// fakeSystemd does to cgroups what systemd does: a drop-in limits a unit, above what an administrator has set.
const fakeSystemd = `echo "$*" >>"$RACKLESS_ROOT/log"
allowed() {
    own=$(sed -n 's/^AllowedCPUs=\(..*\)/\1/p' "$RACKLESS_ROOT/run/systemd/system/$1.d/99-rackless.conf" 2>/dev/null)
    [ -n "$own" ] && echo "$own" || /bin/cat "$RACKLESS_ROOT/allowed/$1"
}
case $1 in
show) [ "$4" = -- ] && allowed "$5" ;;
daemon-reload)
    for dir in "$RACKLESS_ROOT"/sys/fs/cgroup/*/; do
        cpus=$(allowed "$(basename "$dir")")
        echo "$cpus" >"$dir/cpuset.cpus"
        echo "${cpus:-0-63}" >"$dir/cpuset.cpus.effective"
    done ;;
start) [ "$2 $3" = "-- machine.slice" ] ;;
*) exit 9 ;;
esac`

func cgroupRoot(t *testing.T) *fakeRoot {
	r := newFakeRoot(t)
	// "systemctl show --property=AllowedCPUs --value -- UNIT" has its unit fifth.
	r.program("systemctl", fakeSystemd)
	r.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory")
	for _, unit := range []string{"system.slice", "user.slice", "init.scope", "machine.slice"} {
		r.write("sys/fs/cgroup/"+unit+"/cpuset.cpus.effective", "0-63")
		r.write("sys/fs/cgroup/"+unit+"/cpuset.cpus.partition", "member")
		r.write("allowed/"+unit, "")
	}
	r.write("allowed/user.slice", "0-7")
	r.write("sys/devices/virtual/workqueue/cpumask", "ffffffff,ffffffff")
	return r
}

// effective is what the kernel lets a unit use.
func effective(unit string) string { return "sys/fs/cgroup/" + unit + "/cpuset.cpus.effective" }

func TestTheHostLeavesTheCPUsByCgroups(t *testing.T) {
	t.Parallel()
	r := cgroupRoot(t)
	in := hostEPYC(t)
	in.Host.Tenants = []topology.Tenant{{Name: "other"}} // beside whom there is no partition
	script := hostScript(t, in, "libexec/cpuset.sh")
	for range 2 {
		r.mustRun(script, "start")
		r.want(map[string]string{
			effective("system.slice"): "0-1,30-33,62-63", effective("user.slice"): "0-1,30-33,62-63",
			effective("init.scope"): "0-1,30-33,62-63", effective("machine.slice"): "0-63",
			"sys/devices/virtual/workqueue/cpumask":             "c0000003,c0000003",
			"sys/fs/cgroup/machine.slice/cpuset.cpus.partition": "member",
		})
	}
	r.mustRun(script, "status")
	r.mustRun(script, "stop")
	r.want(map[string]string{effective("system.slice"): "0-63", effective("user.slice"): "0-7",
		effective("init.scope"): "0-63", "sys/devices/virtual/workqueue/cpumask": "ffffffff,ffffffff"})
}

func TestAPartitionTakesQEMUsThreadsAlong(t *testing.T) {
	t.Parallel()
	r := cgroupRoot(t)
	script := hostScript(t, hostEPYC(t), "libexec/cpuset.sh")
	r.mustRun(script, "start")
	r.want(map[string]string{
		effective("system.slice"): "1,31,33,63", effective("machine.slice"): "0,2-30,32,34-62",
		"sys/fs/cgroup/machine.slice/cpuset.cpus.partition": "root",
	})
	r.mustRun(script, "status")
	r.mustRun(script, "stop")
	r.want(map[string]string{effective("system.slice"): "0-63", effective("machine.slice"): "0-63",
		"sys/fs/cgroup/machine.slice/cpuset.cpus.partition": "member"})
}

func TestNoPartitionBesideOtherMachines(t *testing.T) {
	t.Parallel()
	if script := string(hostScript(t, hostR740(t), "libexec/cpuset.sh")); strings.Contains(script,
		"\npartition machine.slice") {
		t.Errorf("a partition would take the CPUs of the tenants:\n%s", script)
	}
}

func TestAPartitionThatDoesNotComeAboutIsGivenUp(t *testing.T) {
	t.Parallel()
	r := cgroupRoot(t)
	file := "sys/fs/cgroup/machine.slice/cpuset.cpus.partition"
	r.program("cat", `case $1 in
*/cpuset.cpus.partition)
	read -r now <"$1"
	[ "$now" != root ] || now="root invalid (Cpu list in cpuset.cpus not exclusive)"
	echo "$now" ;;
*) exec /bin/cat "$@" ;;
esac`)
	r.mustFail(hostScript(t, hostEPYC(t), "libexec/cpuset.sh"), "machine.slice does not become a partition", "start")
	r.want(map[string]string{file: "member"})
}

func TestCgroupsOfVersion1AreRefused(t *testing.T) {
	t.Parallel()
	r := newFakeRoot(t)
	r.program("systemctl", "exit 9")
	r.mustFail(hostScript(t, hostEPYC(t), "libexec/cpuset.sh"), "no cpuset controller in cgroup v2", "start")
}

func TestScriptsSayHowTheyAreUsed(t *testing.T) {
	t.Parallel()
	for name, data := range scripts(t) {
		out, err := newFakeRoot(t).run(data, "nonsense")
		if err == nil || !strings.Contains(out, "usage: script.sh") && !strings.Contains(out, "install mstflint") {
			t.Errorf("%s nonsense: %v\n%s", name, err, out)
		}
	}
}
