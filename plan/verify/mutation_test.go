package verify

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// checkMutations break one rule each. want is a part of the line; the whole text is in testdata/check.
var checkMutations = []struct {
	name   string
	mutate func(c *checkCase)
	want   string
}{
	// The plan's subject.
	{"the schema is another", func(c *checkCase) {
		c.pl.Schema = "rackless/plan/v0"
	}, `schema: have "rackless/plan/v0", want "rackless/plan/v1"`},
	{"the lab is another", func(c *checkCase) { c.pl.Lab = "trio" }, `lab: have "trio", want "pair"`},
	{"the workload is another", func(c *checkCase) {
		c.pl.Workload = lab.WorkloadGPUCompute
	}, `workload: have "gpu-compute"`},
	{"a lab node is missing", func(c *checkCase) {
		c.pl.Nodes = c.pl.Nodes[:3]
	}, `lab node "vm03": it is not in the plan`},
	{"a lab node is there twice", func(c *checkCase) {
		c.pl.Nodes = append(c.pl.Nodes, c.pl.Nodes[3])
	}, `lab node "vm03": it is in the plan twice`},
	{"a node is not of the lab", func(c *checkCase) {
		c.pl.Nodes[3].Name = "vm\x1b[2J"
	}, `nodes: "vm\x1b[2J" is not a node of the lab`},
	{"lab nodes are out of order", func(c *checkCase) {
		c.pl.Nodes[0], c.pl.Nodes[1] = c.pl.Nodes[1], c.pl.Nodes[0]
	}, `it stands after "vm01"`},

	// Virtual CPUs.
	{"a virtual CPU too few", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs = []int{6}
	}, `lab node "vm01": vcpus: have 1, want 2`},
	{"the problem has another number of CPUs than the lab", func(c *checkCase) {
		c.l.Nodes[1].CPUs = 3
	}, `vcpus: the problem has 2, the lab asks for 3`},
	{"a host CPU is not there", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs[1] = 99
	}, `vcpu 1: host CPU 99 is not there or not online`},
	{"a host CPU is negative", func(c *checkCase) { c.pl.Nodes[1].VCPUs[1] = -7 }, `host CPU -7 is not there`},
	{"a host CPU has gone offline", func(c *checkCase) {
		c.h.CPUs.Online = c.h.CPUs.Online.Difference(topology.CPUs(7))
		c.h.Cores[7].CPUs = topology.CPUs(19)
	}, `vcpu 1: host CPU 7 is not there or not online`},
	{"two virtual CPUs on one host CPU", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs[1] = 6
	}, `vcpu 1: host CPU 6 is that of another virtual CPU already, of lab node "vm01"`},
	{"two lab nodes on one host CPU", func(c *checkCase) { c.pl.Nodes[1].VCPUs[1] = 8 },
		`lab node "vm02": vcpu 2: host CPU 8 is that of another virtual CPU already, of lab node "vm01"`},
	{"two lab nodes on two threads of a core", func(c *checkCase) { c.pl.Nodes[3].VCPUs = []int{5, 17, 19, 21} },
		`host CPU 19 is a thread of core 7, another one of which lab node "vm01" has`},
	{"siblings are not side by side", func(c *checkCase) {
		c.pl.Nodes[0].VCPUs = []int{1, 2, 13, 14}
	}, `host CPU 2 is no sibling of CPU 1 before it`},
	{"a core is used in two places", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs = []int{6, 18}
	}, `vcpu 1: host CPU 18 is a sibling of that of vcpu 0`},
	{"other threads per core", func(c *checkCase) { c.pl.Nodes[1].Threads = 2 }, `threads_per_core: have 2, want 1`},
	{"no threads per core at all", func(c *checkCase) { c.pl.Nodes[1].Threads = 0 }, `2 of them cannot be 0 a core`},
	{"siblings are not shown as such", func(c *checkCase) {
		c.pl.Nodes[0].SMT = false
	}, `smt: have false with 2 threads per core`},
	{"SMT against the lab's wish", func(c *checkCase) {
		c.l.Nodes[0].SMT = lab.Off
	}, `smt: have true, the lab asks for "off"`},
	{"cores are miscounted", func(c *checkCase) {
		c.pl.Nodes[0].Cores = 3
	}, `cores: have 3 in the plan and 2 by its CPUs, want 2`},
	{"a core is a tenant's", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs = []int{6, 3}
	}, `lab node "vm01": vcpus: host CPUs 3,15 belong to VM "web"`},
	{"a tenant has moved onto a core", func(c *checkCase) {
		c.h.Tenants = append(c.h.Tenants, topology.Tenant{Name: "db", Pins: []topology.Pin{{CPUs: topology.CPUs(7)}}})
	}, `lab node "vm01": vcpus: host CPUs 7,19 belong to VM "db"`},
	{"a tenant has moved onto housekeeping", func(c *checkCase) {
		c.h.Tenants = append(c.h.Tenants, topology.Tenant{UUID: "5b1", VCPUs: 1, Floating: new(topology.CPUs(10))})
	}, `housekeeping: CPUs 10,22 belong to VM "5b1"`},
	{"a tenant's device has become the lab's", func(c *checkCase) {
		c.h.Tenants = append(c.h.Tenants, topology.Tenant{Name: "db",
			Devices: []topology.TenantDevice{{PCI: checkAddr("0000:81:00.0")}}})
	}, `lab node "vm01": devices: 0000:81:00.0 belongs to VM "db"`},

	// Housekeeping.
	{"housekeeping has a thread of a lab node's core", func(c *checkCase) {
		c.pl.Housekeeping.CPUs = topology.CPUs(0, 10, 11, 12, 18, 22, 23)
	},
		`housekeeping: CPUs 18 are threads of cores of lab node "vm01"`},
	{"housekeeping has a tenant's CPU", func(c *checkCase) {
		c.pl.Housekeeping.CPUs = topology.CPUs(0, 10, 11, 12, 15, 22, 23)
	},
		`housekeeping: CPUs 15 belong to VM "web"`},
	{"housekeeping has a CPU that is not there", func(c *checkCase) {
		c.pl.Housekeeping.CPUs = topology.CPUs(0, 10, 11, 12, 22, 23, 24)
	},
		`housekeeping: CPUs 24 are not there or not online`},
	{"a free CPU is nobody's", func(c *checkCase) { c.pl.Housekeeping.CPUs = topology.CPUs(0, 10, 11, 12, 22) },
		`housekeeping: CPUs 23 are nobody's and are not in it`},
	{"housekeeping cores are miscounted", func(c *checkCase) {
		c.pl.Housekeeping.Cores = 4
	}, `housekeeping: have 4 cores, want 3 as left over`},
	{"the CPUs of tenants are others", func(c *checkCase) {
		c.pl.Housekeeping.TenantCPUs = topology.CPUs(3)
	}, `have CPUs of other VMs "3", want "3,15"`},
	{"the reserve is not kept", func(c *checkCase) {
		c.p.ReserveCores = 4
	}, `housekeeping: 3 cores are left over, the reserve is 4`},
	{"the lab's reserve is not kept", func(c *checkCase) {
		c.l.Reserve.Cores = new(4)
	}, `housekeeping: 3 cores are left over, the reserve is 4`},
	{"the reserve of a node is not kept", func(c *checkCase) { c.l.Reserve.NUMA[0].Cores = 3 },
		`housekeeping: 2 cores are left over on NUMA node 1, the reserve there is 3`},
	{"a busy package has no core left", func(c *checkCase) {
		c.pl.Nodes[1].VCPUs, c.pl.Housekeeping.CPUs = []int{6, 0}, topology.CPUs(7, 10, 11, 19, 22, 23)
	}, `housekeeping: no core is left over in package 0, which is busy: disk nvme0n1 (/)`},
	{"emulator threads run on a virtual CPU", func(c *checkCase) {
		c.pl.Nodes[0].EmulatorCPUs = topology.CPUs(13)
	}, `emulator_cpus: CPUs 13 are not housekeeping`},
	{"emulator threads run nowhere", func(c *checkCase) {
		c.pl.Nodes[0].EmulatorCPUs = topology.CPUSet{}
	}, `emulator_cpus: have none`},
	{"emulator threads run far away", func(c *checkCase) { c.pl.Nodes[0].EmulatorCPUs = topology.CPUs(10) },
		`emulator_cpus: CPUs 10 are 21 away, housekeeping CPUs that are 10 away are left`},
	{"I/O threads run on a tenant's CPU", func(c *checkCase) {
		c.pl.Nodes[0].IOThreadCPUs = topology.CPUs(3)
	}, `iothread_cpus: CPUs 3 are not housekeeping`},

	// Memory.
	{"memory is less than asked for", func(c *checkCase) {
		c.pl.Nodes[0].MemoryBytes = 3 * checkGiB
	}, `memory_bytes: have 3221225472, want 4294967296`},
	{"the problem has less memory than the lab", func(c *checkCase) {
		c.l.Nodes[0].Memory = 5 * lab.GiB
	}, `memory_bytes: the problem has 4294967296, the lab asks for 5368709120`},
	{"memory does not add up", func(c *checkCase) {
		c.pl.Nodes[0].Memory[0].Bytes = 3 * checkGiB
	}, `memory: its NUMA nodes add up to 3221225472 bytes, want 4294967296`},
	{"memory is not whole pages", func(c *checkCase) {
		c.pl.Nodes[0].Memory[0].Bytes++
	}, `memory on NUMA node 0: 4294967297 bytes are not whole pages of 1073741824`},
	{"memory is in other pages", func(c *checkCase) {
		c.pl.Nodes[0].Memory[0].PageBytes = 2 << 20
	}, `memory on NUMA node 0: pages of 2097152 bytes, want 1073741824`},
	{"memory is on no NUMA node of the host", func(c *checkCase) {
		c.pl.Nodes[0].Memory[0].NUMANode = 5
	}, `memory: NUMA node 5 is not on the host`},
	{"a NUMA node comes twice", func(c *checkCase) {
		c.pl.Nodes[0].Memory = []plan.NodeMemory{{NUMANode: 0, Bytes: 2 * checkGiB, PageBytes: checkGiB},
			{NUMANode: 0, Bytes: 2 * checkGiB, PageBytes: checkGiB}}
	}, `memory: NUMA node 0 comes after 0; want each once`},
	{"a NUMA node gives more than it may", func(c *checkCase) {
		*c.p.NUMANodes[0].Pages = 6
	}, `memory: lab nodes have 7 pages of NUMA node 0, which can give 6`},
	{"a NUMA node gives more than it has", func(c *checkCase) { *c.h.NUMANodes[1].MemoryBytes = checkGiB },
		`memory: lab nodes have 3221225472 bytes of NUMA node 1, the host has 1073741824 there`},
	{"pages are of another size than the lab's", func(c *checkCase) {
		c.l.Hugepages = lab.Hugepages2MiB
	}, `hugepages: the problem has pages of 1073741824 bytes, the lab asks for "2MiB"`},
	{"too few hugepages on a node", func(c *checkCase) {
		c.pl.Hugepages[0].Count = 6
	}, `hugepages: NUMA node 0: have 6, the lab nodes have 7`},
	{"no hugepages on a node", func(c *checkCase) {
		c.pl.Hugepages = c.pl.Hugepages[:1]
	}, `hugepages: NUMA node 1: have 0, the lab nodes have 3`},
	{"hugepages on a node that needs none", func(c *checkCase) {
		c.pl.Hugepages = append(c.pl.Hugepages, plan.Hugepages{NUMANode: 2, PageBytes: checkGiB, Count: 1, Held: 0})
	},
		`hugepages: NUMA node 2: have 1, the lab nodes have 0`},
	{"hugepages of another size", func(c *checkCase) {
		c.pl.Hugepages[0].PageBytes = 2 << 20
	}, `hugepages: pages of 2097152 bytes on NUMA node 0`},
	{"hugepages in use are taken away", func(c *checkCase) {
		c.h.NUMANodes[0].Hugepages = []topology.HugepagePool{{SizeBytes: checkGiB, Total: 3, Free: new(uint64(1))}}
	}, `hugepages: NUMA node 0 keeps 0 that are in use, the host has 2 in use`},

	// Cells.
	{"cells are misnumbered", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].Cell = 2
	}, `lab node "vm02": cell 1: it is numbered 2`},
	{"a cell has virtual CPUs of another node", func(c *checkCase) { c.pl.Nodes[2].VCPUs = []int{8, 20, 4, 16} },
		`cell 0: vcpu 0 is on NUMA node 1, the cell stands for [0]`},
	{"virtual CPUs of cells have a gap", func(c *checkCase) { c.pl.Nodes[2].Cells[1].FirstVCPU = 3 },
		`cell 1: have 2 vcpus from 3 on, want them to follow those before, from 2, of 4`},
	{"a virtual CPU is in no cell", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].VCPUs = 1
	}, `cells: they have 3 of 4 vcpus`},
	{"a cell has virtual CPUs without end", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].VCPUs = 1 << 62
	}, `from 2, of 4`},
	{"the memory of a cell is not that of its node", func(c *checkCase) { c.pl.Nodes[2].Cells[1].Bytes = 2 * checkGiB },
		`cell 1: have 2147483648 bytes, want 1073741824 as on its NUMA nodes`},
	{"a distance is not that of the host", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].Distances[0] = 20
	}, `cell 1: distance to cell 0: have 20, want 21`},
	{"a cell is far from itself", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].Distances[1] = 11
	}, `cell 1: distance to cell 1: have 11, want 10`},
	{"a distance is missing", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].Distances = []int{21}
	}, `cell 1: have 1 distances, want 2`},
	{"several cells without guest NUMA", func(c *checkCase) {
		c.pl.Nodes[2].GuestNUMA = false
	}, `cells: have 2, want 1 where guest_numa is false`},
	{"guest NUMA against the lab's wish", func(c *checkCase) {
		c.l.Nodes[2].GuestNUMA = lab.Off
	}, `guest_numa: have true, the lab asks for "off"`},
	{"no guest NUMA against the lab's wish", func(c *checkCase) {
		c.l.Nodes[2].GuestNUMA = lab.On
		c.pl.Nodes[2].GuestNUMA = false
		c.pl.Nodes[2].Cells = []plan.Cell{{NUMANodes: []int{0, 1}, VCPUs: 4, Bytes: 2 * checkGiB, Distances: []int{10}}}
		*c.pl.Nodes[2].Cards[0].Cell = 0
	}, `guest_numa: have false with memory on 2 NUMA nodes, the lab asks for "on"`},
	{"two nodes with memory are one cell", func(c *checkCase) {
		c.pl.Nodes[2].Cells = []plan.Cell{{NUMANodes: []int{0, 1}, VCPUs: 4, Bytes: 2 * checkGiB, Distances: []int{10}}}
		*c.pl.Nodes[2].Cards[0].Cell = 0
	}, `cell 0: NUMA nodes 0 and 1 both have memory; want a cell for each`},
	{"a cell stands for CPUs alone", func(c *checkCase) {
		c.pl.Nodes[3].GuestNUMA = true
		c.pl.Nodes[3].Cells = []plan.Cell{
			{Cell: 0, NUMANodes: []int{0}, VCPUs: 2, Bytes: 2 * checkGiB, Distances: []int{10, 21}},
			{Cell: 1, NUMANodes: []int{1}, FirstVCPU: 2, VCPUs: 2, Distances: []int{21, 10}}}
	}, `lab node "vm03": cell 1: NUMA node 1 has none of its memory`},
	{"no cell stands for a node with cores", func(c *checkCase) { c.pl.Nodes[3].Cells[0].NUMANodes = []int{0} },
		`lab node "vm03": cells: none stands for NUMA node 1`},
	{"a cell stands for a node without anything", func(c *checkCase) { c.pl.Nodes[0].Cells[0].NUMANodes = []int{0, 1} },
		`cell 0: NUMA node 1 has neither cores nor memory of it`},
	{"two cells stand for one node", func(c *checkCase) {
		c.pl.Nodes[2].Cells[1].NUMANodes = []int{1, 0}
	}, `cell 1: NUMA node 0 is that of cell 0 already`},
	{"a cell stands for nothing", func(c *checkCase) {
		c.pl.Nodes[0].Cells[0].NUMANodes = nil
	}, `cell 0: it stands for no NUMA node of the host`},

	// Devices.
	{"a device too few", func(c *checkCase) {
		c.pl.Nodes[0].Cards = slices.Delete(c.pl.Nodes[0].Cards, 1, 2)
	}, `lab node "vm00": gpus: have 1, want 2`},
	{"a device that was not asked for", func(c *checkCase) {
		c.p.Requests[1].GPUs[0].Any = []int{0, 1}
		c.p.Requests[1].GPUs[0].Text = "0000:06:00.0"
	},
		`gpus: 0000:81:00.0 is not among what was asked for: "0000:06:00.0"`},
	{"two wants for one device", func(c *checkCase) {
		c.p.Requests[0].GPUs = []plan.Want{{Count: 1, Any: []int{0}, Text: "the first"},
			{Count: 1, Any: []int{0}, Text: "it again"}}
	}, `gpus: 0000:07:00.0 is not among what was asked for: "the first", "it again"`},
	{"a device that the problem does not have", func(c *checkCase) {
		c.pl.Nodes[1].Cards[0].ID = "0000:99:00.0"
	}, `cards: the problem has no gpu "0000:99:00.0"`},
	{"a device that the host does not have", func(c *checkCase) {
		c.h.GPUs = c.h.GPUs[:2]
	}, `lab node "vm01": cards: the host has no gpu 0000:81:00.0`},
	{"a device of no kind", func(c *checkCase) {
		c.pl.Nodes[1].Cards[0].Kind = "fpga"
	}, `cards: "0000:81:00.0" is a "fpga"; want gpu, nic or vf`},
	{"a device that may not be given away", func(c *checkCase) {
		c.p.Devices[2].Whole, c.p.Devices[2].Refused = false, "it is the only screen of the host"
	},
		`cards: 0000:81:00.0 may not be given away: it is the only screen of the host`},
	{"a device that the host boots from", func(c *checkCase) { c.h.Storage[0].PCI = new(checkAddr("0000:06:00.1")) },
		`devices: 0000:06:00.1 has disk nvme0n1 of the host, mounted on /`},
	{"a device that the host is reached by", func(c *checkCase) {
		c.h.Routes = []topology.Route{{Netdev: "br0", PCI: []string{"0000:05:00.0"}}}
	},
		`devices: 0000:05:00.0 carries the default route of the host, through br0`},
	{"a device goes to two lab nodes", func(c *checkCase) {
		c.pl.Nodes[1].Cards[0] = c.pl.Nodes[0].Cards[1]
		c.pl.Nodes[1].Devices[0] = "0000:07:00.0"
	}, `cards: 0000:07:00.0 can only go together with 0000:07:00.0, which lab node "vm00" has`},
	{"a function goes to two lab nodes", func(c *checkCase) {
		c.pl.Nodes[1].Devices = append(c.pl.Nodes[1].Devices, "0000:06:00.1")
	},
		`lab node "vm01": devices: 0000:06:00.1 goes to lab node "vm00" already`},
	{"an IOMMU group is taken apart", func(c *checkCase) {
		c.p.Devices[1].Bundle, c.p.Devices[0].Functions, c.p.Devices[1].Functions = 9,
			[]string{"0000:06:00.0", "0000:06:00.1"}, []string{"0000:07:00.0"}
		c.pl.Nodes[0].Cards[1], c.pl.Nodes[1].Cards[0] = c.pl.Nodes[1].Cards[0], c.pl.Nodes[0].Cards[1]
		c.pl.Nodes[0].Devices[2], c.pl.Nodes[1].Devices[0] = "0000:81:00.0", "0000:07:00.0"
	}, `devices: IOMMU group 14: 0000:06:00.0 goes to lab node "vm00" and 0000:07:00.0 to lab node "vm01"; ` +
		`a group is not taken apart`},
	{"a function of the group stays", func(c *checkCase) {
		c.pl.Nodes[0].Devices = []string{"0000:06:00.0", "0000:07:00.0", "0000:05:00.0"}
	},
		`devices: 0000:06:00.1 is missing; it goes with 0000:0`},
	{"a function of the GPU stays", func(c *checkCase) {
		c.h.GPUs[2].Functions = append(c.h.GPUs[2].Functions, checkAddr("0000:81:00.1"))
	},
		`devices: 0000:81:00.0 goes to lab node "vm01" and 0000:81:00.1, a function of the same device, to nobody`},
	{"a function is there twice", func(c *checkCase) {
		c.pl.Nodes[0].Devices = append(c.pl.Nodes[0].Devices, "0000:07:00.0")
	},
		`devices: 0000:07:00.0 is there twice`},
	{"a function is of no card", func(c *checkCase) { c.pl.Nodes[0].Cards[0].Functions = []string{"0000:06:00.0"} },
		`cards: none has function 0000:06:00.1, which goes with`},
	{"a device that no card has", func(c *checkCase) {
		c.pl.Nodes[0].Devices = append(c.pl.Nodes[0].Devices, "0000:77:00.0")
	},
		`devices: 0000:77:00.0 is of none of its cards`},
	{"a card does not start with itself", func(c *checkCase) { slices.Reverse(c.pl.Nodes[0].Cards[0].Functions) },
		`cards: 0000:06:00.0: the first function is 0000:06:00.1, want 0000:06:00.0 itself`},
	{"cards are out of order", func(c *checkCase) {
		slices.Reverse(c.pl.Nodes[0].Cards)
	}, `cards: 0000:07:00.0 comes after a nic; want GPUs, NICs, then VFs`},
	{"devices are out of order", func(c *checkCase) {
		slices.Reverse(c.pl.Nodes[0].Devices)
	}, `devices: 0000:07:00.0 does not come in the order of its cards`},
	{"ports have other names", func(c *checkCase) {
		c.pl.Nodes[0].NICs[0].Name = "eth9"
	}, `lab node "vm00": nics: have [{eth9`},
	{"a port has no card", func(c *checkCase) {
		c.pl.Nodes[1].NICs = checkNICs(1, 3)
		c.l.Nodes[1].NICs = checkNICs(1, 3)
	},
		`nics: have names and addresses for 3 ports, and 2 cards`},
	{"a card is on another NUMA node", func(c *checkCase) {
		*c.pl.Nodes[0].Cards[0].NUMANode = 1
	}, `cards: 0000:06:00.0: have NUMA node 1, want 0`},
	{"a card has no cell", func(c *checkCase) {
		c.pl.Nodes[0].Cards[0].Cell = nil
	}, `cards: 0000:06:00.0: have cell none, want one of 1`},
	{"a card is in a far cell", func(c *checkCase) { *c.pl.Nodes[2].Cards[0].Cell = 0 },
		`lab node "vm02": cards: 0000:41:00.0 is on NUMA node 1: have cell 0, want cell 1, which is nearer`},
	{"a card of an unknown NUMA node has a cell", func(c *checkCase) {
		c.p.Devices[2].NUMANode, c.h.GPUs[2].NUMANode, c.pl.Nodes[1].Cards[0].NUMANode = nil, nil, nil
	}, `cards: 0000:81:00.0: have cell 0, want none: its NUMA node is not known`},

	// Virtual functions.
	{"a virtual function goes to two lab nodes", func(c *checkCase) {
		*c.pl.Nodes[3].Cards[0].VF = 3
		c.pl.Nodes[3].Cards[0].Functions[0], c.pl.Nodes[3].Devices[0] = "0000:41:00.0/vf3", "0000:41:00.0/vf3"
	}, `lab node "vm03": cards: virtual function 3 of 0000:41:00.0 goes to lab node "vm02" already`},
	{"a virtual function that may not be given", func(c *checkCase) {
		*c.pl.Nodes[3].Cards[0].VF = 0
		c.pl.Nodes[3].Cards[0].Functions[0], c.pl.Nodes[3].Devices[0] = "0000:41:00.2", "0000:41:00.2"
	}, `cards: virtual function 0 of 0000:41:00.0 is not one that may be given`},
	{"a virtual function of no index", func(c *checkCase) {
		c.pl.Nodes[3].Cards[0].VF = nil
	}, `cards: a virtual function of 0000:41:00.0 has no index`},
	{"a GPU that is said to be a virtual function", func(c *checkCase) { c.pl.Nodes[1].Cards[0].VF = new(1) },
		`cards: 0000:81:00.0 is a gpu and names virtual function 1`},
	{"a virtual function by another name", func(c *checkCase) { c.pl.Nodes[1].Devices[1] = "0000:41:00.0/vf1" },
		`devices: 0000:41:00.3 is missing; it goes with 0000:41:00.0`},
	{"virtual functions of a NIC that is given whole", func(c *checkCase) {
		c.p.Devices[4].Bundle = c.p.Devices[2].Bundle
	},
		`cards: a virtual function of 0000:41:00.0, which goes to lab node "vm01" whole`},
	{"more virtual functions than may be given", func(c *checkCase) { c.p.Devices[4].VFs = 3 },
		`devices: 4 virtual functions of 0000:41:00.0 go to lab nodes, it can give 3`},
	{"too few virtual functions on the NIC", func(c *checkCase) {
		c.pl.VFs[0].Count = 4
	}, `vfs: 0000:41:00.0: have 4 in all, want 5 at least`},
	{"fewer virtual functions than there are", func(c *checkCase) {
		c.h.NICs[1].SRIOV.Enabled = new(6)
	}, `vfs: 0000:41:00.0: have 5 in all, want 6 at least`},
	{"more virtual functions than the firmware has", func(c *checkCase) {
		c.pl.VFs[0].Count = 7
	}, `vfs: 0000:41:00.0: have 7 in all, its firmware offers 6`},
	{"virtual functions are miscounted", func(c *checkCase) {
		c.pl.VFs[0].Lab = 3
	}, `vfs: 0000:41:00.0: have 3 for the lab, the lab nodes have 4`},
	{"a NIC has no count of virtual functions", func(c *checkCase) {
		c.pl.VFs = nil
	}, `vfs: 0000:41:00.0 is missing, the lab nodes have 4`},
	{"a NIC is counted twice", func(c *checkCase) {
		c.pl.VFs = append(c.pl.VFs, c.pl.VFs[0])
	}, `vfs: 0000:41:00.0 is there twice`},

	// Affinity.
	{"lab nodes held apart share NUMA nodes", func(c *checkCase) { c.l.Affinity[0].Nodes = []string{"vm02", "vm03"} },
		`affinity: NUMA nodes of "vm02" and "vm03": both have 0, want none in common`},
	{"lab nodes held apart share a NIC", func(c *checkCase) { c.p.Affinity[0].Requests = []int{2, 3} },
		`affinity: NICs of "vm02" and "vm03": both have 0000:41:00.0, want none in common`},
	{"lab nodes held together are on different NUMA nodes", func(c *checkCase) { c.l.Affinity[0].NUMA = lab.Same },
		`affinity: NUMA nodes of "vm00" and "vm01": have [0] and [1], want the same`},
	{"lab nodes held together have different NICs", func(c *checkCase) { c.l.Affinity[0].NIC = lab.Same },
		`affinity: NICs of "vm00" and "vm01": have [0000:05:00.0] and [0000:41:00.0], want the same`},

	// Kernel arguments.
	{"isolcpus leaves out an idle sibling", func(c *checkCase) {
		c.pl.KernelArgs[1] = "isolcpus=managed_irq,domain,1-2,4-9,13-14,16-17,20-21"
	},
		`kernel_args: isolcpus: have CPUs 1-2,4-9,13-14,16-17,20-21, want 1-2,4-9,13-14,16-21`},
	{"nohz_full has a housekeeping CPU", func(c *checkCase) {
		c.pl.KernelArgs[2] = "nohz_full=0-2,4-9,13-14,16-21"
	}, `kernel_args: nohz_full: have CPUs 0-2`},
	{"rcu_nocbs is no list", func(c *checkCase) {
		c.pl.KernelArgs[2] = "rcu_nocbs=most"
	}, `kernel_args: "rcu_nocbs=most": CPU list "most"`},
	{"too few pages", func(c *checkCase) {
		c.pl.KernelArgs[4] = "hugepages=0:7"
	}, `kernel_args: "hugepages=0:7" gives NUMA node 1 0 pages, want 3`},
	{"pages that are spread evenly", func(c *checkCase) {
		c.pl.KernelArgs[4] = "hugepages=10"
	}, `kernel_args: "hugepages=10" gives NUMA node 0 5 pages, want 7`},
	{"pages of another size", func(c *checkCase) {
		c.pl.KernelArgs[3] = "hugepagesz=2M"
	}, `kernel_args: "hugepagesz=2M": want pages of 1073741824 bytes`},
	{"pages are no number", func(c *checkCase) {
		c.pl.KernelArgs[4] = "hugepages=0:7,1"
	}, `kernel_args: "hugepages=0:7,1": "1" is not a NUMA node with its number of pages`},
	{"an argument without reason", func(c *checkCase) {
		c.pl.KernelWhy = nil
	}, `kernel_args: have 0 reasons for 5 arguments`},

	// Cost and proof.
	{"a cost that is not the sum", func(c *checkCase) {
		c.pl.Cost++
		c.pl.Bound++
	}, `cost: have 11151, the terms add up to 11150`},
	{"a term that is not value times weight", func(c *checkCase) {
		c.pl.Terms[0].Cost = 0
	}, `term gpu_nic_path of vm00: cost 0, want 4 times 600, which is 2400`},
	{"a term of another value", func(c *checkCase) {
		c.pl.Terms[0].Value = 3
	}, `term gpu_nic_path of vm00: have 3 times 600, want 4 times 600`},
	{"a term of another weight", func(c *checkCase) {
		c.pl.Terms[3].Weight = 16
	}, `term device_distance of vm00: have 0 times 16, want 0 times 17`},
	{"a term is missing", func(c *checkCase) {
		c.pl.Terms = c.pl.Terms[1:]
	}, `term gpu_nic_path of vm00: it is missing, want 4 times 600`},
	{"a term is there twice", func(c *checkCase) {
		c.pl.Terms = append(c.pl.Terms, c.pl.Terms[0])
	}, `term gpu_nic_path of vm00: it is there twice`},
	{"a term that there is not", func(c *checkCase) {
		c.pl.Terms = append(c.pl.Terms, plan.Term{Node: "vm00", Term: "efficiency_cores"})
	},
		`term efficiency_cores of vm00: want none`},
	{"a term of others", func(c *checkCase) { c.pl.Terms[len(c.pl.Terms)-1].Among = []string{"vm01", "vm02"} },
		`term unequal of [vm02 vm03]: it is missing`},
	{"no path between two devices", func(c *checkCase) {
		c.p.Paths = c.p.Paths[1:]
	}, `problem: no path between 0000:06:00.0 and 0000:07:00.0`},
	{"the bound is above the cost", func(c *checkCase) { c.pl.Bound++ }, `bound: have 11151, above the cost of 11150`},
	{"optimal below the cost", func(c *checkCase) {
		c.pl.Bound--
	}, `optimal: it is claimed with a bound of 11149 and a cost of 11150`},
	{"optimal although stopped", func(c *checkCase) {
		c.pl.Stopped = "time limit 2s"
	}, `optimal: it is claimed although the search was stopped: "time limit 2s"`},
	{"not optimal without a reason", func(c *checkCase) {
		c.pl.Optimal = false
	}, `optimal: have false, although the bound is the cost`},
	{"a gap without a reason", func(c *checkCase) { c.pl.Optimal, c.pl.Bound = false, 0 }, `stopped: have nothing`},

	// Problem and host.
	{"the problem is of another machine", func(c *checkCase) {
		c.p.Cores[5].NUMANode = 1
		c.h.NUMANodes[0].Distances[1] = 32
	},
		`problem: core 5 is on NUMA node 1, the host says 0`},
	{"the problem lacks a core", func(c *checkCase) {
		c.p.Cores = c.p.Cores[:11]
	}, `problem: core 11 of the host (CPUs 11,23) is missing`},
	{"the problem has a core too many", func(c *checkCase) {
		c.h.Cores = c.h.Cores[:11]
	}, `problem: core 11 (CPUs [11 23]) is not on the host`},
	{"the problem has another L3", func(c *checkCase) {
		c.p.Cores[5].L3 = 0
	}, `problem: core 5 has L3 cache 0, the host says 1`},
	{"the problem has another package", func(c *checkCase) {
		c.p.Cores[5].Package = 1
	}, `problem: core 5 is in package 1, the host says 0`},
	{"the problem has another kind of core", func(c *checkCase) {
		c.p.Cores[5].Efficiency = true
	}, `problem: core 5 is a small one: true, the host says false`},
	{"the problem has a NUMA node too many", func(c *checkCase) {
		c.p.NUMANodes = append(c.p.NUMANodes, plan.NUMANode{ID: 2})
	}, `problem: NUMA node 2 is not on the host`},
	{"the problem has a device elsewhere", func(c *checkCase) {
		c.p.Devices[2].NUMANode = new(0)
	}, `problem: 0000:81:00.0 is on NUMA node 0, the host says 1`},
}

func TestCheckNamesEachFault(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, m := range checkMutations {
		c := newCheckCase()
		m.mutate(c)
		err := Plan(c.h, c.l, c.p, c.pl)
		if err == nil {
			t.Errorf("%s: no fault, want %q", m.name, m.want)
			continue
		}
		if !strings.Contains(err.Error(), m.want) {
			t.Errorf("%s: got\n%v\nwant a line with\n%s", m.name, err, m.want)
		}
		fmt.Fprintf(&all, "# %s\n%v\n\n", m.name, err)
	}
	golden.Check(t, "testdata/mutations.txt", all.String())
}
