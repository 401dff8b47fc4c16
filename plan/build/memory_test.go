package build_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

const gib = uint64(1) << 30

// memoryHost has nodes of these sizes in GiB; -1 means unknown.
func memoryHost(t testing.TB, sizes ...int) *topology.Host {
	t.Helper()
	h := described(t, fmt.Sprintf("numa:%d core:8 pu:2", len(sizes)))
	for i, s := range sizes {
		if s >= 0 {
			h.NUMANodes[i].MemoryBytes = new(uint64(s) * gib)
		}
		h.NUMANodes[i].Distances = nil
	}
	return h
}

func pagesText(p *plan.Problem) string {
	var parts []string
	for _, n := range p.NUMANodes {
		if n.Pages == nil {
			parts = append(parts, "?")
			continue
		}
		parts = append(parts, fmt.Sprint(*n.Pages))
	}
	return strings.Join(parts, " ")
}

func pool(size, total, free uint64) topology.HugepagePool {
	return topology.HugepagePool{SizeBytes: size, Total: total, Free: &free}
}

func TestPagesOfNUMANodes(t *testing.T) {
	t.Parallel()
	nodes := func(list string) *topology.CPUSet { return new(set(t, list)) }
	tests := []struct {
		name    string
		host    *topology.Host
		reserve lab.Reserve
		want    string // in pages of 1 GiB
		notes   []string
	}{
		{"a sixteenth is kept", memoryHost(t, 32, 32), lab.Reserve{}, "30 30", nil},
		{"at most 8 GiB, by size", memoryHost(t, 1024, 512), lab.Reserve{}, "1018 509", nil},
		{"at least 512 MiB", memoryHost(t, 2), lab.Reserve{}, "1", nil},
		{"what the lab says", memoryHost(t, 32, 32), lab.Reserve{Memory: new(20 * lab.GiB)}, "22 22", nil},
		{"nothing", memoryHost(t, 32, 32), lab.Reserve{Memory: new(lab.Bytes(0))}, "32 32", nil},
		{"more than there is", memoryHost(t, 32, 8), lab.Reserve{Memory: new(30 * lab.GiB),
			NUMA: []lab.NUMAReserve{{Node: 1, Memory: new(9 * lab.GiB)}}}, "8 0", nil},
		{"a node's own figure replaces its share", memoryHost(t, 32, 32),
			lab.Reserve{NUMA: []lab.NUMAReserve{{Node: 1, Memory: new(10 * lab.GiB)}}}, "30 22", nil},
		{"a node without memory", memoryHost(t, 64, 0), lab.Reserve{}, "60 0", nil},
		{"a node of unknown memory", memoryHost(t, 64, -1), lab.Reserve{}, "60 ?",
			[]string{"the host does not tell the memory of its NUMA nodes (1): the plan cannot say whether it " +
				"is enough"}},
		{"the machine's memory stands for its only node's", altered(memoryHost(t, -1), func(h *topology.Host) {
			h.Memory.TotalBytes = new(16 * gib)
		}), lab.Reserve{},
			"15", nil},
		{"a GPU's own memory is not given", altered(memoryHost(t, 64, 96, 128), func(h *topology.Host) {
			h.NUMANodes[1].Kind, h.NUMANodes[2].Kind = "gpu", "nvdimm"
		}),
			lab.Reserve{}, "60 0 0", []string{"NUMA node 1: gpu memory, not given to the lab",
				"NUMA node 2: nvdimm memory, not given to the lab"}},
		{"memory of CXL and HBM is", altered(memoryHost(t, 64, 64), func(h *topology.Host) {
			h.NUMANodes[0].Kind, h.NUMANodes[1].Kind = "hbm", "cxl"
		}), lab.Reserve{}, "60 60", nil},
		{"memory without CPUs of an unknown kind is said", altered(memoryHost(t, 64, 64), func(h *topology.Host) {
			h.NUMANodes[1].CPUs = topology.CPUSet{}
		}), lab.Reserve{}, "60 60", []string{"NUMA nodes without CPUs (1) have 64 GiB, and the host does not tell " +
			"what memory that is: the lab may get it, also if it is a GPU's, or CXL"}},
		{"a tenant bound to a node", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.Tenants = []topology.Tenant{{Name: "web", MemoryBytes: new(8 * gib), MemoryNodes: nodes("1")}}
		}), lab.Reserve{}, "30 22", nil},
		{"a tenant bound to several", altered(memoryHost(t, 32, 32, 32), func(h *topology.Host) {
			h.Tenants = []topology.Tenant{{Name: "web", MemoryBytes: new(8 * gib), MemoryNodes: nodes("0-1")}}
		}), lab.Reserve{}, "26 26 30", []string{"VM web: its memory is bound to NUMA nodes 0-1 together; taken " +
			"as spread over them by their size"}},
		{"a tenant that is not bound", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.Tenants = []topology.Tenant{{Name: "web", State: "shut off", MemoryBytes: new(8 * gib)}}
		}), lab.Reserve{}, "26 26", []string{"VMs that are shut off hold what they are given, because they may " +
			"be started: web",
			"VM web: its memory is not bound to a NUMA node; taken as spread over all by their size"}},
		{"a tenant of unknown memory", altered(memoryHost(t, 32), func(h *topology.Host) {
			h.Tenants = []topology.Tenant{{Name: "web"}}
		}), lab.Reserve{}, "30",
			[]string{"VM web: its memory is not known and not taken off"}},
		{"a tenant on nodes that are not there", altered(memoryHost(t, 32), func(h *topology.Host) {
			h.Tenants = []topology.Tenant{{Name: "web", MemoryBytes: new(8 * gib), MemoryNodes: nodes("5")}}
		}), lab.Reserve{}, "30", []string{"VM web: its memory is on NUMA nodes 5, which are none of the host's; " +
			"it is not taken off"}},
		{"hugepages in use", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.NUMANodes[0].Hugepages = []topology.HugepagePool{pool(gib, 10, 4), pool(2<<20, 512, 512)}
		}), lab.Reserve{}, "24 30", nil},
		{"hugepages of a tenant count once", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.NUMANodes[0].Hugepages = []topology.HugepagePool{pool(gib, 10, 4)}
			h.Tenants = []topology.Tenant{{Name: "a", MemoryBytes: new(4 * gib), Hugepages: new(gib),
				MemoryNodes: nodes("0")},
				{Name: "b", MemoryBytes: new(2 * gib), MemoryNodes: nodes("0")}}
		}), lab.Reserve{}, "22 30", nil},
		{"the machine's pools where the nodes show none", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.Memory.Hugepages = []topology.HugepagePool{pool(gib, 10, 4)}
		}), lab.Reserve{}, "27 27", nil},
		{"pools that cannot be", altered(memoryHost(t, 32, 32), func(h *topology.Host) {
			h.NUMANodes[0].Hugepages = []topology.HugepagePool{pool(gib, 1<<62, 0), pool(2<<20, 4, 9),
				{SizeBytes: gib, Total: 3}}
		}), lab.Reserve{}, "0 30", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := labOf(1, memory(lab.GiB))
			l.Hugepages, l.Reserve = lab.Hugepages1GiB, test.reserve
			for i := range test.host.NUMANodes { // avoids notes about them
				for j := range test.host.NUMANodes {
					test.host.NUMANodes[i].Distances = append(test.host.NUMANodes[i].Distances,
						map[bool]int{true: 10, false: 20}[i == j])
				}
			}
			p := problem(t, test.host, l, build.Options{})
			checkWellFormed(t, p)
			if got := pagesText(p); got != test.want {
				t.Errorf("pages %s, want %s", got, test.want)
			}
			var notes []string
			for _, n := range p.Notes {
				if !strings.Contains(n, "package") {
					notes = append(notes, n)
				}
			}
			if diff := cmp.Diff(test.notes, notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPageSizes(t *testing.T) {
	t.Parallel()
	pools := func(sizes ...uint64) func(*topology.Host) {
		return func(h *topology.Host) {
			for _, s := range sizes {
				h.Memory.Hugepages = append(h.Memory.Hugepages, pool(s, 0, 0))
			}
		}
	}
	arch := func(a string) func(*topology.Host) { return func(h *topology.Host) { h.System.Arch = a } }
	tests := []struct {
		name  string
		host  *topology.Host
		asked lab.Hugepages
		size  lab.Bytes // memory of the lab node
		want  string
	}{
		{"auto with whole GiB", memoryHost(t, 64), lab.HugepagesAuto, 4 * lab.GiB, "4 of 1GiB"},
		{"auto without", memoryHost(t, 64), lab.HugepagesAuto, 4*lab.GiB + 512*lab.MiB,
			"18 of 256MiB, hugepages of 2MiB"},
		{"auto where the host shows 1 GiB", altered(memoryHost(t, 64), pools(gib, 2<<20), arch("ppc64le")),
			lab.HugepagesAuto, 4 * lab.GiB, "4 of 1GiB"},
		{"auto where it shows 2 MiB only", altered(memoryHost(t, 64), pools(2<<20), arch("x86_64")), lab.HugepagesAuto,
			4 * lab.GiB, "16 of 256MiB, hugepages of 2MiB"},
		{"auto on arm64", altered(memoryHost(t, 64), arch("aarch64")), lab.HugepagesAuto, 4 * lab.GiB, "4 of 1GiB"},
		{"auto on what has neither", altered(memoryHost(t, 64), pools(1<<20)), lab.HugepagesAuto, 4 * lab.GiB,
			"16 of 256MiB, no hugepages"},
		{"auto on another architecture", altered(memoryHost(t, 64), arch("s390x")), lab.HugepagesAuto, 4 * lab.GiB,
			"16 of 256MiB, no hugepages"},
		{"the zero value is auto", memoryHost(t, 64), "", 4 * lab.GiB, "4 of 1GiB"},
		{"1 GiB rounds up", memoryHost(t, 64), lab.Hugepages1GiB, 4*lab.GiB + lab.MiB, "5 of 1GiB"},
		{"2 MiB rounds up", memoryHost(t, 64), lab.Hugepages2MiB, 3 * lab.MiB, "2 of 2MiB"},
		{"a small lab node has small steps", memoryHost(t, 1), lab.Hugepages2MiB, 512 * lab.MiB,
			"16 of 32MiB, hugepages of 2MiB"},
		{"off", memoryHost(t, 64), lab.HugepagesOff, 4 * lab.GiB, "16 of 256MiB, no hugepages"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			l := labOf(1, memory(test.size))
			l.Hugepages = test.asked
			p := problem(t, test.host, l, build.Options{})
			checkWellFormed(t, p)
			got := fmt.Sprintf("%d of %s", p.Requests[0].Pages, lab.Bytes(p.PageBytes))
			switch p.HugepageBytes {
			case p.PageBytes:
			case 0:
				got += ", no hugepages"
			default:
				got += fmt.Sprintf(", hugepages of %s", lab.Bytes(p.HugepageBytes))
			}
			if got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
			if rounded := int64(test.size)%int64(max(p.HugepageBytes, 2<<20)) != 0; rounded != (len(notesWith(p,
				"rounded up")) == 1) {
				t.Errorf("notes %q", p.Notes)
			}
		})
	}
}

func TestAutoMemory(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		host *topology.Host
		lab  *lab.Lab
		want []string
	}{
		{"equal shares in whole GiB", memoryHost(t, 32, 32), labOf(4, autoMemory()), []string{"15GiB", "15GiB", "15GiB",
			"15GiB"}},
		{"of what the others leave", memoryHost(t, 32, 32), with(labOf(3, memory(20*lab.GiB)), func(l *lab.Lab) {
			autoMemory()(&l.Nodes[0])
		}), []string{"20GiB", "20GiB", "20GiB"}},
		{"whole GiB in pages of 2 MiB as well", memoryHost(t, 32), with(labOf(2, memory(1001*lab.MiB)),
			func(l *lab.Lab) {
				autoMemory()(&l.Nodes[0])
			}),
			[]string{"29GiB", "1002MiB"}},
		{"less than 1 GiB where there is no more", memoryHost(t, 3), labOf(4, autoMemory()),
			[]string{"640MiB", "640MiB", "640MiB", "640MiB"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, test.host, test.lab, build.Options{})
			checkWellFormed(t, p)
			var got []string
			for _, r := range p.Requests {
				got = append(got, (lab.Bytes(r.Pages) * lab.Bytes(p.PageBytes)).String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("memory (-want +got):\n%s", diff)
			}
		})
	}
}
