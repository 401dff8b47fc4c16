package rig

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/emulated"
	"github.com/rackless/rackless/study"
)

// TestMain lets the test binary act as a lab's daemon, which Up starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == emulated.DaemonCommand {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		err := emulated.RunDaemon(ctx, os.Args[2], os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nodeDirs takes images from the user's cache. Missing prerequisites skip a test, or fail it if tests must be complete.
func nodeDirs(t *testing.T) rack.Dirs {
	t.Helper()
	if testing.Short() {
		t.Skip("boots nodes: not with -short")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dirs, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.MkdirTemp("", "rl-rig-") // socket paths have at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	dirs.Run, dirs.Data = run, run
	return dirs
}

func newRig(t *testing.T, labText, factors string) (*Rig, error) {
	t.Helper()
	return rigOf(t, labText, "iperf3", factors)
}

func rigOf(t *testing.T, labText, test, factors string) (*Rig, error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "lab.yaml")
	if err := os.WriteFile(file, []byte(labText), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := study.Parse("study.yaml", []byte("name: s\nlab: lab.yaml\nmeasure: [{test: "+test+"}]\nfactors:\n"+
		factors))
	if err != nil {
		t.Fatal(err)
	}
	return New(rack.Dirs{Run: dir, Cache: dir, Data: dir}, spec, file, rack.Options{}, nil)
}

const pairLab = "# two nodes\nname: pair\nnodes:\n  vm00: {}\n  vm01:\n    cpus: 2\n"

func TestTheLabOfACellHasItsKeys(t *testing.T) {
	t.Parallel()
	r, err := newRig(t, pairLab, "  lab.fabric.mtu: [1500, 9000]\n  lab.nodes.vm01.cpus: [1, 4]\n  "+
		"lab.nodes.vm00.memory: [512MiB, 1GiB]\n")
	if err != nil {
		t.Fatal(err)
	}
	l, err := r.labFor(map[string]string{"lab.fabric.mtu": "9000", "lab.nodes.vm01.cpus": "4",
		"lab.nodes.vm00.memory": "1GiB"})
	if err != nil {
		t.Fatal(err)
	}
	if l.Nodes[0].Name != "vm00" || l.Nodes[0].NICs[0].Addr.String() != "10.0.0.1/24" {
		t.Errorf("the nodes are not in the order of the file: %+v", l.Nodes)
	}
	if l.Fabric.MTU != 9000 || l.Nodes[1].CPUs != 4 || l.Nodes[0].Memory != 1<<30 || l.Nodes[0].CPUs != 1 {
		t.Errorf("got MTU %d, nodes %+v", l.Fabric.MTU, l.Nodes)
	}
	if l, err = r.labFor(map[string]string{"lab.fabric.mtu": "1500"}); err != nil || l.Fabric.MTU != 1500 ||
		l.Nodes[1].CPUs != 2 {
		t.Errorf("one cell changes another: %v, %+v", err, l)
	}
}

func TestCellsThatCannotBeHadAreRefusedBeforeAnythingIsMeasured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, lab, factors, want string }{
		{"no such key", pairLab, "  lab.fabric.mut: [1, 2]\n", "lab.yaml with fabric.mut: 1"},
		{"a key below a value", pairLab, "  lab.name.first: [a, b]\n",
			"factor lab.name.first: name has no keys of its own"},
		{"a value out of range", pairLab, "  lab.fabric.mtu: [1500, 99999999]\n", "with fabric.mtu: 99999999"},
		{"an impairment that is none", pairLab, "  link.loss: [\"0\", many]\n", "factor link.loss: level many"},
		{"impairments that do not fit together", pairLab, "  link.jitter: [\"0\", 1ms]\n", "jitter"},
		{"a real host's placement", pairLab, "  placement: [default, wrong-numa]\n",
			"it takes a lab with driver: libvirt"},
		{"one node", "name: one\nnodes:\n  vm00: {}\n", "  link.loss: [\"0\", 1%]\n", "lab one has 1 node"},
		{"words that no test has", pairLab, "  test.way: [plain, staged]\n", "iperf3 has no variants"},
		{"a GPU", "name: gpu\nnodes:\n  vm00: {gpus: 1}\n  vm01: {}\n", "  link.loss: [\"0\", 1%]\n", "vm00"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := newRig(t, tt.lab, tt.factors); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestTestsOfACell(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ test, factors, want string }{
		{"ib_write_bw", "  test.pairs: [plain, q4]\n", ""},
		{"ib_write_bw", "  test.nic: [nic0, nic1]\n",
			"measure: ib_write_bw/nic1: node vm00 has no NIC 1: it has 1, numbered from 0"},
		{"ib_write_bw", "  test.pairs: [plain, nine]\n", `test "ib_write_bw/nine": "nine" is unknown`},
	} {
		if _, err := rigOf(t, pairLab, tt.test, tt.factors); (err == nil) != (tt.want == "") ||
			err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s, %s: error %v, want %q", tt.test, tt.factors, err, tt.want)
		}
	}
	four := "name: four\nnodes: {vm: {count: 4}}\n"
	if _, err := rigOf(t, four, "incast", "  test.pairs: [plain, q4]\n"); err == nil ||
		!strings.Contains(err.Error(), "measure: incast: it takes no words of factors, and one makes it incast/q4") {
		t.Errorf("an incast: error %v", err)
	}
}

func TestWhichCPUsAreProtected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ all, asked, want, err string }{
		{"0-7", "", "4-7", ""},
		{"0-1", "", "1", ""},
		{"3", "", "3", ""},
		{"0-7", "2-3", "2-3", ""},
		{"0-7", "6-9", "", "this machine has CPUs 0-7"},
		{"0-7", "x", "", `protected_cpus "x"`},
	} {
		all, err := topology.ParseCPUSet(tt.all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := protect(all, tt.asked)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s of %s: %v, want %s", tt.asked, tt.all, err, tt.err)
			}
			continue
		}
		if err != nil || got.String() != tt.want {
			t.Errorf("%s of %s: %s, %v; want %s", tt.asked, tt.all, got, err, tt.want)
		}
	}
}

func TestTheStateOfAMachine(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const cpu = "sys/devices/system/cpu/"
	m := machine{root: fstest.MapFS{
		"proc/sys/kernel/random/boot_id":                  file("abc\n"),
		"proc/sys/kernel/osrelease":                       file("6.1.0-53-amd64\n"),
		"proc/uptime":                                     file("12.34 20.00\n"),
		"proc/stat":                                       file("cpu  100 0 50 1000 0 0 0 25 0 0\n"),
		cpu + "online":                                    file("0-1\n"),
		cpu + "intel_pstate/no_turbo":                     file("1\n"),
		cpu + "cpu0/cpufreq/scaling_governor":             file("powersave\n"),
		cpu + "cpu1/cpufreq/scaling_governor":             file("performance\n"),
		cpu + "cpu0/cpufreq/scaling_max_freq":             file("3000000\n"),
		cpu + "cpu1/cpufreq/scaling_max_freq":             file("3500000\n"),
		cpu + "cpu0/thermal_throttle/core_throttle_count": file("2\n"),
		cpu + "cpu1/thermal_throttle/core_throttle_count": file("3\n"),
		"proc/7/stat": file("7 (a b) S 1 1 1 0 -1 4 1 0 0 0 150 50 0 0 20 " +
			"0 1 0 5\n"),
		"proc/8/cmdline": file("gone"),
		"proc/9/comm":    file("virtqemud\n"),
		"proc/10/comm":   file("virsh\n"),
		"proc/11/comm":   file("libvirtd\n"),
		"proc/12/comm":   file("a) (libvirtd\n"),
		"proc/13/stat":   file("13 (libvirtd"),
	}}
	if got := m.helpers(); !slices.Equal(got, []int{9, 11}) && !slices.Equal(got, []int{11, 9}) {
		t.Errorf("processes %v are of libvirt, want 9 and 11", got)
	}
	s, err := m.state()
	if err != nil {
		t.Fatal(err)
	}
	want := study.HostState{At: s.At, BootID: "abc", Uptime: 12.34, Governors: []string{"performance", "powersave"},
		MaxMHz: 3500, MinMHz: 3000, Turbo: "off", Kernel: "6.1.0-53-amd64", Throttles: 5, Steal: 0.25, Busy: 1.5,
		CPUs: 2}
	if fmt.Sprintf("%+v", *s) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", *s, want)
	}
	if got := m.processTime(7); got != 2 {
		t.Errorf("process 7 used %v s, want 2", got)
	}
	if got := m.processTime(8); got != 0 {
		t.Errorf("a process that is gone used %v s", got)
	}
}

func TestWhetherCPUsMayRunFaster(t *testing.T) {
	t.Parallel()
	const cpu = "sys/devices/system/cpu/"
	for _, tt := range []struct {
		name  string
		files map[string]string // below the cpu directory
		want  string
	}{
		{"intel_pstate lets them", map[string]string{"intel_pstate/no_turbo": "0\n"}, "on"},
		{"intel_pstate keeps them from it", map[string]string{"intel_pstate/no_turbo": "1\n"}, "off"},
		{"acpi-cpufreq lets them", map[string]string{"cpufreq/boost": "1\n"}, "on"},
		{"acpi-cpufreq keeps them from it", map[string]string{"cpufreq/boost": "0\n"}, "off"},
		{"amd-pstate keeps each from it", map[string]string{"cpu0/cpufreq/boost": "0\n", "cpu1/cpufreq/boost": "0\n"},
			"off"},
		{"amd-pstate lets one", map[string]string{"cpu0/cpufreq/boost": "0\n", "cpu1/cpufreq/boost": "1\n"},
			"on some CPUs"},
		{"the kernel says nothing", map[string]string{"online": "0-1\n"}, ""},
		{"the kernel says something else", map[string]string{"cpufreq/boost": "perhaps\n"}, ""},
	} {
		root := fstest.MapFS{"proc/stat": {Data: []byte("cpu  100 0 50 1000 0 0 0 25 0 0\n")}}
		for name, text := range tt.files {
			root[cpu+name] = &fstest.MapFile{Data: []byte(text)}
		}
		if s, err := (machine{root: root}).state(); err != nil || s.Turbo != tt.want {
			t.Errorf("%s: turbo %q, %v; want %q", tt.name, s.Turbo, err, tt.want)
		}
	}
}

// stressNG skips without a load, or fails in CI.
func stressNG(t *testing.T) {
	t.Helper()
	if err := loadTool(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func affinities(t *testing.T, group int) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(d), "%d", &pid); err != nil {
			continue
		}
		if g, err := unix.Getpgid(pid); err != nil || g != group {
			continue
		}
		var set unix.CPUSet
		if unix.SchedGetaffinity(pid, &set) != nil {
			continue // process has ended
		}
		var cpus []int
		for c := range 1024 {
			if set.IsSet(c) {
				cpus = append(cpus, c)
			}
		}
		all = append(all, topology.CPUs(cpus...).String())
	}
	return all
}

// The load runs on its CPUs, is counted, and is gone after stop.
func TestLoadRunsWhereItMayAndIsGoneAfterwards(t *testing.T) {
	t.Parallel()
	stressNG(t)
	all, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	one := topology.CPUs(slices.Collect(all.All())[0])
	l, err := startLoad("cpu", 2, one, false)
	if err != nil {
		t.Fatal(err)
	}
	group := l.cmd.Process.Pid
	if err := l.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := machine{root: os.DirFS("/")}
	eventually(t, "stress-ng and its workers are there, and their time is counted", func() bool {
		return len(affinities(t, group)) >= 3 && l.time(m) > 0
	})
	for _, a := range affinities(t, group) {
		if a != one.String() {
			t.Errorf("a process of the load may run on %s, want %s", a, one)
		}
	}
	spent, err := l.stop()
	if err != nil || spent <= 0 {
		t.Errorf("stopped after %v s of CPU time: %v", spent, err)
	}
	if left := affinities(t, group); len(left) > 0 {
		t.Errorf("%d processes of the load are left", len(left))
	}
}

func TestALoadThatEndedIsAnError(t *testing.T) {
	t.Parallel()
	stressNG(t)
	all, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	l, err := startLoad("cpu", 1, all, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(-l.cmd.Process.Pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.ended <- <-l.ended // wait until it has ended
	if _, err := l.stop(); err == nil || !strings.Contains(err.Error(), "the load ended while it was needed") {
		t.Errorf("got %v", err)
	}
}

func TestAllThreadsOfAProcessAreConfined(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	all, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	one := topology.CPUs(slices.Max(slices.Collect(all.All())))
	for _, to := range []topology.CPUSet{one, all} {
		if err := confine(cmd.Process.Pid, to); err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(cmd.Process.Pid, &set); err != nil {
			t.Fatal(err)
		}
		if set.Count() != to.Len() {
			t.Errorf("%d CPUs, want %s", set.Count(), to)
		}
	}
}

func TestTheNoiseFloorIsMeasured(t *testing.T) {
	t.Parallel()
	ms, err := new(Rig).Loop(t.Context())
	if err != nil || ms <= 0 {
		t.Errorf("%v ms, %v", ms, err)
	}
}

// Programs that bind to the node of a GPU that reports -1 bind to node 0, which has misled a study.
func TestDevicesWithoutAPlaceAreSeen(t *testing.T) {
	t.Parallel()
	const devices = "pci/0000:00:02.0/class 0x020000\npci/0000:00:02.0/vendor 0x1af4\npci/0000:00:02.0/numa_node -1\n" +
		"pci/0000:01:00.0/class 0x030200\npci/0000:01:00.0/vendor 0x10de\npci/0000:01:00.0/numa_node -1\n" +
		"pci/0000:02:00.0/class 0x020000\npci/0000:02:00.0/vendor 0x15b3\npci/0000:02:00.0/numa_node 1\n"
	for _, tt := range []struct {
		name, nodes string
		want        []string
	}{
		{"two NUMA nodes", "node/0/cpus 0,1\nnode/1/cpus 2,3\n", []string{"vm00 0000:01:00.0 -1",
			"vm00 0000:02:00.0 1"}},
		{"one", "node/0/cpus 0,1\n", nil},
	} {
		f, err := facts.Parse([]byte("hostname vm00\n" + tt.nodes + devices))
		if err != nil {
			t.Fatal(err)
		}
		if got := devicesOf("vm00", f); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
