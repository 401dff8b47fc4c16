package checks

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
)

const healthyAdapter = "pci 0000:01:00.0 b315 mlx5_core\nnet 0000:01:00.0 eth0 0x1003 1\nuptime 900.1\n"

// Past faults are no findings if the emulation says that they are over.
func TestNodesTellTheFaultsOfAdapters(t *testing.T) {
	downs := func(at ...int) string {
		text := healthyAdapter
		for _, s := range at {
			text += fmt.Sprintf("[  %d.100000] mlx5_core 0000:01:00.0 eth0: Link down\n", s)
		}
		return text
	}
	recorded := func(name string) string { return recorded(t, "adapter-"+name+".txt") }
	for _, tt := range []struct {
		name, says string
		card, both string // of a card, and of an adapter that the emulation finds healthy
		evidence   string
	}{
		{"healthy", healthyAdapter, "", "", ""},
		{"not to be read", "", "", "", ""},
		{"no function", "uptime 900.1\n", "", IDAdapter, "lspci shows no function of it"},
		{"off the bus", recorded("offbus"), IDAdapterBus, IDAdapterBus,
			"configuration space of 0000:01:00.0 reads ones"},
		{"the kernel has found it off the bus", strings.Replace(recorded("offbus"), "ffff", "b315", 1), IDAdapterBus,
			IDAdapterBus, "PCI slot is unavailable"},
		{"fatal", recorded("fatal"), IDAdapterFirmware, IDAdapterFirmware, "poll_health:836:(pid 0): Fatal error 5 " +
			"detected; 0x1: firmware internal error; mlx5_health_try_recover:355:(pid 201): health recovery failed"},
		{"fatal and recovered", recorded("recovered"), "", "", ""},
		{"hung", recorded("hung"), IDAdapterCommands, "", "ACCESS_REG(0x805) timeout. Will cause a leak"},
		{"hung long ago", strings.Replace(recorded("hung"), "uptime ", "uptime 9", 1), "", "", ""},
		{"cable", recorded("cable"), IDAdapterCable, IDAdapterCable, "module 0, Cable unplugged"},
		{"cable is back", strings.Replace(recorded("cable"), "eth0 0x1003 0", "eth0 0x1003 1", 1) +
			"[  725.5] mlx5_core 0000:01:00.0: Port module event: module 0, Cable plugged\n", "", "", ""},
		{"no carrier", strings.Replace(healthyAdapter, "0x1003 1", "0x1003 0", 1), IDAdapterLink, IDAdapterLink,
			"/sys/class/net/eth0/carrier: 0"},
		{"set down in the node", strings.Replace(healthyAdapter, "0x1003 1", "0x1002 -", 1), "", "", ""},
		{"flaps", downs(850, 870, 890), IDAdapterFlaps, "", "Link down 3 times within 50 s"},
		{"flaps and is down now", strings.Replace(downs(850, 870, 890), "0x1003 1", "0x1003 0", 1), IDAdapterFlaps,
			IDAdapterLink, ""},
		{"unplugged before the driver was loaded anew",
			strings.Replace(recorded("cable"), "eth0 0x1003 0", "eth0 0x1003 1", 1) +
				"[  725.6] mlx5_core 0000:01:00.0: firmware version: 14.32.1010\n", "", "", ""},
		{"goes down seldom", downs(800, 870, 890), "", "", ""},
		{"another function", strings.ReplaceAll(recorded("fatal"), "01:00.0: ", "02:00.0: "), "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newAdaptedLab(t, func(*Adapter) {})
				for _, card := range []bool{false, true} {
					want, reader := tt.both, Reader(f)
					if card {
						want, reader = tt.card, placedLab{f.fakeLab}
						for i := range f.lab.Nodes {
							f.lab.Nodes[i].NIC = lab.NICVirtio
						}
					} else {
						for i := range f.lab.Nodes {
							f.lab.Nodes[i].NIC = lab.NICConnectX4Lx
						}
					}
					f.nodes["vm00"].adapters, f.nodes["vm01"].adapters = healthyAdapter, tt.says
					got := ""
					for _, g := range adapters(t.Context(), f.lab, reader, true) {
						if g.Status == finding.OK {
							continue
						}
						got += g.ID
						if g.Subject != "vm01 eth0" && g.Subject != "vm01 0000:01:00.0" ||
							!strings.Contains(g.Evidence, tt.evidence) || g.Fix == "" || g.Consequence == "" {
							t.Errorf("card %v: %+v", card, g)
						}
					}
					if got != want {
						t.Errorf("card %v: failed %q, want %q", card, got, want)
					}
				}
			})
		})
	}
}

type placedLab struct{ *fakeLab }

func (placedLab) HasHostCards() bool { return true }

// It may have no cable.
func TestOtherPortsOfACardAreNotTheLabs(t *testing.T) {
	f := newFakeLab(t, testLab(t, 1, 1))
	f.nodes["vm00"].adapters = "pci 0000:01:00.0 b315 mlx5_core\nnet 0000:01:00.0 eth9 0x1003 0\nuptime 1\n"
	if got := adapters(t.Context(), f.lab, placedLab{f}, true); got != nil {
		t.Errorf("%+v", got)
	}
}

func FuzzAdapters(f *testing.F) {
	f.Add(healthyAdapter)
	f.Add("[1] mlx5_core 0000:01:00.0: Fatal error 5 detected\n[ mlx5_core : \npci\nuptime x\n")
	f.Fuzz(func(t *testing.T, out string) {
		for _, a := range parseAdapters(out) {
			for _, c := range adapterChecks {
				if said := a.says(c.id, true); len(said) > 8*maxMessage+len(a.pci)+len(a.nic)+2*len(out) {
					t.Errorf("%d characters", len(said))
				}
			}
		}
	})
}
