package diagnose

import (
	"fmt"
	"testing"

	"github.com/rackless/rackless/machine/topology"
)

func pages(h *topology.Host, byNode ...uint64) {
	var sum uint64
	for i, n := range byNode {
		h.NUMANodes[i].Hugepages[1].Total = n
		sum += n
	}
	h.Memory.Hugepages[1].Total = sum
}

func memoryCases() []testCase {
	return []testCase{
		{id: "RL040", found: true, name: "four pages short", set: func(h *topology.Host) { pages(h, 16, 16, 16, 12) }},
		{id: "RL040", found: true, name: "enough in total, one node short", set: func(h *topology.Host) {
			withCmdline(h, "hugepagesz=1G hugepages=0:16,1:16,2:16,3:16")
			pages(h, 17, 17, 16, 14)
		}},
		{id: "RL040", found: true, name: "a node that does not exist", set: func(h *topology.Host) {
			withCmdline(h, "hugepagesz=1G hugepages=0:16,4:16")
		}},
		{id: "RL040", found: true, name: "pages of the default size, known by node only", set: func(h *topology.Host) {
			withCmdline(h, "hugepages=1024")
			h.Memory.DefaultHuge, h.Memory.Hugepages = nil, nil
		}},
		{id: "RL040", found: false, name: "as many as asked for"},
		{id: "RL040", found: false, name: "more than asked for", set: func(h *topology.Host) {
			pages(h, 20, 20, 20, 20)
		}},
		{id: "RL040", found: false, name: "the second number for a size is ignored, as the kernel does",
			set: func(h *topology.Host) {
				withCmdline(h, "hugepagesz=1G hugepages=64 hugepagesz=1G hugepages=128")
			}},
		{id: "RL040", found: false, name: "pools are not known", set: func(h *topology.Host) {
			h.Memory.Hugepages = nil
			for i := range h.NUMANodes {
				h.NUMANodes[i].Hugepages = nil
			}
		}},

		{id: "RL041", found: true, name: "no pool of 1 GiB", set: func(h *topology.Host) {
			h.Memory.Hugepages = h.Memory.Hugepages[:1]
			for i := range h.NUMANodes {
				h.NUMANodes[i].Hugepages = h.NUMANodes[i].Hugepages[:1]
			}
		}},
		{id: "RL041", found: true, name: "a size that no x86 processor has, asked for twice",
			set: func(h *topology.Host) {
				withCmdline(h, "hugepagesz=16M hugepages=64 hugepagesz=16M hugepages=64")
				h.Memory.Hugepages = nil
			}},
		{id: "RL041", found: false, name: "the pool is there"},
		{id: "RL041", found: false, name: "only /proc/meminfo was read, which has the default size",
			set: func(h *topology.Host) {
				h.Memory.Hugepages = h.Memory.Hugepages[:1]
				for i := range h.NUMANodes {
					h.NUMANodes[i].Hugepages = nil
				}
			}},
		{id: "RL041", found: false, name: "a size is named, and no pages are asked for", set: func(h *topology.Host) {
			withCmdline(h, "hugepagesz=16M")
		}},

		{id: "RL042", found: true, name: "all on node 0", set: func(h *topology.Host) { pages(h, 64, 0, 0, 0) }},
		{id: "RL042", found: false, name: "asked for by node", set: func(h *topology.Host) {
			withCmdline(h, "hugepagesz=1G hugepages=0:64")
			pages(h, 64, 0, 0, 0)
		}},
		{id: "RL042", found: false, name: "on two nodes", set: func(h *topology.Host) { pages(h, 32, 0, 32, 0) }},
		{id: "RL042", found: false, name: "another node has pages of another size", set: func(h *topology.Host) {
			pages(h, 64, 0, 0, 0)
			h.NUMANodes[1].Hugepages[0].Total = 512
		}},
		{id: "RL042", found: false, name: "the only node with memory", set: func(h *topology.Host) {
			pages(h, 64, 0, 0, 0)
			for i := 1; i < 4; i++ {
				h.NUMANodes[i].MemoryBytes = new(uint64(0))
			}
		}},
		{id: "RL042", found: false, name: "the pools of another node are not known", set: func(h *topology.Host) {
			pages(h, 64, 0, 0, 0)
			h.NUMANodes[3].Hugepages = nil
		}},

		{id: "RL043", found: true, name: "node 1 is empty", set: func(h *topology.Host) {
			h.NUMANodes[1].MemoryBytes = new(uint64(0))
		}},
		{id: "RL043", found: false, name: "memory is not known", set: func(h *topology.Host) {
			h.NUMANodes[1].MemoryBytes = nil
		}},
		{id: "RL043", found: false, name: "node without CPUs and memory", set: func(h *topology.Host) {
			h.NUMANodes = append(h.NUMANodes, topology.NUMANode{ID: 4, MemoryBytes: new(uint64(0))})
		}},

		{id: "RL044", found: true, name: "host of VMs", set: func(h *topology.Host) {
			h.Memory.Swap = []topology.Swap{{Path: "/dev/dm-1", SizeBytes: 8 * gib, UsedBytes: 12345678}}
		}},
		{id: "RL044", found: true, name: "laptop", from: laptop},
		{id: "RL044", found: false, name: "compressed memory", set: func(h *topology.Host) {
			h.Memory.Swap = []topology.Swap{{Path: "/dev/zram0", SizeBytes: 8 * gib}}
		}},

		{id: "RL045", found: true, name: "host of VMs", set: func(h *topology.Host) {
			h.Memory.NUMABalancing = "1"
		}},
		{id: "RL045", found: true, name: "two nodes and nothing hosted", from: laptop, set: func(h *topology.Host) {
			h.Memory.NUMABalancing = "3"
			h.NUMANodes = []topology.NUMANode{{ID: 0, CPUs: cpus("0-3"), MemoryBytes: new(uint64(gib))},
				{ID: 1, CPUs: cpus("4-7"), MemoryBytes: new(uint64(gib))}}
		}},
		{id: "RL045", found: false, name: "memory tiering only", set: func(h *topology.Host) {
			h.Memory.NUMABalancing = "2"
		}},
		{id: "RL045", found: false, name: "one node", from: laptop, set: func(h *topology.Host) {
			h.Memory.NUMABalancing = "1"
		}},

		{id: "RL046", found: true, name: "host of VMs", set: func(h *topology.Host) { h.Memory.THP = "always" }},
		{id: "RL046", found: false, name: "laptop", from: laptop},

		{id: "RL047", found: true, name: "host of VMs", set: func(h *topology.Host) { h.Memory.KSM = "1" }},
		{id: "RL047", found: true, name: "laptop", from: laptop, set: func(h *topology.Host) { h.Memory.KSM = "1" }},
		{id: "RL047", found: false, name: "stopped, with what was merged undone", set: func(h *topology.Host) {
			h.Memory.KSM = "2"
		}},
	}
}

func TestTheCommandLineIsReadAsTheKernelDoes(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"hugepagesz=1G hugepages=4":                    "1 GiB 4",
		"hugepages=4 hugepagesz=1G hugepages=2":        "2 MiB 4, 1 GiB 2",
		"default_hugepagesz=1G hugepages=4":            "1 GiB 4",
		"hugepages=4 default_hugepagesz=1g":            "1 GiB 4",
		"hugepagesz=1G hugepages=0:4,1:2":              "1 GiB 6",
		"hugepagesz=1G hugepages=0:4,x:2":              "1 GiB 4",
		"hugepagesz=odd hugepages=4":                   "",
		"hugepages=0":                                  "",
		"hugepages=many":                               "",
		`dyndbg="file x.c +p hugepages=9" hugepages=3`: "2 MiB 3",
		"hugepages=3 -- hugepages=4":                   "2 MiB 3",
		"hugepagesz=2048K hugepages=7":                 "2 MiB 7",
		"hugepagesz=99999999999999999999G hugepages=7": "",
		"hugepagesz=4611686018427387904T hugepages=1":  "",
		// clamped
		"hugepagesz=1G hugepages=18446744073709551615 hugepagesz=512000": "1 GiB 4294967295",
	} {
		h := &topology.Host{Kernel: topology.Kernel{Cmdline: &line}}
		got := ""
		for i, a := range newView(h).hugeAsks() {
			if i > 0 {
				got += ", "
			}
			got += fmt.Sprintf("%s %d", size(a.size), a.total)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestParametersThatAReaderListedStandInForTheLine(t *testing.T) {
	t.Parallel()
	h := &topology.Host{Kernel: topology.Kernel{Asked: []topology.KernelParameter{{Name: "hugepagesz", Asked: "1G"},
		{Name: "hugepages", Asked: "2"}}}}
	if got := newView(h).hugeAsks(); len(got) != 1 || got[0].total != 2 || got[0].size != gib {
		t.Errorf("got %+v, want 2 pages of 1 GiB", got)
	}
}
