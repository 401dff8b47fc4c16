package vcenter_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/vspheretest"
	"github.com/rackless/rackless/internal/words"
)

// parameters returns those of a virtual machine that have these names.
func parameters(vm *simulator.VirtualMachine, names ...string) map[string]string {
	all := map[string]string{}
	for _, name := range names {
		for _, o := range vm.Config.ExtraConfig {
			if v := o.GetOptionValue(); v.Key == name {
				all[name] = v.Value.(string)
			}
		}
	}
	return all
}

// An instant clone runs as its template did. It is stopped, gets what the plan gives it, and starts.
func TestInstantClones(t *testing.T) {
	b := newBench(t)
	b.Power(vspheretest.Template, types.VirtualMachinePowerStatePoweredOn)
	before := b.Inventory(t)
	l, place := b.plan(t, 2, ", clone: instant")
	for _, lose := range []int64{-1, 3, 4, 5} { // the call that makes a clone, the one that stops it, the next
		b.Calls.Store(0)
		b.Lose.Store(lose)
		r, err := b.up(t, l, place)
		b.Lose.Store(-1)
		if lose >= 0 {
			if err == nil {
				t.Errorf("it came up without a connection after call %d", lose)
			}
			b.down(t)
			b.same(t, before)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		for _, n := range place.Plan.Nodes {
			vm := b.VM("roce." + n.Name)
			if vm.Config.Hardware.NumCPU != 2 || vm.Config.Hardware.MemoryMB != 4096 ||
				len(vm.Config.CpuAffinity.AffinitySet) != 2 ||
				vm.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOn {
				t.Errorf("%s is %s, with %+v, affinity %+v", n.Name, vm.Runtime.PowerState, vm.Config.Hardware,
					vm.Config.CpuAffinity)
			}
		}
		b.upAgainAndDown(t, l, place, before)
	}
}

// Latency sensitivity "high" has all CPUs and all memory reserved, and leaves the choice of cores to ESXi.
func TestLatencySensitivityHigh(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	b.top, b.size = "workload: rdma-latency", "cpus: 6, memory: 8GiB, smt: off"
	l, place := b.plan(t, 2, "")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for _, n := range place.Plan.Nodes {
		c := b.VM("roce." + n.Name).Config
		if c.LatencySensitivity.Level != types.LatencySensitivitySensitivityLevelHigh ||
			*c.CpuAllocation.Reservation != 6*2992 || *c.MemoryAllocation.Reservation != 8<<10 ||
			!*c.MemoryReservationLockedToMax || c.CpuAffinity != nil && len(c.CpuAffinity.AffinitySet) > 0 {
			t.Errorf("%s: %+v, CPU %d MHz, memory %d MiB, affinity %+v", n.Name, c.LatencySensitivity,
				*c.CpuAllocation.Reservation, *c.MemoryAllocation.Reservation, c.CpuAffinity)
		}
		node := strconv.Itoa(n.Memory[0].NUMANode)
		if got := parameters(b.VM("roce."+n.Name), "numa.nodeAffinity")["numa.nodeAffinity"]; got != node {
			t.Errorf("%s: NUMA affinity %q, want %s", n.Name, got, node)
		}
	}
	b.upAgainAndDown(t, l, place, before)

	// One that does not have them does not start.
	l, place = b.plan(t, 1, ", settings: {cpu_reservation_mhz: 100}")
	if r, err := b.up(t, l, place); err == nil {
		r.Close()
		t.Error("it started with 100 MHz")
		b.down(t)
	}
	b.same(t, before)
}

// A node on two NUMA nodes of the host has some of its own, each bound to one of the host's. They are of one size.
func TestNUMAAffinityOfVirtualNodes(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	b.size = "cpus: 64, memory: 256GiB, guest_numa: on"
	l, place := b.plan(t, 1, "")
	want := map[string]string{"numa.nodeAffinity": "0,1", "numa.vcpu.maxPerVirtualNode": "16"}
	cells := place.Plan.Nodes[0].Cells
	if len(cells) != 2 || max(cells[0].VCPUs, cells[1].VCPUs) != 48 {
		t.Fatalf("planned on %+v, want 48 and 16 CPUs", cells)
	}
	for i := range 4 {
		cell := cells[words.Either(i < cells[0].VCPUs/16, 0, 1)]
		want[fmt.Sprintf("sched.node%d.affinity", i)] = strconv.Itoa(cell.NUMANodes[0])
	}
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	vm := b.VM("roce.vm00")
	if diff := cmp.Diff(want, parameters(vm, slices.Collect(maps.Keys(want))...)); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if c := vm.Config.Hardware; c.NumCPU != 64 || *c.NumCoresPerSocket != 16 {
		t.Errorf("%d CPUs, %d a socket, want 64, 16", c.NumCPU, *c.NumCoresPerSocket)
	}
	b.upAgainAndDown(t, l, place, before)

	b.size = "cpus: 62, memory: 256GiB, guest_numa: on"
	l, place = b.plan(t, 1, "")
	if r, err := b.up(t, l, place); err == nil {
		r.Close()
		t.Error("a node of 48 and 14 CPUs came up")
	} else if !strings.Contains(err.Error(), "node vm00: its 62 CPUs are divided among NUMA nodes in parts") {
		t.Error(err)
	}
}
