package inspect

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func node(id int, cpumap, kib, distance string) files {
	dir := nodeDir + "/node" + strconv.Itoa(id) + "/"
	f := files{}
	if cpumap != "none" {
		f[dir+"cpumap"] = cpumap
	}
	if kib != "" {
		prefix := "Node " + strconv.Itoa(id) + " "
		f[dir+"meminfo"] = "\n" + prefix + "MemTotal:       " + kib + " kB\n" + prefix + "MemFree:        1024 kB\n" +
			prefix + "HugePages_Total:     0"
	}
	if distance != "" {
		f[dir+"distance"] = distance
	}
	return f
}

func cpus(t testing.TB, list string) topology.CPUSet {
	t.Helper()
	set, err := topology.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var fourCPUs = cpuShape{packages: 1, cores: 4, threads: 1, coresPerL3: 4}.files()

func TestReadNUMANodes(t *testing.T) {
	t.Parallel()
	const gib = "1048576"
	mem := func(n topology.NUMANode) topology.NUMANode {
		n.MemoryBytes, n.FreeBytes = new(uint64(1<<30)), new(uint64(1<<20))
		return n
	}
	unread := func(path, why string) topology.Unread {
		return topology.Unread{Path: "/" + nodeDir + "/" + path, Why: why}
	}
	tests := []struct {
		name   string
		tree   files
		want   []topology.NUMANode
		unread []topology.Unread
	}{
		{
			"two nodes whose distances differ by direction",
			fourCPUs.with(node(0, "3", gib, "10 21"), node(1, "c", gib, "20 10")),
			[]topology.NUMANode{
				mem(topology.NUMANode{ID: 0, CPUs: cpus(t, "0-1"), Distances: []int{10, 21}}),
				mem(topology.NUMANode{ID: 1, CPUs: cpus(t, "2-3"), Distances: []int{20, 10}}),
			}, nil,
		},
		{
			"numbers with gaps, and a node without CPUs",
			fourCPUs.with(node(8, "0000,00000003", gib, "10 40 80"), node(0, "c", gib, "40 10 80"),
				node(255, "0", gib, "80 80 10"),
				files{nodeDir + "/online": "0,8,255"}),
			[]topology.NUMANode{
				mem(topology.NUMANode{ID: 0, CPUs: cpus(t, "2-3"), Distances: []int{40, 10, 80}}),
				mem(topology.NUMANode{ID: 8, CPUs: cpus(t, "0-1"), Distances: []int{10, 40, 80}}),
				mem(topology.NUMANode{ID: 255, Distances: []int{80, 80, 10}}),
			}, nil,
		},
		{
			"a snapshot without the directory of node 1",
			fourCPUs.with(node(0, "3", "", "10 20 30"), node(2, "c", "", "30 20 10"),
				files{nodeDir + "/online": "0-2"}),
			[]topology.NUMANode{{ID: 0, CPUs: cpus(t, "0-1"), Distances: []int{10, 30}}, {ID: 2, CPUs: cpus(t, "2-3"),
				Distances: []int{30, 10}}}, nil,
		},
		{
			"a directory of a node that is not online",
			fourCPUs.with(node(0, "3", "", "10 20"), node(1, "c", "", "20 10"), node(2, "0", "", ""),
				files{nodeDir + "/online": "0-1"}),
			[]topology.NUMANode{{ID: 0, CPUs: cpus(t, "0-1"), Distances: []int{10, 20}}, {ID: 1, CPUs: cpus(t, "2-3"),
				Distances: []int{20, 10}}},
			[]topology.Unread{unread("online", "does not have nodes 2: they are left out")},
		},
		{
			"a list of nodes that are not there",
			fourCPUs.with(node(3, "f", "", "10"), files{nodeDir + "/online": "0-1"}),
			[]topology.NUMANode{{ID: 3, CPUs: cpus(t, "0-3"), Distances: []int{10}}}, nil,
		},
		{
			"an offline CPU is on no node",
			fourCPUs.with(node(0, "f", gib, "10"), files{cpuDir + "/online": "0-2"}),
			[]topology.NUMANode{mem(topology.NUMANode{CPUs: cpus(t, "0-2"), Distances: []int{10}})}, nil,
		},
		{
			"a node without memory", fourCPUs.with(node(0, "f", "0", "")),
			[]topology.NUMANode{{CPUs: cpus(t, "0-3"), MemoryBytes: new(uint64(0)), FreeBytes: new(uint64(1 << 20))}},
			nil,
		},
		{
			"only a list of CPUs", fourCPUs.with(node(0, "none", "", ""), files{nodeDir + "/node0/cpulist": "0-3"}),
			[]topology.NUMANode{{CPUs: cpus(t, "0-3")}}, nil,
		},
		{
			"only links to CPUs",
			fourCPUs.with(node(0, "none", gib, "10 20"), node(1, "none", gib, "20 10"), files{
				nodeDir + "/node0/cpu0": "-> ../../cpu/cpu0", nodeDir + "/node0/cpu1": "-> ../../cpu/cpu1",
				nodeDir + "/node1/cpu2": "-> ../../cpu/cpu2", nodeDir + "/node1/cpu3": "-> ../../cpu/cpu3",
				nodeDir + "/node1/memory3": "dir",
			}),
			[]topology.NUMANode{
				mem(topology.NUMANode{ID: 0, CPUs: cpus(t, "0-1"), Distances: []int{10, 20}}),
				mem(topology.NUMANode{ID: 1, CPUs: cpus(t, "2-3"), Distances: []int{20, 10}}),
			}, nil,
		},
		{
			"a node alone that does not list its CPUs has all", fourCPUs.with(node(0, "none", "", "10")),
			[]topology.NUMANode{{CPUs: cpus(t, "0-3"), Distances: []int{10}}}, nil,
		},
		{
			"one of two nodes does not list its CPUs",
			fourCPUs.with(node(0, "f", gib, "10 20"), node(1, "none", gib, "20 10")),
			[]topology.NUMANode{mem(topology.NUMANode{CPUs: cpus(t, "0-3"), Distances: []int{10}})},
			[]topology.Unread{unread("node1/cpumap", "missing: the node is left out")},
		},
		{
			"firmware that lists all CPUs in every node",
			fourCPUs.with(node(0, "f", gib, "10 10"), node(1, "f", gib, "10 10")),
			[]topology.NUMANode{mem(topology.NUMANode{CPUs: cpus(t, "0-3"), Distances: []int{10}})},
			[]topology.Unread{unread("node1/cpumap", "CPUs 0-3 are on another node already: the node is left out")},
		},
		{
			"nodes that the kernel was told to make up",
			fourCPUs.with(node(0, "f", gib, "10 10"), node(1, "f", gib, "10 10"),
				files{"proc/cmdline": "ro numa=fake=2U quiet"}),
			[]topology.NUMANode{
				mem(topology.NUMANode{ID: 0, CPUs: cpus(t, "0-3"), Distances: []int{10, 10}}),
				mem(topology.NUMANode{ID: 1, CPUs: cpus(t, "0-3"), Distances: []int{10, 10}}),
			}, nil,
		},
		{
			"rows that cannot be",
			fourCPUs.with(node(0, "1", "", "10 20 20"), node(1, "2", "", "20 0 20 20"), node(2, "4", "", "10 20 x 20"),
				node(3, "8", "", "20 20 256 10")),
			[]topology.NUMANode{
				{ID: 0, CPUs: cpus(t, "0")}, {ID: 1, CPUs: cpus(t, "1")}, {ID: 2, CPUs: cpus(t, "2")},
				{ID: 3, CPUs: cpus(t, "3")},
			},
			[]topology.Unread{
				unread("node0/distance", "3 distances for 4 nodes"),
				unread("node1/distance", `"0" is not a distance from 1 to 255`),
				unread("node2/distance", `"x" is not a distance from 1 to 255`),
				unread("node3/distance", `"256" is not a distance from 1 to 255`),
			},
		},
		{
			"a kernel without NUMA: one node made up of what there is",
			fourCPUs.with(files{"proc/meminfo": "MemTotal:       1048576 kB\nMemFree:           1024 " +
				"kB\nHugepagesize:       2048 kB\nHugePages_Total:       4\nHugePages_Rsvd:       1"}),
			[]topology.NUMANode{mem(topology.NUMANode{CPUs: cpus(t, "0-3"),
				Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Total: 4}}})}, nil,
		},
		{
			"one node, and only the machine's memory is known",
			fourCPUs.with(node(0, "f", "", ""), files{"proc/meminfo": "MemTotal:       1048576 kB\nMemFree:          " +
				" 1024 kB"}),
			[]topology.NUMANode{mem(topology.NUMANode{CPUs: cpus(t, "0-3")})}, nil,
		},
		{
			"hugepages of a node",
			fourCPUs.with(node(0, "f", "", ""), files{
				nodeDir + "/node0/hugepages/hugepages-1048576kB/nr_hugepages":   "2",
				nodeDir + "/node0/hugepages/hugepages-1048576kB/free_hugepages": "1",
				nodeDir + "/node0/hugepages/hugepages-2048kB/nr_hugepages":      "512",
				nodeDir + "/node0/hugepages/other/nr_hugepages":                 "7",
			}),
			[]topology.NUMANode{{CPUs: cpus(t, "0-3"), Hugepages: []topology.HugepagePool{
				{SizeBytes: 2 << 20, Total: 512}, {SizeBytes: 1 << 30, Total: 2, Free: new(uint64(1))},
			}}}, nil,
		},
		{
			"memory that is no number", fourCPUs.with(node(0, "f", "much", "")),
			[]topology.NUMANode{{CPUs: cpus(t, "0-3"), FreeBytes: new(uint64(1 << 20))}},
			[]topology.Unread{unread("node0/meminfo", `line "MemTotal": "much" is not a number of kB`)},
		},
		{"no machine at all", files{}, nil, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := test.tree.read(t)
			if diff := cmp.Diff(test.want, h.NUMANodes); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(test.unread, h.Unread); diff != "" {
				t.Errorf("unread (-want +got)\n%s", diff)
			}
		})
	}
}

func TestKindsOfNodes(t *testing.T) {
	t.Parallel()
	bandwidth := func(id int, access, mbps string) files {
		return files{nodeDir + "/node" + strconv.Itoa(id) + "/" + access + "/initiators/read_bandwidth": mbps}
	}
	dax := func(name, target, node, driver string) files {
		return files{
			"sys/bus/dax/devices/" + name:            "-> ../../../devices/" + target,
			"sys/devices/" + target:                  "dir",
			"sys/devices/" + target + "/x":           "",
			"sys/bus/dax/drivers/" + driver:          "dir",
			"sys/devices/" + target + "/driver":      "-> /sys/bus/dax/drivers/" + driver,
			"sys/devices/" + target + "/target_node": node,
		}
	}
	two := fourCPUs.with(node(0, "f", "1024", ""), node(1, "0", "1024", ""))
	tests := []struct {
		name string
		tree files
		want string // by node
	}{
		{"ordinary memory, of which nothing tells", fourCPUs.with(node(0, "3", "1024", ""), node(1, "c", "1024", "")),
			"0: 1:"},
		{"a node without CPUs, of which nothing tells", two, "0: 1:"},
		{"HBM is several times as fast", two.with(bandwidth(0, "access1", "200000"), bandwidth(1, "access0", "800000")),
			"0:dram 1:hbm"},
		{"as fast as the CPUs' own memory", two.with(bandwidth(0, "access1", "200000"),
			bandwidth(1, "access1", "200000")), "0: 1:"},
		{"an NVDIMM", two.with(dax("dax2.0", "LNXSYBUS:00/ACPI0012:00/ndbus0/region2/dax2.0/dax2.0", "1", "kmem")),
			"0:dram 1:nvdimm"},
		{"CXL", two.with(dax("dax0.0", "platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0", "1",
			"kmem")), "0:dram 1:cxl"},
		{"a device that is no node", two.with(dax("dax2.0", "LNXSYBUS:00/ACPI0012:00/ndbus0/region2/dax2.0/dax2.0", "1",
			"device_dax")), "0: 1:"},
		{"a device of a node that is not there", two.with(dax("dax2.0", "ndbus0/dax2.0", "7", "kmem")), "0: 1:"},
		{
			"memory set apart that is fast, and memory set apart that is not",
			two.with(node(2, "0", "1024", ""), dax("dax0.0", "platform/hmem.0/dax0.0", "1", "kmem"),
				dax("dax1.0", "platform/hmem.1/dax1.0", "2", "kmem"),
				bandwidth(0, "access1", "1000"), bandwidth(1, "access1", "10000"), bandwidth(2, "access1", "500")),
			"0:dram 1:hbm 2:",
		},
		{
			"MCDRAM of Knights Landing",
			two.with(files{"proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: " +
				"6\nmodel\t\t: 87\n"}),
			"0:dram 1:hbm",
		},
		{
			"memory of a GPU", two.with(
				files{"proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Status: online\nNode: 1\nNUMA Memblock " +
					"Size: 0x10000000"}),
			"0:dram 1:gpu=0004:04:00.0",
		},
		{
			"GPUs whose memory is no node", two.with(files{
				"proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node: -1",
				"proc/driver/nvidia/gpus/0000:02:00.0/numa_status": "Node: 5",
				"proc/driver/nvidia/gpus/0000:03:00.0/information": "Model: x",
				"proc/driver/nvidia/gpus/0000:04:00.0/numa_status": "none",
			}), "0: 1:",
		},
		{"memory behind a cache of faster memory",
			two.with(files{nodeDir + "/node0/memory_side_cache/index1/size": "25769803776"}), "0:(cache) 1:"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, n := range test.tree.read(t).NUMANodes {
				s := strconv.Itoa(n.ID) + ":" + n.Kind
				if n.GPU != nil {
					s += "=" + n.GPU.String()
				}
				if n.MemoryMode != "" {
					s += "(" + n.MemoryMode + ")"
				}
				got = append(got, s)
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestParseMeminfo(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       meminfo
		bad        bool
	}{
		{"the machine's", "MemTotal:       24684092 kB\nHugePages_Total:       4\nHugepagesize:       2048 kB\n",
			meminfo{"MemTotal": 24684092 << 10, "HugePages_Total": 4, "Hugepagesize": 2048 << 10}, false},
		{"a node's", "\nNode 12 MemTotal:       65536 kB\nNode 12 HugePages_Free:     0\n",
			meminfo{"MemTotal": 65536 << 10, "HugePages_Free": 0}, false},
		{"2.4's table", "        total:    used:    free:\nMem:  131  72 59\nMemTotal:  128 kB\n",
			meminfo{"MemTotal": 128 << 10}, false},
		{"a number that is none", "MemTotal:  -5 kB\nMemFree: 4 kB\n", meminfo{"MemFree": 4096}, true},
		{"more than 64 bits hold", "MemTotal: 18446744073709551615 kB\n", meminfo{}, true},
		{"nothing", "", meminfo{}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseMeminfo(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if errors.Is(err, errMeminfo) != test.bad {
				t.Errorf("error %v; want one: %v", err, test.bad)
			}
		})
	}
}

func FuzzParseMeminfo(f *testing.F) {
	f.Add("MemTotal:       24684092 kB\nHugePages_Total:       4\n")
	f.Add("\nNode 0 MemTotal:       65536 kB\nNode 0 MemFree: x kB\n")
	f.Add("Node :1 kB\n:5\nMemTotal: 18446744073709551615 kB")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := parseMeminfo(text)
		if err == nil && len(m) > strings.Count(text, ":") {
			t.Errorf("%d values of %d lines", len(m), strings.Count(text, ":"))
		}
		for name := range m {
			if name == "" || strings.Contains(name, ":") {
				t.Errorf("value named %q", name)
			}
		}
	})
}

func FuzzParseDistances(f *testing.F) {
	f.Add("10 21", 2)
	f.Add("10 20 20 20\n", 4)
	f.Add("10 0", 2)
	f.Add("", 0)
	f.Add("300", 1)
	f.Fuzz(func(t *testing.T, text string, want int) {
		row, err := parseDistances(text, want)
		if err != nil {
			return
		}
		if len(row) != want || slices.ContainsFunc(row, func(d int) bool { return d < 1 || d > 255 }) {
			t.Errorf("parseDistances(%q, %d) = %v", text, want, row)
		}
	})
}

// A virtual machine's kernel may count just the memory used so far.
func TestMemoryOfTheOneNodeOfAVirtualMachine(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]uint64{"fpu hypervisor": 1 << 30, "fpu": 1 << 20} {
		cpu := "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nflags : " + flags + "\n"
		r := fourCPUs.with(files{"proc/cpuinfo": cpu, "proc/meminfo": "MemTotal: 1048576 kB\nMemFree: 1024 kB",
			nodeDir + "/node0/cpumap":  "f",
			nodeDir + "/node0/meminfo": "Node 0 MemTotal: 1024 kB\nNode 0 MemFree: 512 kB\n"}).reader(t)
		r.readSystem()
		r.readNUMANodes()
		r.readMemory()
		if n := r.h.NUMANodes; len(n) != 1 || *n[0].MemoryBytes != want {
			t.Errorf("%s: %+v, want %d bytes", flags, n, want)
		}
	}
}
