package vcenter_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/vm/vspheretest"
)

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

	l, place = b.plan(t, 1, ", settings: {cpu_reservation_mhz: 100}")
	if r, err := b.up(t, l, place); err == nil {
		r.Close()
		t.Error("it started with 100 MHz")
		b.down(t)
	}
	b.same(t, before)
}

func TestNUMAAffinityOfVirtualNodes(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	b.size = "cpus: 64, memory: 256GiB, guest_numa: on"
	l, place := b.plan(t, 1, "")
	want := map[string]string{"numa.nodeAffinity": "0,1", "numa.vcpu.maxPerVirtualNode": "32"}
	cells := place.Plan.Nodes[0].Cells
	if len(cells) != 2 || cells[0].VCPUs != 32 || cells[1].VCPUs != 32 {
		t.Fatalf("planned on %+v, want 32 CPUs on each of two", cells)
	}
	for i, cell := range cells {
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
	if c := vm.Config.Hardware; c.NumCPU != 64 || *c.NumCoresPerSocket != 32 {
		t.Errorf("%d CPUs, %d a socket, want 64, 32", c.NumCPU, *c.NumCoresPerSocket)
	}
	b.upAgainAndDown(t, l, place, before)

	b.size = "cpus: 62, memory: 256GiB, guest_numa: on"
	l, place = b.plan(t, 1, "")
	if r, err := b.up(t, l, place); err == nil {
		r.Close()
		t.Error("a node of 32 and 30 CPUs came up")
	} else if !strings.Contains(err.Error(), "node vm00: its 62 CPUs are divided among NUMA nodes in parts") {
		t.Error(err)
	}
}

// Nodes have an adapter on each network in the file, the template's if it has one there. The address is that of the
// adapter on the first network.
func TestNetworksAndPlaces(t *testing.T) {
	b := newBench(t)
	cluster := find[*simulator.ClusterComputeResource](b, "ClusterComputeResource", "DC0_C0")
	pool, err := object.NewResourcePool(b.Client(t), *cluster.ResourcePool).Create(t.Context(), "hpc",
		types.DefaultResourceConfigSpec())
	if err != nil {
		t.Fatal(err)
	}
	before := b.Inventory(t)
	b.group = "ROCE-PG"
	l, place := b.plan(t, 2, ", datastore: LocalDS_0, resource_pool: DC0_C0/Resources/hpc, networks: [zdata, "+
		vspheretest.PortGroup+", storage], customize: {domain: a.example, address: 192.0.2.11/24}, "+
		strings.ReplaceAll(switches, "[ROCE-PG]", "[zdata, ROCE-PG]"))
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	data := find[*simulator.DistributedVirtualPortgroup](b, "DistributedVirtualPortgroup", "zdata")
	for i, n := range place.Plan.Nodes {
		vm := b.VM("roce." + n.Name)
		store := b.Model.Map().Get(vm.Datastore[0]).(*simulator.Datastore).Name
		if *vm.ResourcePool != pool.Reference() || store != "LocalDS_0" {
			t.Errorf("%s is in %v, on %s", n.Name, vm.ResourcePool, store)
		}
		var networks []string
		for _, d := range vm.Config.Hardware.Device {
			card, ok := d.(types.BaseVirtualEthernetCard)
			if !ok {
				continue
			}
			switch backing := card.GetVirtualEthernetCard().Backing.(type) {
			case *types.VirtualEthernetCardNetworkBackingInfo:
				networks = append(networks, backing.DeviceName)
			case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
				if backing.Port.PortgroupKey == data.Key {
					address := vm.Guest.Net[len(networks)].IpAddress
					if want := []string{fmt.Sprintf("192.0.2.%d", 11+i)}; !cmp.Equal(address, want) {
						t.Errorf("%s has %v at network zdata, want %v", n.Name, address, want)
					}
				}
				ref := types.ManagedObjectReference{Type: "DistributedVirtualPortgroup",
					Value: backing.Port.PortgroupKey}
				networks = append(networks, b.Model.Map().Get(ref).(*simulator.DistributedVirtualPortgroup).Name)
			}
		}
		slices.Sort(networks)
		if want := []string{vspheretest.PortGroup, "ROCE-PG", "storage", "zdata"}; !cmp.Equal(networks, want) {
			t.Errorf("%s is at %v, want %v", n.Name, networks, want)
		}
	}
	b.upAgainAndDown(t, l, place, before)
}
