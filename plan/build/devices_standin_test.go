package build_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

func TestEmulatedGPUsOfAnEmulatedHostAreCalledWhatTheyAre(t *testing.T) {
	t.Parallel()
	const class3D = topology.ID24(0x030200)
	h := cardHost(t, card{"0000:06:00.0", class3D, 1, func(d *topology.PCIDevice) {
		d.Vendor, d.Device = new(topology.VendorNVIDIA), new(topology.ID16(0x2329))
		d.SubsystemVendor, d.SubsystemDevice = new(topology.VendorRedHat), new(topology.ID16(0x4c01))
	}})
	h.System.Vendor, h.GPUs = topology.VendorEmulated, nil
	h.Complete()
	p, err := build.Problem(h, asks(plan.KindGPU), build.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const note = "the host is emulated: its GPUs (0000:06:00.0) have only memory, and compute nothing"
	if !slices.Contains(p.Notes, note) || len(p.Devices) != 1 || p.Devices[0].Model != "rackless emulated H20" &&
		p.Devices[0].Model != "emulated H20" {
		t.Errorf("notes %q, devices %+v", p.Notes, p.Devices)
	}
}

// A stand-in goes with its audio function. A lab without GPUs gets no note.
func TestStandInsOfAnEmulatedHostGoAsGPUsAndAreCalledWhatTheyAre(t *testing.T) {
	t.Parallel()
	const classOtherDisplay = topology.ID24(0x038000)
	h := cardHost(t,
		card{"0000:06:00.0", classOtherDisplay, 1, func(d *topology.PCIDevice) {
			d.Vendor = new(topology.ID16(0x1234))
		}},
		card{"0000:06:00.1", classAudio, 1, nil}, card{"0000:41:00.0", classEthernet, 2, nil})
	const note = "the host is emulated: its GPUs (0000:06:00.0) are stand-ins, which go where GPUs go and " +
		"compute nothing"
	for _, test := range []struct {
		name, vendor string
		kinds        []string
		devices      []string
		note         bool
	}{
		{"an emulated host", topology.VendorEmulated, []string{plan.KindGPU},
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1", "nic 0000:41:00.0 bundle 1"}, true},
		{"an emulated host of which no GPU is wanted", topology.VendorEmulated, []string{plan.KindNIC},
			[]string{"gpu 0000:06:00.0 bundle 0 with 0000:06:00.1", "nic 0000:41:00.0 bundle 1"}, false},
		{"another virtual machine, whose second screen is none", "QEMU", []string{plan.KindNIC},
			[]string{"nic 0000:41:00.0 bundle 0"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := *h
			h.System.Vendor, h.GPUs = test.vendor, nil
			h.Complete()
			p, err := build.Problem(&h, asks(test.kinds...), build.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.devices, deviceLines(p)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if got := slices.Contains(p.Notes, note); got != test.note {
				t.Errorf("notes %q; want the one on stand-ins: %v", p.Notes, test.note)
			}
		})
	}
}
