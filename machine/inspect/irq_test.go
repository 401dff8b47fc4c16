package inspect

import (
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

const interruptsText = `           CPU0       CPU1       CPU2       CPU3
   0:         57          0          0          0  IR-IO-APIC    2-edge      timer
   9:          0          4          0          0  IR-IO-APIC    9-fasteoi   acpi
  16:          1          2          3          4  IR-IO-APIC   16-fasteoi   i801_smbus, ehci_hcd:usb1
 124:         12          3          0          0  IR-PCI-MSI 524288-edge      eth0-TxRx-0
 126:          0          7          0          0  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0
 127:          0          0          0          5  IR-PCI-MSIX-0000:3b:00.0    2-edge      mlx5_comp1@pci:0000:3b:00.0
 NMI:          1          1          1          1   Non-maskable interrupts
 ERR:          0`

// irqTree has interrupts of an RDMA NIC (126, 127), of an Ethernet NIC (124), of other devices, per CPU (0: without
// files) and unused (130).
func irqTree(more files) files {
	return files{
		"proc/interrupts":                               interruptsText,
		"proc/irq/0":                                    "dir",
		"proc/irq/9/effective_affinity_list":            "1",
		"proc/irq/16/smp_affinity_list":                 "2-3",
		"proc/irq/124/effective_affinity_list":          "0",
		"proc/irq/124/smp_affinity_list":                "0-3",
		"proc/irq/126/effective_affinity_list":          "1",
		"proc/irq/127/effective_affinity_list":          "3",
		"proc/irq/130/effective_affinity_list":          "",
		"proc/irq/130/smp_affinity_list":                "0-3",
		"proc/irq/131/smp_affinity":                     "8",
		"proc/irq/default_smp_affinity":                 "f",
		"sys/bus/pci/devices/0000:3b:00.0/msi_irqs/126": "msix",
		"sys/bus/pci/devices/0000:3b:00.0/msi_irqs/127": "msix",
		"sys/bus/pci/devices/0000:5e:00.0/msi_irqs/124": "msix",
		"sys/bus/pci/devices/0000:00:1f.2/msi_irqs/131": "msi",
	}.with(more)
}

func TestReadIRQs(t *testing.T) {
	t.Parallel()
	address := func(s string) *topology.PCIAddr {
		a, err := topology.ParsePCIAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		return &a
	}
	host := func(isolated, noHz *topology.CPUSet, rdma ...string) *topology.Host {
		h := &topology.Host{CPUs: topology.CPUStates{Isolated: isolated, NoHzFull: noHz}}
		for _, a := range []string{"0000:00:1f.2", "0000:3b:00.0", "0000:5e:00.0"} {
			h.PCI = append(h.PCI, topology.PCIDevice{Address: *address(a)})
		}
		h.NICs = []topology.NIC{{Address: address("0000:3b:00.0"), RDMA: rdma}, {Address: address("0000:5e:00.0")},
			{Name: "NIC2", RDMA: []string{"rxe0"}}}
		return h
	}
	irq := func(number int, cpus string, count uint64, device string) topology.IRQ {
		set, err := topology.ParseCPUSet(cpus)
		if err != nil {
			t.Fatal(err)
		}
		return topology.IRQ{Number: number, CPUs: set, Count: &count, Device: device}
	}
	none := new(topology.CPUSet)
	tests := []struct {
		name   string
		host   *topology.Host
		tree   files
		want   []topology.IRQ
		unread int
	}{
		{"nothing is isolated and there is no RDMA", host(none, nil), irqTree(nil), nil, 0},
		{
			"those of an RDMA NIC, wherever they are", host(none, none, "mlx5_0"), irqTree(nil),
			[]topology.IRQ{irq(126, "1", 7, "0000:3b:00.0"), irq(127, "3", 5, "0000:3b:00.0")}, 0,
		},
		{
			"those on isolated CPUs, with the function or the handlers that they belong to",
			host(new(topology.CPUs(3)), none), irqTree(nil),
			[]topology.IRQ{
				irq(16, "2-3", 10, "i801_smbus, ehci_hcd:usb1"), irq(127, "3", 5, "0000:3b:00.0"),
				{Number: 131, CPUs: topology.CPUs(3), Device: "0000:00:1f.2"},
			}, 0,
		},
		{
			"CPUs without ticks count as isolated, and an RDMA NIC's are not listed twice",
			host(nil, new(topology.CPUs(1)), "mlx5_0"), irqTree(nil),
			[]topology.IRQ{irq(9, "1", 4, "acpi"), irq(126, "1", 7, "0000:3b:00.0"), irq(127, "3", 5, "0000:3b:00.0")},
			0,
		},
		{
			"no counts are there", host(none, none, "mlx5_0"), irqTree(files{"proc/interrupts": "unreadable"}),
			[]topology.IRQ{{Number: 126, CPUs: topology.CPUs(1), Device: "0000:3b:00.0"},
				{Number: 127, CPUs: topology.CPUs(3), Device: "0000:3b:00.0"}}, 1,
		},
		{
			"counts that are broken", host(none, none, "mlx5_0"),
			irqTree(files{"proc/interrupts": "CPU0 CPU1\n126: 1\n127: 3 4 x-edge y"}),
			[]topology.IRQ{{Number: 126, CPUs: topology.CPUs(1), Device: "0000:3b:00.0"},
				irq(127, "3", 7, "0000:3b:00.0")}, 1,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := test.tree.reader(t)
			r.h = test.host
			r.readIRQs()
			r.h.Complete()
			if diff := cmp.Diff(test.want, r.h.IRQs); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(r.h.Unread) != test.unread {
				t.Errorf("unread %v; want %d", r.h.Unread, test.unread)
			}
		})
	}
	t.Run("where no interrupt matters, no file is read", func(t *testing.T) {
		t.Parallel()
		var asked atomic.Int64
		r := &reader{fs: countingFS{FS: irqTree(nil).tree(t), asked: &asked}, h: host(none, none)}
		r.readIRQs()
		if asked.Load() != 0 {
			t.Errorf("%d reads; want none", asked.Load())
		}
	})
}
