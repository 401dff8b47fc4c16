package render

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func cards(kind string, functions ...string) []plan.NodeDevice {
	var list []plan.NodeDevice
	for _, f := range functions {
		list = append(list, plan.NodeDevice{ID: f, Kind: kind, Functions: []string{f}})
	}
	return list
}

func TestPortsAreWhereTheGuestFindsThem(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Input
		node string
		want []string
	}{
		{"a NIC on an expander bus", epycPair(t), "vm00",
			[]string{"eth0 pci0000:90/0000:90:00.0/0000:*:00.0 keeps its own MAC"}},
		{"two NICs on two of them", h20(t), "node00", []string{
			"eth0 pci0000:20/0000:20:00.2/0000:*:00.0 keeps its own MAC",
			"eth1 pci0000:90/0000:90:00.2/0000:*:00.0 keeps its own MAC",
		}},
		{"a virtual function", r740(t), "vm", []string{"eth0 pci0000:20/0000:20:00.0/0000:*:00.0"}},
		{"a virtual function and NICs behind switches", switched(t), "vm", []string{
			"eth0 pci0000:20/0000:20:00.1/0000:*:00.0 keeps its own MAC",
			"eth1 pci0000:90/0000:90:00.0/0000:*:00.0/0000:*:01.0/0000:*:00.0 keeps its own MAC",
			"eth2 pci0000:90/0000:90:00.0/0000:*:00.0/0000:*:02.0/0000:*:00.0 keeps its own MAC",
			"eth3 pci0000:20/0000:20:00.0/0000:*:00.0/0000:*:01.0/0000:*:00.0",
		}},
		{"functions of one card", input("l", "h", intelHost(), shape{name: "vm", threads: 1, flat: true, nics: 2,
			cells: [][]home{{{0, span(1, 2), gib}}},
			cards: append(cards("nic", "0000:41:00.0"), cards("nic", "0000:41:00.1")...)}), "vm",
			[]string{"eth0 pci0000:00/0000:00:02.0/0000:*:00.0 keeps its own MAC",
				"eth1 pci0000:00/0000:00:02.0/0000:*:00.1 keeps its own MAC"}},
		{"more NICs than functions of a slot", input("l", "h", intelHost(), shape{name: "vm", threads: 1, flat: true,
			nics: 9, cells: [][]home{{{0, span(1, 2), gib}}},
			cards: cards("nic", "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0", "0000:05:00.0",
				"0000:06:00.0", "0000:07:00.0", "0000:08:00.0", "0000:09:00.1")}), "vm",
			append(func() (first []string) {
				for i := range 8 {
					first = append(first, fmt.Sprintf("eth%d pci0000:00/0000:00:02.%d/0000:*:00.0 keeps its own MAC", i,
						i))
				}
				return first
			}(), "eth8 pci0000:00/0000:00:03.0/0000:*:00.0 keeps its own MAC")},
		{"an emulated port", input("l", "h", intelHost(), shape{name: "vm", threads: 1, flat: true, nics: 1,
			cells: [][]home{{{0, span(1, 2), gib}}}}), "vm",
			[]string{"eth0 "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ports, err := Ports(c.in, c.node)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range ports {
				text := p.Name + " " + p.Path
				if p.OwnMAC {
					text += " keeps its own MAC"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func readDomain(t *testing.T, text []byte) *libvirtxml.Domain {
	t.Helper()
	d := &libvirtxml.Domain{}
	if err := d.Unmarshal(string(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

// The domain and Ports must agree about the positions of devices.
func TestPortsAgreeWithTheDomain(t *testing.T) {
	for _, c := range domainCases() {
		in := c.in(t)
		artefacts, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range in.Plan.Nodes {
			d := readDomain(t, artefacts[i].Data)
			controllers := map[uint]libvirtxml.DomainController{}
			for _, k := range d.Devices.Controllers {
				if k.Type == "pci" {
					controllers[*k.Index] = k
				}
			}
			where := map[topology.PCIAddr]string{}
			add := func(host, guest *libvirtxml.DomainAddressPCI) {
				path := fmt.Sprintf("0000:*:%02x.%d", *guest.Slot, *guest.Function)
				port := controllers[*guest.Bus].Address.PCI
				for {
					above := controllers[*port.Bus]
					if above.Model == pcieRoot || above.Model == pcieExpanderBus {
						break
					}
					path = fmt.Sprintf("0000:*:%02x.%d/%s", *port.Slot, *port.Function, path)
					port = above.Address.PCI
				}
				root := uint(0)
				if bus := controllers[*port.Bus].PCI; bus.Target != nil && bus.Target.BusNr != nil {
					root = *bus.Target.BusNr
				}
				a := topology.PCIAddr{Domain: uint32(*host.Domain), Bus: uint8(*host.Bus), Device: uint8(*host.Slot),
					Function: uint8(*host.Function)}
				where[a] = fmt.Sprintf("pci0000:%02x/0000:%02x:%02x.%d/%s", root, root, *port.Slot, *port.Function,
					path)
			}
			for _, h := range d.Devices.Hostdevs {
				add(h.SubsysPCI.Source.Address, h.Address.PCI)
			}
			for _, f := range d.Devices.Interfaces {
				if f.Source.Hostdev != nil {
					add(f.Source.Hostdev.PCI.Address, f.Address.PCI)
				}
			}
			m, err := newMachine(in)
			if err != nil {
				t.Fatal(err)
			}
			ports, err := Ports(in, n.Name)
			if err != nil {
				t.Fatal(err)
			}
			if len(ports) != len(n.NICs) {
				t.Errorf("%s: %d ports of %d", c.name, len(ports), len(n.NICs))
			}
			for k, p := range portsOf(&n) {
				if p.card == nil {
					continue
				}
				a, err := m.address(functionOf(p.card))
				if err != nil {
					t.Fatal(err)
				}
				if ports[k].Path != where[a] || ports[k].Path == "" {
					t.Errorf("%s: port %d is at %q, the domain has %s at %q", c.name, k, ports[k].Path, a, where[a])
				}
			}
		}
	}
}

func TestPortsOfWhatIsNotThere(t *testing.T) {
	for want, ask := range map[string]func() error{
		`the plan has no node "vm07"`: func() error { _, err := Ports(epycPair(t), "vm07"); return err },
		`ports of node "vm": no plan`: func() error { _, err := Ports(Input{}, "vm"); return err },
		`ports of node "vm": no vcpus`: func() error {
			in := r740(t)
			in.Plan.Nodes[0].VCPUs = nil
			_, err := Ports(in, "vm")
			return err
		},
		`ports of node "vm": lab without a name`: func() error {
			in := r740(t)
			in.Plan.Lab = ""
			_, err := Ports(in, "vm")
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestEmulatedNodesHaveNothingOfKVM(t *testing.T) {
	for _, c := range domainCases() {
		in := c.in(t)
		if len(in.Plan.Nodes[0].VCPUs) > maxPlainVCPUs {
			in.Emulated = true
			if _, err := Domains(in); err == nil || !strings.Contains(err.Error(), "at most 255") {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		real, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Emulated = true
		emulated, err := Domains(in)
		if err != nil {
			t.Fatal(err)
		}
		for i := range emulated {
			for _, word := range []string{"<domain type='kvm'", "kvm", "host-passthrough", "topoext", "fw_cfg",
				"maxphysaddr"} {
				if strings.Contains(string(emulated[i].Data), word) {
					t.Errorf("%s: %q in a domain without KVM", c.name, word)
				}
			}
			a, b := readDomain(t, real[i].Data), readDomain(t, emulated[i].Data)
			if diff := cmp.Diff(placementOf(t, a), placementOf(t, b)); diff != "" {
				t.Errorf("%s: another placement than under KVM:\n%s", c.name, diff)
			}
		}
	}
}
