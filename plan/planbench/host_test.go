package planbench

import (
	"fmt"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/synthetic"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

// largeHost is not a real machine. Each of 16 NUMA nodes has 64 GiB and one root complex, with a GPU and a NIC below
// one switch.
func largeHost() (*topology.Host, error) {
	h, err := synthetic.Host("pack:4 numa:4(memory=64GiB) l3:4 core:8 pu:2")
	if err != nil {
		return nil, err
	}
	for i := range h.NUMANodes {
		n := &h.NUMANodes[i]
		n.Distances = nil
		for j := range h.NUMANodes {
			switch {
			case i == j:
				n.Distances = append(n.Distances, 10)
			case i/4 == j/4:
				n.Distances = append(n.Distances, 12)
			default:
				n.Distances = append(n.Distances, 32)
			}
		}
		if err := addDevices(h, n.ID); err != nil {
			return nil, err
		}
	}
	h.IOMMU.Enabled = new(true)
	h.System.Arch, h.System.CPUModel, h.System.Product = "x86_64", "AMD EPYC (description)",
		"1024 CPUs, 16 GPUs, 16 NICs (description)"
	h.Complete()
	return h, nil
}

func addDevices(h *topology.Host, node int) error {
	var fault error
	addr := func(format string) topology.PCIAddr {
		a, err := topology.ParsePCIAddr(fmt.Sprintf(format, node))
		if err != nil && fault == nil {
			fault = err
		}
		return a
	}
	root := fmt.Sprintf("pci%04x:00", node)
	port, gpu, nic := addr("%04x:00:01.0"), addr("%04x:02:00.0"), addr("%04x:03:00.0")
	up, down0, down1 := addr("%04x:01:00.0"), addr("%04x:01:01.0"), addr("%04x:01:02.0")
	bridge := func(at topology.PCIAddr, parent *topology.PCIAddr, kind string) {
		class := topology.ID24(0x060400)
		h.PCI = append(h.PCI, topology.PCIDevice{Address: at, Parent: parent, Root: root, Class: &class,
			NUMANode: &node, Bridge: &topology.Bridge{Port: kind}})
	}
	bridge(port, nil, "root port")
	bridge(up, &port, "upstream port")
	bridge(down0, &up, "downstream port")
	bridge(down1, &up, "downstream port")
	sriov := &topology.SRIOV{Total: new(16), Enabled: new(0), VFs: []topology.VF{}}
	function := func(at, parent topology.PCIAddr, class topology.ID24, group int, vfs *topology.SRIOV) {
		h.PCI = append(h.PCI, topology.PCIDevice{Address: at, Parent: &parent, Root: root, Class: &class,
			NUMANode: &node, IOMMUGroup: &group, SRIOV: vfs})
		h.IOMMU.Groups = append(h.IOMMU.Groups, topology.IOMMUGroup{ID: group, Devices: []topology.PCIAddr{at}})
	}
	function(gpu, down0, 0x030200, 2*node, nil)
	function(nic, down1, 0x020000, 2*node+1, sriov)
	h.GPUs = append(h.GPUs, topology.GPU{Address: &gpu, Functions: []topology.PCIAddr{gpu}, Kind: "discrete",
		Vendor: "NVIDIA Corporation", NUMANode: &node})
	h.NICs = append(h.NICs, topology.NIC{Address: &nic, Netdevs: []string{fmt.Sprintf("eth%d", node)},
		RDMA:      []string{fmt.Sprintf("mlx5_%d", node)},
		SpeedMbps: new(int64(100_000)), NUMANode: &node, Driver: "mlx5_core", SRIOV: sriov})
	return fault
}

func TestTheLargeHostIsWhatItSays(t *testing.T) {
	t.Parallel()
	h, err := largeHost()
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse("lab", []byte("name: one\nhugepages: 1GiB\nnodes: {vm: {cpus: 16, memory: 32GiB, gpus: 1, "+
		"vfs: 1}}"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := build.Problem(h, l, build.Options{HostName: "large"})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Cores) != 512 || len(p.NUMANodes) != 16 || len(p.Devices) != 32 {
		t.Errorf("%d cores, %d NUMA nodes, %d devices", len(p.Cores), len(p.NUMANodes), len(p.Devices))
	}
	r, err := search.Solve(t.Context(), p, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Optimal || r.Cost != 0 {
		t.Errorf("a lab node with all that it needs on one NUMA node costs %d, optimal %v", r.Cost, r.Optimal)
	}
}
