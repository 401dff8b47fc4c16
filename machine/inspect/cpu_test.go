package inspect

import (
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func layout(h *topology.Host) string {
	var b strings.Builder
	b.WriteString("online " + h.CPUs.Online.String() + "\n")
	for _, p := range h.Packages {
		b.WriteString("package " + strconv.Itoa(p.ID) + ": " + p.CPUs.String())
		for _, d := range p.Dies {
			b.WriteString(" die " + strconv.Itoa(d.ID) + ": " + d.CPUs.String())
		}
		b.WriteString("\n")
	}
	number := func(name string, v *int) {
		if v != nil {
			b.WriteString(" " + name + strconv.Itoa(*v))
		}
	}
	for _, c := range h.Cores {
		b.WriteString("core " + c.CPUs.String() + ":")
		number("P", c.Package)
		number("#", c.OSID)
		number("die", c.Die)
		number("L", c.L3)
		if c.Kind != "" {
			b.WriteString(" " + c.Kind)
		}
		b.WriteString("\n")
	}
	for _, c := range h.L3 {
		b.WriteString("L3 " + c.CPUs.String())
		if c.SizeBytes != nil {
			b.WriteString(" " + formatSize(*c.SizeBytes))
		}
		b.WriteString("\n")
	}
	for _, u := range h.Unread {
		b.WriteString("unread " + u.Path + ": " + u.Why + "\n")
	}
	return b.String()
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

// topo takes "core_id=0 core_siblings=f". An empty value makes an empty file.
func topo(cpu int, values string) files {
	f := files{}
	for item := range strings.FieldsSeq(values) {
		name, value, _ := strings.Cut(item, "=")
		f[cpuPath(cpu, "topology/"+name)] = value
	}
	return f
}

func allTopo(set string, values string) files {
	cpus, err := topology.ParseCPUSet(set)
	if err != nil {
		panic(err)
	}
	f := files{}
	for cpu := range cpus.All() {
		f = f.with(topo(cpu, values))
	}
	return f
}

var twoByTwo = cpuShape{packages: 2, cores: 2, threads: 2, coresPerL3: 1}

// Package numbers have special rules on x86.
var x86 = files{"proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu lm"}

func TestReadCPUs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		tree files
		want string
	}{
		{
			"two packages with two threads in each core", twoByTwo.files(),
			lines("online 0-7", "package 0: 0-1,4-5", "package 1: 2-3,6-7",
				"core 0,4: P0 #0 L0", "core 1,5: P0 #1 L1", "core 2,6: P1 #0 L2", "core 3,7: P1 #1 L3",
				"L3 0,4 32M", "L3 1,5 32M", "L3 2,6 32M", "L3 3,7 32M"),
		},
		{
			"an offline thread leaves its core with one", twoByTwo.files().with(files{cpuDir + "/online": "0-3,5-7"}),
			lines("online 0-3,5-7", "package 0: 0-1,5", "package 1: 2-3,6-7",
				"core 0: P0 #0 L0", "core 1,5: P0 #1 L1", "core 2,6: P1 #0 L2", "core 3,7: P1 #1 L3",
				"L3 0 32M", "L3 1,5 32M", "L3 2,6 32M", "L3 3,7 32M"),
		},
		{
			"CPU 0 is offline", twoByTwo.files().with(files{cpuDir + "/online": "1-7"}),
			lines("online 1-7", "package 0: 1,4-5", "package 1: 2-3,6-7",
				"core 1,5: P0 #1 L0", "core 2,6: P1 #0 L1", "core 3,7: P1 #1 L2", "core 4: P0 #0 L3",
				"L3 1,5 32M", "L3 2,6 32M", "L3 3,7 32M", "L3 4 32M"),
		},
		{
			"a kernel before the list of online CPUs",
			topo(0, "thread_siblings=01 core_id=0").with(topo(1, "thread_siblings=02 core_id=1"),
				topo(2, "thread_siblings=04 core_id=2"),
				files{cpuPath(1, "online"): "0", cpuPath(2, "online"): "1", cpuPath(3, "crash_notes"): "0"}),
			lines("online 0,2", "core 0: #0", "core 2: #2"),
		},
		{
			"a list of online CPUs that has more than there are directories",
			topo(0, "core_cpus=1").with(files{cpuDir + "/online": "0-87"}),
			lines("online 0", "core 0:", "unread /sys/devices/system/cpu/online: CPUs 1-87 have no directory"),
		},
		{
			"a snapshot with nothing but the list", files{cpuDir + "/online": "0-3"}, lines("online 0-3"),
		},
		{
			"packages without a number",
			topo(0, "core_id=0 thread_siblings=1 core_siblings=1 physical_package_id=-1").
				with(topo(1, "core_id=4 thread_siblings=2 core_siblings=2 physical_package_id=-1")),
			lines("online 0-1", "package 0: 0", "package 1: 1", "core 0: P0 #0", "core 1: P1 #4"),
		},
		{
			"packages of one number that are two, on Itanium",
			topo(0, "core_id=0 thread_siblings=1 core_siblings=1 physical_package_id=0").
				with(topo(1, "core_id=0 thread_siblings=2 core_siblings=2 physical_package_id=0"),
					topo(2, "core_id=0 thread_siblings=4 core_siblings=4 physical_package_id=512")),
			lines("online 0-2", "package 0: 0", "package 1: 1", "package 512: 2", "core 0: P0 #0", "core 1: P1 #0",
				"core 2: P512 #0"),
		},
		{
			"siblings that end at the NUMA node, on x86",
			topo(0, "core_id=0 thread_siblings=1 core_siblings=3 physical_package_id=0").
				with(topo(1, "core_id=1 thread_siblings=2 core_siblings=3 physical_package_id=0"),
					topo(2, "core_id=2 thread_siblings=4 core_siblings=c physical_package_id=0"),
					topo(3, "core_id=3 thread_siblings=8 core_siblings=c physical_package_id=0"), x86),
			lines("online 0-3", "package 0: 0-3", "core 0: P0 #0", "core 1: P0 #1", "core 2: P0 #2", "core 3: P0 #3"),
		},
		{
			"package numbers without sets",
			topo(0, "core_id=0 core_cpus_list=0 physical_package_id=3").with(topo(1,
				"core_id=1 core_cpus_list=1 physical_package_id=3")),
			lines("online 0-1", "package 3: 0-1", "core 0: P3 #0", "core 1: P3 #1"),
		},
		{
			"packages without cores", allTopo("0-1", "core_siblings=3 physical_package_id=0"),
			lines("online 0-1", "package 0: 0-1"),
		},
		{
			"cores without packages, as on a PlayStation 3", allTopo("0-1", "thread_siblings=00000000,00000003"),
			lines("online 0-1", "core 0-1:"),
		},
		{
			"compute units of AMD: siblings with core numbers of their own",
			topo(0, "core_id=0 thread_siblings=3").with(topo(1, "core_id=1 thread_siblings=3"),
				topo(2, "core_id=2 thread_siblings=c"),
				topo(3, "core_id=3 thread_siblings=c")),
			lines("online 0-3", "core 0: #0", "core 1: #1", "core 2: #2", "core 3: #3"),
		},
		{
			"two dies in a package",
			allTopo("0-1", "core_id=0 core_cpus=3 package_cpus=f physical_package_id=0 die_id=0 die_cpus=3").
				with(allTopo("2-3", "core_id=0 core_cpus=c package_cpus=f physical_package_id=0 die_id=1 die_cpus=c")),
			lines("online 0-3", "package 0: 0-3 die 0: 0-1 die 1: 2-3", "core 0-1: P0 #0 die0", "core 2-3: P0 #0 die1"),
		},
		{
			"a die is the package, or a CPU where there are no dies",
			allTopo("0-1", "core_cpus=3 package_cpus=3 physical_package_id=0 die_id=0 die_cpus=3").
				with(topo(2, "core_cpus=4 package_cpus=c physical_package_id=1 die_id=-1 die_cpus=4"),
					topo(3, "core_cpus=8 package_cpus=c physical_package_id=1 die_id=-1 die_cpus=8")),
			lines("online 0-3", "package 0: 0-1", "package 1: 2-3", "core 0-1: P0", "core 2: P1", "core 3: P1"),
		},
		{
			"threads that cannot be", topo(0, "core_cpus=3").with(topo(1, "core_cpus=4"), topo(2, "core_cpus=1")),
			lines("online 0-2", "core 0-1:", "core 2:",
				"unread /sys/devices/system/cpu/cpu2/topology/core_cpus: CPUs 0 cannot be the threads of this core"),
		},
		{
			"a mask that is none",
			topo(0, "core_cpus=xyz"),
			lines("online 0", `unread /sys/devices/system/cpu/cpu0/topology/core_cpus: CPU list "xyz": at byte 0: `+
				`"xyz" is not a word of 32 bits in hexadecimal`),
		},
		{
			"a list that ends with a NUL, as kernels of 2021 wrote them",
			files{cpuPath(0, "topology/core_cpus_list"): "0-1\n\x00",
				cpuPath(1, "topology/core_cpus_list"): "0-1\n\x00"},
			lines("online 0-1", "core 0-1:"),
		},
		{
			"caches of which one has an empty mask, one is for instructions and one is of level 4",
			allTopo("0-1", "core_cpus=3").with(files{
				cpuPath(0, "cache/index2/level"): "3", cpuPath(0, "cache/index2/shared_cpu_map"): "00000000",
				cpuPath(0, "cache/index2/size"):  "9216K",
				cpuPath(0, "cache/index3/level"): "3", cpuPath(0, "cache/index3/shared_cpu_map"): "1",
				cpuPath(0, "cache/index3/type"):  "Instruction",
				cpuPath(0, "cache/index4/level"): "4", cpuPath(0, "cache/index4/shared_cpu_map"): "3",
			}),
			lines("online 0-1", "core 0-1: L0", "L3 0-1 9M"),
		},
		{
			"some cores have no L3, and a size is not told",
			topo(0, "core_cpus=1").with(topo(1, "core_cpus=2"), files{
				cpuPath(0, "cache/index3/level"): "3", cpuPath(0, "cache/index3/shared_cpu_list"): "0",
				cpuPath(0, "cache/index3/size"):  "0K",
				cpuPath(1, "cache/index2/level"): "2", cpuPath(1, "cache/index2/shared_cpu_list"): "1",
			}),
			lines("online 0-1", "core 0: L0", "core 1:", "L3 0"),
		},
		{
			"an L3 of other CPUs, and a size that is none",
			topo(0, "core_cpus=1").with(topo(1, "core_cpus=2"), files{
				cpuPath(0, "cache/index3/level"): "3", cpuPath(0, "cache/index3/shared_cpu_list"): "1",
				cpuPath(0, "cache/index3/size"):  "1K",
				cpuPath(1, "cache/index3/level"): "3", cpuPath(1, "cache/index3/shared_cpu_list"): "1",
				cpuPath(1, "cache/index3/size"): "big",
			}),
			lines("online 0-1", "core 0:", "core 1: L0", "L3 1",
				"unread /sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list: CPUs 1 cannot be those that share "+
					"this cache",
				`unread /sys/devices/system/cpu/cpu1/cache/index3/size: "big" is not a number of KiB`),
		},
		{
			"Intel's two kinds of cores",
			allTopo("0-1", "core_cpus=3").with(topo(2, "core_cpus=4"),
				files{"sys/devices/cpu_core/cpus": "0-1", "sys/devices/cpu_atom/cpus": "2"}),
			lines("online 0-2", "core 0-1: performance", "core 2: efficiency"),
		},
		{
			"Intel's efficiency cores are offline",
			allTopo("0-1", "core_cpus=3").with(files{"sys/devices/cpu_core/cpus": "0-1", cpuDir + "/online": "0-1"}),
			lines("online 0-1", "core 0-1:"),
		},
		{
			"ARM's prime, big and little cores",
			topo(0, "core_cpus=1").with(topo(1, "core_cpus=2"), topo(2, "core_cpus=4"), files{
				cpuPath(0, "cpu_capacity"): "250", cpuPath(1, "cpu_capacity"): "870",
				cpuPath(2, "cpu_capacity"): "1024",
			}),
			lines("online 0-2", "core 0: efficiency", "core 1: performance", "core 2: performance"),
		},
		{
			"ARM's cores of one kind, some a little faster",
			topo(0, "core_cpus=1").with(topo(1, "core_cpus=2"), files{cpuPath(0, "cpu_capacity"): "984",
				cpuPath(1, "cpu_capacity"): "1024"}),
			lines("online 0-1", "core 0:", "core 1:"),
		},
		{
			"no topology, and /proc/cpuinfo knows it",
			files{"proc/cpuinfo": "processor\t: 0\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 0\n\nprocessor\t: " +
				"1\nphysical id\t: 0\nsiblings\t: 2\ncore id\t\t: 0\n\n" +
				"processor\t: 2\nphysical id\t: 1\nsiblings\t: 2\ncore id\t\t: 3"},
			lines("online 0-2", "package 0: 0-1", "package 1: 2", "core 0-1: P0 #0", "core 2: P1 #3"),
		},
		{
			"no topology, and directories for a part of the CPUs only",
			files{cpuPath(3, "physical_id"): "3", "proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\n\nprocessor\t: " +
				"2\n\nprocessor\t: 3\n\ntimebase\t: 14318000"},
			lines("online 0-3"),
		},
		{
			"/proc/cpuinfo of two machines shown as one",
			files{"proc/cpuinfo": "processor\t: 0\nphysical id\t: 1\nsiblings\t: 1\ncore id\t\t: 0\n\nprocessor\t: " +
				"1\nphysical id\t: 1\nsiblings\t: 1\ncore id\t\t: 0"},
			lines("online 0-1", "unread /proc/cpuinfo: more CPUs than siblings in a package: packages and cores "+
				"cannot be told apart"),
		},
		{"nothing at all", files{}, lines("online ")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, layout(test.tree.read(t))); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestCPUStates(t *testing.T) {
	t.Parallel()
	set := func(s string) *topology.CPUSet {
		v, err := topology.ParseCPUSet(s)
		if err != nil {
			t.Fatal(err)
		}
		return &v
	}
	tests := []struct {
		name string
		tree files
		want topology.CPUStates
	}{
		{
			"all lists",
			allTopo("0-5", "core_cpus=3f").with(files{
				cpuDir + "/present": "0-5", cpuDir + "/online": "0-4", cpuDir + "/offline": "5-63",
				cpuDir + "/isolated":  "2-3",
				cpuDir + "/nohz_full": "2", cpuDir + "/smt/control": "on",
			}),
			topology.CPUStates{Present: set("0-5"), Online: *set("0-4"), Offline: set("5"), Isolated: set("2-3"),
				NoHzFull: set("2"), SMT: "on"},
		},
		{
			"nothing is isolated",
			files{cpuPath(0, "topology/core_cpus"): "1", cpuDir + "/isolated": "", cpuDir + "/nohz_full": "  (null)"},
			topology.CPUStates{Present: set("0"), Online: *set("0"), Offline: set(""), Isolated: set(""),
				NoHzFull: set("")},
		},
		{
			"a kernel that tells nothing: unknown is not empty",
			files{"proc/cpuinfo": "processor\t: 0"},
			topology.CPUStates{Online: *set("0")},
		},
		{
			"a list that is broken or hidden is not known",
			files{cpuPath(0, "topology/core_cpus"): "1", cpuDir + "/isolated": "5-2",
				cpuDir + "/nohz_full": "unreadable"},
			topology.CPUStates{Present: set("0"), Online: *set("0"), Offline: set("")},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.tree.read(t).CPUs); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFrequencies(t *testing.T) {
	t.Parallel()
	tree := cpuShape{packages: 1, cores: 3, threads: 1, coresPerL3: 3}.files().with(files{
		cpuPath(1, "cpufreq/scaling_governor"): "powersave", cpuPath(1, "cpufreq/cpuinfo_max_freq"): "0",
		cpuPath(2, "cpufreq"): "-> ../cpufreq/policy2", cpuDir + "/cpufreq/policy2/scaling_governor": "schedutil",
	})
	delete(tree, cpuPath(2, "cpufreq/scaling_governor"))
	delete(tree, cpuPath(2, "cpufreq/cpuinfo_max_freq"))
	h := tree.read(t)
	type frequency struct {
		Governor string
		Max      *int64
	}
	var got []frequency
	for _, c := range h.Cores {
		got = append(got, frequency{c.Governor, c.MaxKHz})
	}
	want := []frequency{{"performance", new(int64(3500000))}, {"powersave", nil}, {"schedutil", nil}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Otherwise a machine of 256 CPUs takes some 3,000 reads.
func TestFewReadsOnALargeMachine(t *testing.T) {
	t.Parallel()
	shape := cpuShape{packages: 2, cores: 64, threads: 2, coresPerL3: 8}
	var asked atomic.Int64
	r := &reader{fs: countingFS{FS: shape.files().tree(t), asked: &asked}, h: new(topology.Host)}
	r.readCPUs()
	if len(r.h.Cores) != 128 || len(r.h.L3) != 16 || len(r.h.Packages) != 2 {
		t.Fatalf("%d cores, %d L3, %d packages; want 128, 16, 2", len(r.h.Cores), len(r.h.L3), len(r.h.Packages))
	}
	// Per core: siblings, number, governor, frequency. Per L3: the list of caches, level, type, set, size.
	if limit := int64(128*4 + 16*5 + 60); asked.Load() > limit {
		t.Errorf("%d reads; want at most %d", asked.Load(), limit)
	}
}
