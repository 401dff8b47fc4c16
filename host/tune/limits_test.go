package tune

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func TestPlansThatTakeTheWrongCPUsAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		set  func(*plan.Plan, *topology.Host)
		want string
	}{
		{"a core for the host", func(*plan.Plan, *topology.Host) {}, ""},
		{"no CPU for the host", func(p *plan.Plan, _ *topology.Host) { p.Housekeeping.CPUs = topology.CPUSet{} },
			"the plan leaves the host no CPU: plan again with more for the host (host.reserve in the lab file)"},
		{"no lab node, and nothing for the host", func(p *plan.Plan, _ *topology.Host) {
			p.Nodes, p.Housekeeping.CPUs = nil, topology.CPUSet{}
		}, ""},
		{"a CPU for both", func(p *plan.Plan, _ *topology.Host) {
			p.Housekeeping.CPUs = topology.CPURange(0, 1)
		}, "CPUs 1 are the host's and those of lab nodes at once: plan again"},
		{"the sibling of a lab node's CPU for the host", func(p *plan.Plan, h *topology.Host) {
			h.Cores = nil
			for c := range 4 {
				h.Cores = append(h.Cores, topology.Core{ID: c, CPUs: topology.CPUs(c, c+4)})
			}
		}, "CPUs 5-6 are the host's and those of lab nodes at once: plan again"},
		{"CPU 0 for a lab node", func(p *plan.Plan, _ *topology.Host) {
			p.Nodes[0].VCPUs = []int{0, 1}
			p.Housekeeping.CPUs = topology.CPURange(2, 7)
		}, "CPU 0 would go to a lab node, and the kernel needs it: plan again with a core of its NUMA node for the " +
			"host (host.reserve.numa_nodes in the lab file)"},
		{"half a core for the host", func(p *plan.Plan, h *topology.Host) {
			h.Cores = []topology.Core{{ID: 0, CPUs: topology.CPUs(0, 4)}, {ID: 1, CPUs: topology.CPUs(1, 5)},
				{ID: 2, CPUs: topology.CPUs(2, 6)}}
			p.Housekeeping.CPUs = topology.CPUs(0)
		}, "CPUs 0 of the host are no whole core: plan again with more for the host (host.reserve in the lab file)"},
		{"all CPUs beside the disk of the host", func(p *plan.Plan, h *topology.Host) {
			h.Storage = []topology.Disk{{Name: "nvme0n1", NUMANode: new(1), Mounts: []string{"/", "/boot"}}}
			p.Nodes[0].VCPUs = []int{4, 5, 6, 7}
			p.Housekeeping.CPUs = topology.CPURange(0, 3)
		}, "all CPUs beside NUMA node 1 (4-7) would go to lab nodes, and the host needs one there for nvme0n1 (/ " +
			"/boot): plan again with more for the host (host.reserve in the lab file)"},
		{"all CPUs beside a disk that the host does not use", func(p *plan.Plan, h *topology.Host) {
			h.Storage = []topology.Disk{{Name: "nvme0n1", NUMANode: new(1)}}
			p.Nodes[0].VCPUs = []int{4, 5, 6, 7}
			p.Housekeeping.CPUs = topology.CPURange(0, 3)
		}, ""},
		{"all CPUs beside the default route", func(p *plan.Plan, h *topology.Host) {
			a, err := topology.ParsePCIAddr("0000:41:00.0")
			if err != nil {
				panic(err)
			}
			h.PCI = []topology.PCIDevice{{Address: a, NUMANode: new(1)}}
			h.Routes = []topology.Route{{Netdev: "eth0", PCI: []string{"0000:41:00.0"}}}
			p.Nodes[0].VCPUs = []int{4, 5, 6, 7}
			p.Housekeeping.CPUs = topology.CPURange(0, 3)
		}, "the host needs one there for eth0 (default route)"},
		{"all CPUs of the disk's NUMA node, and others of its package are the host's",
			func(p *plan.Plan, h *topology.Host) {
				h.Packages = []topology.Package{{CPUs: topology.CPURange(0, 7)}}
				h.Storage = []topology.Disk{{Name: "nvme0n1", NUMANode: new(1), Mounts: []string{"/"}}}
				p.Nodes[0].VCPUs = []int{4, 5, 6, 7}
				p.Housekeeping.CPUs = topology.CPURange(0, 3)
			}, ""},
		{"one core of the host for too many", func(p *plan.Plan, h *topology.Host) {
			h.Cores = nil
			p.Nodes[0].VCPUs = nil
			for c := range CoresPerHousekeepingCore + 2 {
				h.Cores = append(h.Cores, topology.Core{ID: c, CPUs: topology.CPUs(c)})
				if c > 0 {
					p.Nodes[0].VCPUs = append(p.Nodes[0].VCPUs, c)
				}
			}
			p.Housekeeping.CPUs = topology.CPUs(0)
		}, "1 cores of the host for 289 of lab nodes, and one serves at most 288"},
		{"a number that is no CPU", func(p *plan.Plan, _ *topology.Host) {
			p.Nodes[0].VCPUs = []int{-1}
		}, `node "vm": vcpus name CPU -1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := fakeHost()
			p := &plan.Plan{Nodes: []plan.Node{{Name: "vm", VCPUs: []int{1, 2}}}}
			p.Housekeeping.CPUs = topology.CPURange(0, 7).Difference(topology.CPUs(1, 2))
			tt.set(p, h)
			err := GuardCPUs(p, h)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// A default plan is never refused.
func TestTheGuardsAllowThePlansOfTheExamples(t *testing.T) {
	t.Parallel()
	for lab, host := range map[string]string{
		"epyc-pair": "epyc-7551p.ttar", "r740-one": "r740.ttar", "r740-eight": "r740.ttar",
	} {
		t.Run(lab, func(t *testing.T) {
			t.Parallel()
			h, err := inspect.ReadFile(t.Context(), filepath.Join("..", "..", "examples", "hosts", host))
			if err != nil {
				t.Fatal(err)
			}
			file, err := os.ReadFile(filepath.Join("..", "..", "examples", lab+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := solve(t.Context(), h, string(file))
			if err != nil {
				t.Fatal(err)
			}
			if err := GuardCPUs(p.plan, h); err != nil {
				t.Error(err)
			}
			steps := p.steps(t, Options{NoReboot: true})
			if len(steps) < 5 {
				t.Errorf("%d steps", len(steps))
			}
			m := newMachine(t)
			m.remove("sys/devices/system/node")
			for _, n := range h.NUMANodes {
				m.write(strings.TrimPrefix(nodeDir(n.ID), "/")+"meminfo", meminfoText(n.ID, *n.MemoryBytes, 0))
			}
			if err := GuardPages(m.system(), p.plan); err != nil {
				t.Error(err)
			}
		})
	}
}
