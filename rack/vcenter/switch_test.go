package vcenter_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/vspheretest"
)

// switches are a distributed and a standard one. The simulator requires all hosts of the cluster on a switch.
const switches = `switches: {ROCE-DVS: {uplinks: [vmnic2], port_groups: [ROCE-PG], vlan: 120, hosts: [DC0_C0_H0,
  DC0_C0_H1, DC0_C0_H2]},
  vSwitch7: {kind: standard, mtu: 1500, uplinks: [vmnic3], port_groups: [storage, spare]}}`

func find[T any](b *bench, kind, name string) (found T) {
	for _, e := range b.Model.Map().All(kind) {
		if e.Entity().Name == name {
			found, _ = e.(T)
		}
	}
	return found
}

func TestSwitches(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	b.group = "ROCE-PG"
	l, place := b.plan(t, 2, ", "+switches)

	survey, _, err := rack.Survey(t.Context(), l, place)
	if err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, r := range survey {
		if r.Kind == "vsphere-switch" {
			made = append(made, string(r.Status), r.What, r.Why)
		}
		if r.Kind == "vsphere-settings" && (r.Status != change.Waiting ||
			!strings.Contains(r.Why, " on ROCE-PG@(to be made), guest may set MTU")) {
			t.Errorf("settings: %s: %s", r.Status, r.Why)
		}
	}
	want := []string{"pending", "make the distributed switch ROCE-DVS, MTU 9000", "the lab file asks for it\n" +
		"on DC0_C0_H0, with uplinks vmnic2\non DC0_C0_H1, with uplinks vmnic2\non DC0_C0_H2, with uplinks vmnic2\n" +
		"port group ROCE-PG, VLAN 120",
		"pending", "make the standard switch vSwitch7, MTU 1500", "the lab file asks for it\n" +
			"on DC0_C0_H0, with uplinks vmnic3\nport group storage\nport group spare"}
	if diff := cmp.Diff(want, made); diff != "" || b.Calls.Load() != 0 {
		t.Errorf("survey, after %d calls (-want +got):\n%s", b.Calls.Load(), diff)
	}

	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	dvs := find[*simulator.DistributedVirtualSwitch](b, "DistributedVirtualSwitch", "ROCE-DVS")
	group := find[*simulator.DistributedVirtualPortgroup](b, "DistributedVirtualPortgroup", "ROCE-PG")
	config := dvs.Config.(*types.VMwareDVSConfigInfo)
	vlan := group.Config.DefaultPortConfig.(*types.VMwareDVSPortSetting).Vlan
	if config.MaxMtu != 9000 || len(config.Host) != 3 ||
		vlan.(*types.VmwareDistributedVirtualSwitchVlanIdSpec).VlanId != 120 {
		t.Errorf("distributed switch %+v, VLAN %+v", config, vlan)
	}
	for _, n := range place.Plan.Nodes {
		for _, d := range b.VM("roce." + n.Name).Config.Hardware.Device {
			if card, ok := d.(*types.VirtualSriovEthernetCard); ok {
				port := card.Backing.(*types.VirtualEthernetCardDistributedVirtualPortBackingInfo).Port
				if port.PortgroupKey != group.Key || port.SwitchUuid != dvs.Uuid {
					t.Errorf("%s is at %+v, want %s of %s", n.Name, port, group.Key, dvs.Uuid)
				}
			}
		}
	}
	network := find[*simulator.HostSystem](b, "HostSystem", vspheretest.Host).Config.Network
	if s := network.Vswitch[len(network.Vswitch)-1]; s.Name != "vSwitch7" || s.Mtu != 1500 || len(s.Portgroup) != 2 ||
		!cmp.Equal(s.Pnic, []string{"key-vim.host.PhysicalNic-vmnic3"}) {
		t.Errorf("standard switch %+v", s)
	}
	b.lists(t)
	calls := b.Calls.Load()
	if again, err := b.up(t, l, place); err != nil || b.Calls.Load() != calls {
		t.Errorf("up again: %v, with %d more calls", err, b.Calls.Load()-calls)
	} else {
		again.Close()
	}

	changed, at := b.plan(t, 2, ", "+strings.ReplaceAll(switches, "120", "121"))
	if r, err := b.up(t, changed, at); err == nil {
		r.Close()
		t.Error("a switch was changed while it was there")
	} else if !strings.Contains(err.Error(), "not changed while it is there: rackless down roce, then up") {
		t.Error(err)
	}

	c := b.Client(t)
	task, err := object.NewDistributedVirtualSwitch(c, dvs.Self).AddPortgroup(t.Context(),
		[]types.DVPortgroupConfigSpec{{Name: "theirs"}})
	if err = errors.Join(err, task.WaitEx(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := rack.Down(t.Context(), b.dirs, "roce"); err == nil || !strings.Contains(err.Error(),
		"switch ROCE-DVS has port group theirs, which lab roce does not have") {
		t.Errorf("down of a switch with another port group: %v", err)
	}
	theirs := find[*simulator.DistributedVirtualPortgroup](b, "DistributedVirtualPortgroup", "theirs")
	if task, err = object.NewDistributedVirtualPortgroup(c, theirs.Self).Destroy(t.Context()); err == nil {
		err = task.WaitEx(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	b.down(t)
	b.same(t, before)
}

func (b *bench) lists(t *testing.T) {
	t.Helper()
	want := []topology.VirtualSwitch{
		{Name: "ROCE-DVS", Kind: "distributed", MTU: new(9000), Uplinks: []string{"vmnic2"},
			PortGroups: []topology.PortGroup{{Name: "ROCE-PG", VLAN: 120}}},
		{Name: "vSwitch7", Kind: "standard", MTU: new(1500), Uplinks: []string{"vmnic3"},
			PortGroups: []topology.PortGroup{{Name: "spare"}, {Name: "storage"}}}}
	for _, source := range []string{"vsphere://" + b.host, b.Save(t, t.TempDir())} {
		h, _, err := hosts.Read(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(h.Switches, func(s topology.VirtualSwitch) bool {
			return s.Name == "DVS0" || s.Name == "vSwitch0"
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("switches of %s (-want +got):\n%s", source, diff)
		}
	}
}

func TestSwitchesThatAreRefused(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	for _, c := range []struct{ switches, want string }{
		{"DVS0: {}", "switch DVS0 is there, and not of lab roce"},
		{"vSwitch0: {kind: standard}", "host DC0_C0_H0 has a switch vSwitch0 that is not as the lab file says"},
		{"DC0_DVPG0: {}", "DC0_DVPG0 is there, and is no distributed switch"},
		{"s: {uplinks: [vmnic0]}", "NIC vmnic0 of host DC0_C0_H0 is an uplink of switch vSwitch0"},
		{"s: {kind: standard, uplinks: [vmnic9]}", "host DC0_C0_H0 has no NIC vmnic9; it has vmnic0, vmnic1"},
		{"s: {port_groups: [DC0_DVPG0]}", "port group DC0_DVPG0 is there, in another switch"},
		{"s: {kind: standard, port_groups: [VM Network]}", "port group VM Network is there, in another switch"},
		{"s: {hosts: [DC0_C0_H0, esx99]}", `has no host "esx99"`},
	} {
		l, place := b.plan(t, 1, ", switches: {"+c.switches+"}")
		if r, err := b.up(t, l, place); err == nil {
			r.Close()
			t.Errorf("%s: it came up", c.switches)
		} else if !strings.Contains(err.Error(), c.want) || b.Calls.Load() != 0 {
			t.Errorf("%s: got %v after %d calls, want %q", c.switches, err, b.Calls.Load(), c.want)
		}
	}
	b.same(t, before)

	b.ports = "nics"
	l, place := b.plan(t, 3, ", switches: {s: {uplinks: [vmnic2]}}")
	if _, _, err := rack.Survey(t.Context(), l, place); err == nil ||
		!strings.Contains(err.Error(), "uplink vmnic2 is 0000:3b:00.1, which node vm") {
		t.Errorf("an uplink that a node gets as a whole: %v", err)
	}
}

func TestNodesMove(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	more := ", " + strings.ReplaceAll(switches, "ROCE-PG", "X")
	l, place := b.plan(t, 2, more)
	b.host = vspheretest.Other
	moved, there := b.plan(t, 2, more)
	for _, lose := range []int64{-1, 9, 22} { // of some 35 calls
		r, err := b.up(t, l, place)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		uuid := b.VM("roce.vm00").Config.Uuid
		if lose < 0 {
			survey, _, err := rack.Survey(t.Context(), moved, there)
			if err != nil {
				t.Fatal(err)
			}
			moves := 0
			for _, r := range survey {
				if strings.HasPrefix(r.What, "move roce.vm0") && r.Status == change.Pending &&
					strings.HasSuffix(r.What, "from DC0_C0_H0 to DC0_C0_H1") {
					moves++
				}
			}
			if moves != 2 {
				t.Errorf("the survey has %d moves, want 2: %+v", moves, survey)
			}
		}
		b.Calls.Store(0)
		b.Lose.Store(lose)
		r, err = b.up(t, moved, there)
		b.Lose.Store(-1)
		if (err != nil) != (lose >= 0) {
			t.Errorf("the connection is lost at call %d of %d: %v", lose+1, b.Calls.Load(), err)
		}
		if err != nil { // an interrupted run continues
			if r, err = b.up(t, moved, there); err != nil {
				t.Fatalf("after the connection was lost at call %d: %v", lose+1, err)
			}
		}
		r.Close()
		vm, to := b.VM("roce.vm00"), find[*simulator.HostSystem](b, "HostSystem", vspheretest.Other)
		if *vm.Runtime.Host != to.Self || vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn ||
			vm.Config.Uuid != uuid {
			t.Fatalf("call %d: vm00 is %+v, %s, was %s", lose+1, vm.Runtime, vm.Config.Uuid, uuid)
		}
		from := find[*simulator.HostSystem](b, "HostSystem", vspheretest.Host).Config
		for _, p := range from.PciPassthruInfo {
			if s, ok := p.(*types.HostSriovInfo); ok && s.SriovEnabled {
				t.Errorf("call %d: %s of the old host has virtual functions", lose+1, s.Id)
			}
		}
		b.down(t)
		b.same(t, before)
	}
}
