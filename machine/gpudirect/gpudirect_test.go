package gpudirect

import (
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

func address(s string) topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		panic(err)
	}
	return a
}

// server is correctly set up: two sockets, each with an H100 and a ConnectX-7 below a switch.
func server() *topology.Host {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTree, Name: "server"},
		System: topology.System{InVM: new(false), CPUModel: "Intel(R) Xeon(R) Platinum 8480C"},
		Kernel: topology.Kernel{Release: "6.8.0", Cmdline: new("iommu=pt"), ModulesKnown: true,
			Modules: []string{"mlx5_core", "mlx5_ib", "nvidia", "nvidia_peermem"}},
		IOMMU:     topology.IOMMU{Enabled: new(true)},
		NUMANodes: []topology.NUMANode{{ID: 0, CPUs: topology.CPUs(0, 1)}, {ID: 1, CPUs: topology.CPUs(2, 3)}}}
	for i, bus := range []string{"1", "8"} {
		root := "pci0000:" + bus + "0"
		var above *topology.PCIAddr
		add := func(at, port string, class topology.ID24, vendor topology.ID16, d topology.PCIDevice) topology.PCIAddr {
			d.Address, d.Parent, d.Root, d.NUMANode = address("0000:"+bus+at), above, root, new(i)
			d.Class, d.Vendor, d.DriverKnown = new(class), new(vendor), true
			if port != "" {
				d.Bridge, d.ACS = &topology.Bridge{Port: port}, new(topology.ACS{DirectTranslated: true})
			} else {
				d.IOMMUGroup = new(len(h.PCI))
				h.IOMMU.Groups = append(h.IOMMU.Groups, topology.IOMMUGroup{ID: len(h.PCI), Type: "identity",
					Devices: []topology.PCIAddr{d.Address}})
			}
			h.PCI = append(h.PCI, d)
			return d.Address
		}
		const bridge = 0x060400
		rootPort := add("0:01.0", "root port", bridge, 0x8086, topology.PCIDevice{})
		above = &rootPort
		up := add("1:00.0", "upstream port", bridge, 0x1000, topology.PCIDevice{})
		above = &up
		first, second := add("2:00.0", "downstream port", bridge, 0x1000, topology.PCIDevice{}),
			add("2:01.0", "downstream port", bridge, 0x1000, topology.PCIDevice{})
		above = &first
		g := add("3:00.0", "", 0x030200, topology.VendorNVIDIA, topology.PCIDevice{Driver: "nvidia"})
		above = &second
		n := add("4:00.0", "", 0x020700, topology.VendorMellanox,
			topology.PCIDevice{Driver: "mlx5_core", ATS: new(false)})
		h.GPUs = append(h.GPUs, topology.GPU{Address: &g, Model: "NVIDIA H100 80GB HBM3", Driver: "nvidia",
			DMABuf: new(true), MemoryBytes: new(uint64(80 << 30)), BAR1Bytes: new(uint64(128 << 30))})
		h.NICs = append(h.NICs, topology.NIC{Address: &n, RDMA: []string{"mlx5_" + string(rune('0'+i))},
			Driver: "mlx5_core"})
	}
	return h
}

func all(h *topology.Host, bridges bool, set func(*topology.PCIDevice)) {
	for i := range h.PCI {
		if (h.PCI[i].Bridge != nil) == bridges {
			set(&h.PCI[i])
		}
	}
}

func TestEachFactDecides(t *testing.T) {
	t.Parallel()
	noModule := func(h *topology.Host) { h.Kernel.Modules = []string{"nvidia"} }
	kept := func(h *topology.Host) {
		all(h, false, func(d *topology.PCIDevice) { d.Driver = "vfio-pci" })
		for i := range h.GPUs {
			h.GPUs[i].Driver, h.NICs[i].Driver, h.NICs[i].RDMA = "vfio-pci", "vfio-pci", nil
		}
	}
	via := func(c topology.PathClass) func(*topology.Host) {
		return func(h *topology.Host) {
			h.Reported = []topology.Path{{A: "0000:13:00.0", B: "0000:14:00.0", Class: c}}
		}
	}
	redirect := func(h *topology.Host) {
		all(h, true, func(d *topology.PCIDevice) { d.ACS.RequestRedirect = true })
	}
	tests := []struct {
		name  string
		set   func(*topology.Host)
		check string
		want  finding.Status
		says  string // part of evidence and fix
		all   finding.Status
	}{
		{name: "all in order", set: func(*topology.Host) {}, check: "peer-memory", want: finding.OK,
			says: "nvidia_peermem", all: finding.OK},
		{name: "dma-buf, and a rdma-core that nobody saw", set: noModule, check: "peer-memory", want: finding.Unknown,
			says: "rdma-core 34", all: finding.Unknown},
		{name: "dma-buf, and a rdma-core that has it", set: func(h *topology.Host) {
			noModule(h)
			h.System.RDMACore = "34.0"
		}, check: "peer-memory", want: finding.OK, says: "rdma-core: 34.0", all: finding.OK},
		{name: "dma-buf, and a rdma-core without it", set: func(h *topology.Host) {
			noModule(h)
			h.System.RDMACore = "33.1"
		}, check: "peer-memory", want: finding.Failed, says: "rdma-core: 33.1", all: finding.Failed},
		{name: "dma-buf, and a NIC that may not take it", set: func(h *topology.Host) {
			noModule(h)
			h.System.RDMACore, h.NICs[0].Driver = "50.0", "bnxt_re"
		}, check: "peer-memory", want: finding.Unknown, says: "bnxt_re", all: finding.Unknown},
		{name: "neither module nor dma-buf", set: func(h *topology.Host) {
			noModule(h)
			h.GPUs[0].DMABuf, h.GPUs[1].DMABuf = new(false), new(false)
		}, check: "peer-memory", want: finding.Failed, says: "modprobe nvidia-peermem", all: finding.Failed},
		{name: "modules that were not read", set: func(h *topology.Host) {
			noModule(h)
			h.Kernel.ModulesKnown, h.GPUs[0].DMABuf = false, nil
		}, check: "peer-memory", want: finding.Unknown, says: "not known", all: finding.Unknown},
		{name: "GPUs of AMD", set: func(h *topology.Host) {
			all(h, false, func(d *topology.PCIDevice) {
				if *d.Vendor == topology.VendorNVIDIA {
					d.Vendor, d.Driver = new(topology.ID16(topology.VendorAMD)), "amdgpu"
				}
			})
			h.GPUs[0].Driver, h.GPUs[1].Driver = "amdgpu", "amdgpu"
		}, check: "peer-memory", want: finding.Unknown, says: "CONFIG_DMABUF_MOVE_NOTIFY", all: finding.Unknown},
		{name: "an IOMMU that translates", set: func(h *topology.Host) { h.IOMMU.Groups[0].Type = "DMA-FQ" },
			check: "iommu", want: finding.Failed, says: "iommu=pt", all: finding.Failed},
		{name: "no IOMMU", set: func(h *topology.Host) {
			h.IOMMU = topology.IOMMU{Enabled: new(false)}
			all(h, false, func(d *topology.PCIDevice) { d.IOMMUGroup = nil })
		}, check: "iommu", want: finding.OK, says: "empty", all: finding.OK},
		{name: "an IOMMU of which nothing is told", set: func(h *topology.Host) {
			h.IOMMU, h.Kernel.Cmdline = topology.IOMMU{}, nil
			all(h, false, func(d *topology.PCIDevice) { d.IOMMUGroup = nil })
		}, check: "iommu", want: finding.Unknown, says: "not known", all: finding.Unknown},
		{name: "the command line alone", set: func(h *topology.Host) {
			h.IOMMU = topology.IOMMU{Enabled: new(true)}
			all(h, false, func(d *topology.PCIDevice) { d.IOMMUGroup = nil })
		}, check: "iommu", want: finding.OK, says: "/proc/cmdline: iommu=pt", all: finding.OK},
		{name: "a guest", set: func(h *topology.Host) { h.System.InVM = new(true) }, check: "acs",
			want: finding.Unknown, says: onHost, all: finding.Unknown},
		{name: "ports that redirect", set: redirect, check: "acs", want: finding.Failed,
			says: "ReqRedir+ at 0000:12:00.0 0000:12:01.0", all: finding.Failed},
		{name: "ports that redirect, with ATS", set: func(h *topology.Host) {
			redirect(h)
			all(h, false, func(d *topology.PCIDevice) { d.ATS = new(true) })
		}, check: "acs", want: finding.OK, says: "ATS of GPU on, of NIC on", all: finding.OK},
		{name: "ports that nobody read", set: func(h *topology.Host) {
			all(h, true, func(d *topology.PCIDevice) { d.ACS = nil })
		}, check: "acs", want: finding.Unknown, says: "as root", all: finding.Unknown},
		{name: "a GPU that is not in the PCI tree", set: func(h *topology.Host) {
			via(topology.PathPIX)(h)
			h.PCI = slices.DeleteFunc(h.PCI, func(d topology.PCIDevice) bool { return d.Address == *h.GPUs[0].Address })
		}, check: "acs", want: finding.Unknown, says: "not known", all: finding.Unknown},
		{name: "cards for guests behind ports that redirect", set: func(h *topology.Host) { kept(h); redirect(h) },
			check: "acs", want: finding.Failed, says: "Direct Translated P2P", all: finding.Failed},
		{name: "an IOMMU for guests", set: kept, check: "iommu", want: finding.Unknown, says: "enable ATS on the guest",
			all: finding.Unknown},
		{name: "cards for guests", set: kept, check: "driver", want: finding.Unknown, says: inGuest,
			all: finding.Unknown},
		{name: "a GPU for a guest with a NIC of the host", set: func(h *topology.Host) {
			h.GPUs[0].Driver = "vfio-pci"
			all(h, false, func(d *topology.PCIDevice) {
				if d.Address == *h.GPUs[0].Address {
					d.Driver = "vfio-pci"
				}
			})
		}, check: "driver", want: finding.Failed, says: "driver=mlx5_core of the NIC", all: finding.Failed},
		{name: "a driver for screens", set: func(h *topology.Host) { h.GPUs[0].Driver = "nouveau" }, check: "driver",
			want: finding.Failed, says: "install NVIDIA's driver", all: finding.Failed},
		{name: "a card for games", set: func(h *topology.Host) { h.GPUs[0].Model = "AD102 [GeForce RTX 4090]" },
			check: "driver", want: finding.Failed, says: "GeForce", all: finding.Failed},
		{name: "a NIC without RDMA", set: func(h *topology.Host) { h.NICs[0].RDMA = []string{"rxe0"} }, check: "rdma",
			want: finding.Failed, says: "mlx5_ib", all: finding.Failed},
		{name: "a NIC of which that is not told", set: func(h *topology.Host) {
			h.NICs[0].RDMA, h.Kernel.ModulesKnown = nil, false
		}, check: "rdma", want: finding.Unknown, says: "not known", all: finding.Unknown},
		{name: "the smallest BAR", set: func(h *topology.Host) { h.GPUs[0].BAR1Bytes = new(uint64(256 << 20)) },
			check: "bar", want: finding.Failed, says: "Resizable BAR", all: finding.Failed},
		{name: "a BAR of half the memory", set: func(h *topology.Host) { h.GPUs[0].BAR1Bytes = new(uint64(40 << 30)) },
			check: "bar", want: finding.OK, says: "memory 80 GiB", all: finding.OK},
		{name: "memory that is not told", set: func(h *topology.Host) { h.GPUs[0].MemoryBytes = nil }, check: "bar",
			want: finding.Unknown, says: "memory not known", all: finding.Unknown},
		{name: "no NIC near the GPU", set: via(topology.PathSYS), check: "path", want: finding.Failed, says: "path SYS",
			all: finding.Failed},
		{name: "no NIC at the root complex of the GPU", set: via(topology.PathNODE), check: "path",
			want: finding.Failed, says: "path NODE", all: finding.Failed},
		{name: "a way through the processor", set: via(topology.PathPHB), check: "path",
			want: finding.Unknown, says: "NCCL_NET_GDR_LEVEL=PHB", all: finding.Unknown},
		{name: "a way through a processor for desktops", set: func(h *topology.Host) {
			h.System.CPUModel = "13th Gen Intel(R) Core(TM) i9-13900K"
			via(topology.PathPHB)(h)
		}, check: "path", want: finding.Failed, says: "NCCL_NET_GDR_READ=0", all: finding.Failed},
		{name: "a GPU joined to its processor", set: func(h *topology.Host) {
			via(topology.PathNODE)(h)
			h.GPUs[0].Model = "NVIDIA GB200"
		}, check: "path", want: finding.Unknown, says: "NVLink C2C", all: finding.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := server()
			tt.set(h)
			h.Complete()
			r, err := Check(h, "server")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range slices.Concat(r.Facts, r.Pairs[0].Checks) {
				if f.ID != tt.check {
					continue
				}
				if text := f.Evidence + " " + f.Fix; f.Status != tt.want || !strings.Contains(text, tt.says) {
					t.Errorf("%s is %s: %s; want %s and %q", f.ID, f.Status, text, tt.want, tt.says)
				}
				if f.Status != finding.OK && f.Fix == "" || f.Status == finding.Failed && f.Consequence == "" {
					t.Errorf("no fix or consequence: %+v", f)
				}
				if r.Status != tt.all {
					t.Errorf("the machine is %s, want %s", r.Status, tt.all)
				}
				return
			}
			t.Errorf("no check %s", tt.check)
		})
	}
}

// A far pair is no fault if each GPU also has a near NIC.
func TestFarPairsNameTheNearNIC(t *testing.T) {
	t.Parallel()
	h := server()
	h.Complete()
	r, err := Check(h, "server")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range r.Pairs {
		got = append(got, p.Path.String()+" "+string(p.Status))
	}
	if want := []string{"PIX ok", "SYS failed", "SYS failed", "PIX ok"}; !slices.Equal(got, want) {
		t.Errorf("pairs are %v, want %v", got, want)
	}
	i := slices.IndexFunc(r.Pairs[1].Checks, func(f finding.Finding) bool { return f.ID == "path" })
	if fix := r.Pairs[1].Checks[i].Fix; fix != "use 0000:14:00.0 for this GPU (PIX), as NCCL does by itself" {
		t.Error(fix)
	}
}

func TestMachinesWithoutPairs(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"../../examples/hosts/r740.ttar":              "no GPU that computes is known",
		"../diagnose/testdata/cases/geforce.tar.gz":   "no NIC for RDMA is known",
		"../diagnose/testdata/cases/pcie-atomics.txt": "no NIC for RDMA is known",
	} {
		h, err := inspect.ReadPath(t.Context(), file, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Check(h, file); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), file) {
			t.Errorf("%v, want %s: %s", err, file, want)
		}
	}
}

func TestTheFixIsAboutTheNICOfThePair(t *testing.T) {
	t.Parallel()
	h := server()
	for i := range h.GPUs {
		h.GPUs[i].Model = "NVIDIA H100 PCIe"
	}
	moved := h.Device(*h.NICs[0].Address)
	moved.Parent, moved.Root, moved.NUMANode = nil, "pci0000:a0", new(1)
	h.GPUs = h.GPUs[:1]
	h.Complete()
	r, err := Check(h, "server")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Pairs[:2] {
		f, _ := lists.Lookup(p.Checks, func(f finding.Finding) bool { return f.ID == "path" })
		other := h.NICs[0].ID()
		if p.NIC == other {
			other = h.NICs[1].ID()
		}
		if p.Path != topology.PathSYS || !strings.Contains(f.Fix, p.NIC) || strings.Contains(f.Fix, other) {
			t.Errorf("%s with %s over %s: %s", p.GPU, p.NIC, p.Path, f.Fix)
		}
	}
}
