package vcenter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	_ "github.com/rackless/rackless/rack/vcenter"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/vsphere"
	"github.com/rackless/rackless/vm/vspheretest"
)

type bench struct {
	*server
	dirs  rack.Dirs
	host  string
	group string // port group of virtual functions
	top   string // of the lab file
	size  string // of each node
	ports string // "vfs" or "nics"
}

func newBench(t *testing.T) *bench {
	t.Helper()
	if testing.Short() && t.Name() != "TestLinkedClonesWithWholeNICs" {
		t.Skip("with -short, one lab of the simulated vCenter is enough")
	}
	s := newServer(t)
	for _, name := range []string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE", "RACKLESS_VSPHERE"} {
		t.Setenv(name, s.Env(name))
	}
	dir := t.TempDir()
	return &bench{server: s, dirs: rack.Dirs{Run: filepath.Join(dir, "run"), Cache: filepath.Join(dir, "cache"),
		Data: filepath.Join(dir, "data")}, host: vspheretest.Host, group: vspheretest.PortGroup,
		size: "cpus: 2, memory: 4GiB", ports: "vfs"}
}

func (b *bench) plan(t *testing.T, nodes int, more string) (*lab.Lab, *rack.Placement) {
	t.Helper()
	r, err := b.tryPlan(t, nodes, more)
	if err != nil {
		t.Fatal(err)
	}
	return r.Lab, &rack.Placement{Plan: r.Plan, Host: r.Host}
}

var hosts = planner.Hosts{Schemes: map[string]func(context.Context, string) (*topology.Host, error){
	lab.VSphereScheme: vsphere.ReadHost}}

func (b *bench) tryPlan(t *testing.T, nodes int, more string) (*planner.Planned, error) {
	t.Helper()
	l, err := lab.Parse("lab.yaml", fmt.Appendf(nil, `name: roce
driver: vsphere
vsphere: {host: %s, template: %s, port_group: %s, power_policy: static%s}
fabric: {mtu: 9000}
%s
nodes: {vm: {count: %d, %s, %s: 1}}
`, b.host, vspheretest.Template, b.group, more, b.top, nodes, b.size, b.ports))
	if err != nil {
		t.Fatal(err)
	}
	h, name, err := hosts.Read(t.Context(), planner.HostOf(l, planner.Local))
	if err != nil {
		t.Fatal(err)
	}
	q, err := planner.New(name, "lab.yaml", l, "")
	if err != nil {
		t.Fatal(err)
	}
	return q.Solve(t.Context(), h, l)
}

func (b *bench) up(t *testing.T, l *lab.Lab, p *rack.Placement) (*rack.Rack, error) {
	t.Helper()
	return rack.Up(t.Context(), b.dirs, l, rack.Options{Place: p})
}

func (b *bench) same(t *testing.T, before string) {
	t.Helper()
	if diff := cmp.Diff(before, b.Inventory(t)); diff != "" {
		t.Fatalf("the inventory after down (-before +after):\n%s", diff)
	}
}

func (b *bench) down(t *testing.T) {
	t.Helper()
	if _, err := rack.Down(context.WithoutCancel(t.Context()), b.dirs, "roce"); err != nil {
		t.Errorf("down: %v", err)
	}
}

func TestSixteenNodesWithVirtualFunctions(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	l, place := b.plan(t, 16, `, settings: {cpu_shares: high, memory_shares: 4096, secure_boot: true,
  pciPassthru.64bitMMIOSizeGB: 128}`)

	survey, has, err := rack.Survey(t.Context(), l, place)
	if err != nil || !has {
		t.Fatalf("survey: %v, %v", has, err)
	}
	pending := 0
	for _, r := range survey {
		if r.Status == change.Pending || r.Status == change.Waiting {
			pending++
		}
	}
	if want := 2 + len(place.Plan.VFs) + 3*16; pending != want || b.Calls.Load() != 0 {
		t.Errorf("survey: %d steps to make with %d calls, want %d with none", pending, b.Calls.Load(), want)
	}

	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	status := r.Status(t.Context())
	for i, n := range place.Plan.Nodes {
		have := b.VM("roce." + n.Name)
		if have == nil {
			t.Fatalf("%s is not there", n.Name)
		}
		checkNode(t, n.Name, have, place.Plan.Nodes[i].CPUs().String(), n.Cards[0].ID)
		node, _ := r.State.Node(n.Name)
		if s := status[i]; s.State != vm.Running || s.Err != nil || !node.Ready {
			t.Errorf("%s: state %v, %v", n.Name, s.State, s.Err)
		}
	}
	if r.Emulated() {
		t.Error("it says that the CPUs are emulated")
	}
	// A machine that restarts forgets the running labs, but not its changes.
	if err := os.RemoveAll(b.dirs.Run); err != nil {
		t.Fatal(err)
	}
	calls := b.Calls.Load()
	if again, err := b.up(t, l, place); err != nil || b.Calls.Load() != calls {
		t.Errorf("up again: %v, with %d more calls", err, b.Calls.Load()-calls)
	} else {
		again.Close()
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	noSecrets(t, b)

	b.down(t)
	b.same(t, before)
	if left, _ := filepath.Glob(filepath.Join(b.dirs.Data, "vsphere", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func checkNode(t *testing.T, name string, have *simulator.VirtualMachine, cpus, pf string) {
	t.Helper()
	c := have.Config
	var affinity []string
	for _, cpu := range c.CpuAffinity.AffinitySet {
		affinity = append(affinity, fmt.Sprint(cpu))
	}
	card := (*types.VirtualSriovEthernetCard)(nil)
	for _, d := range c.Hardware.Device {
		if s, ok := d.(*types.VirtualSriovEthernetCard); ok {
			card = s
		}
	}
	if c.Hardware.NumCPU != 2 || c.Hardware.MemoryMB != 4096 || *c.MemoryAllocation.Reservation != 4096 ||
		!*c.MemoryReservationLockedToMax || *c.CpuAllocation.Reservation%2992 != 0 ||
		*c.CpuAllocation.Reservation == 0 || c.CpuAllocation.Shares.Level != types.SharesLevelHigh {
		t.Errorf("%s: got %+v, CPU %+v, memory %+v", name, c.Hardware, c.CpuAllocation, c.MemoryAllocation)
	}
	if !*c.BootOptions.EfiSecureBootEnabled || c.MemoryAllocation.Shares.Shares != 4096 {
		t.Errorf("%s: boot options %+v, memory shares %+v", name, c.BootOptions, c.MemoryAllocation.Shares)
	}
	if mmio := parameters(have, "pciPassthru.64bitMMIOSizeGB"); len(mmio) != 1 ||
		mmio["pciPassthru.64bitMMIOSizeGB"] != "128" {
		t.Errorf("%s: the parameter of the file is not set: %v", name, mmio)
	}
	if len(affinity) != 2 || !strings.HasPrefix(cpus, affinity[0]) {
		t.Errorf("%s: CPU affinity %v, want %s", name, affinity, cpus)
	}
	if card == nil || !*card.AllowGuestOSMtuChange || card.SriovBacking.PhysicalFunctionBacking.Id != pf ||
		card.SriovBacking.PhysicalFunctionBacking.SystemId != vspheretest.SystemID {
		t.Errorf("%s: SR-IOV adapter %+v, want one of %s", name, card, pf)
	}
}

func noSecrets(t *testing.T, b *bench) {
	t.Helper()
	password, _ := b.URL.User.Password()
	err := filepath.Walk(filepath.Dir(b.dirs.Run), func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), `"`+password+`"`) || strings.Contains(string(text), password+"@") {
			t.Errorf("%s has the password", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// down undoes all changes if the connection is lost before the answer to any call.
func TestTheConnectionIsLost(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	b.group = "ROCE-PG"
	l, place := b.plan(t, 1, ", customize: {domain: hpc.example.org}, "+switches)
	all := int64(0)
	for lose := range int64(30) {
		b.Calls.Store(0)
		b.Lose.Store(lose)
		r, err := b.up(t, l, place)
		all = b.Calls.Load()
		b.Lose.Store(-1)
		if err == nil {
			r.Close()
			b.down(t)
			break
		}
		b.down(t)
		if diff := cmp.Diff(before, b.Inventory(t)); diff != "" {
			t.Fatalf("the connection was lost at call %d: the inventory after down (-before +after):\n%s", lose+1, diff)
		}
	}
	if want := int64(1 + len(place.Plan.VFs) + 3 + 3 + 5); all != want {
		t.Errorf("%d calls change something, want %d", all, want)
	}
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	refused := func(name, want string, l *lab.Lab, place *rack.Placement) {
		t.Helper()
		if r, err := b.up(t, l, place); err == nil {
			r.Close()
			t.Errorf("%s: it came up", name)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
		b.down(t)
		if diff := cmp.Diff(before, b.Inventory(t)); diff != "" {
			t.Fatalf("%s: the inventory afterwards (-before +after):\n%s", name, diff)
		}
	}
	l, place := b.plan(t, 2, "")

	other, wrong := b.plan(t, 2, "")
	for i := range wrong.Host.PCI {
		if d := &wrong.Host.PCI[i]; d.Address.String() == wrong.Plan.Nodes[0].Cards[0].ID {
			d.Address.Bus = 0x99
			wrong.Plan.Nodes[0].Cards[0].ID, wrong.Plan.VFs[0].PF = d.Address.String(), d.Address.String()
			break
		}
	}
	refused("an unknown function", "has no function 0000:99:", other, wrong)

	b.Meddle = func(vm *simulator.VirtualMachine) { vm.Config.ChangeVersion += "x" }
	refused("somebody else at work", "somebody else has changed it meanwhile", l, place)
	b.Meddle = nil

	b.VM(vspheretest.Running).Name = "roce.vm01"
	before = b.Inventory(t)
	refused("a virtual machine of somebody else", "roce.vm01 is there, and not of lab roce", l, place)
	b.VM("roce.vm01").Name = vspheretest.Running
	before = b.Inventory(t)

	odd, at := b.plan(t, 2, ", settings: {cpu_share: high}")
	refused("an unknown setting", `setting "cpu_share" is not known`, odd, at)

	module, at := b.plan(t, 2, ", modules: {nmlx4_core: max_vfs=4}")
	refused("options of a module that is not there", "module nmlx4_core of host DC0_C0_H0", module, at)

	config := b.VM(vspheretest.Template).Config
	config.Firmware = "bios"
	before = b.Inventory(t)
	secure, at := b.plan(t, 2, ", settings: {secure_boot: true}")
	refused("secure boot by BIOS", "boots by BIOS: secure boot needs a template that boots by EFI", secure, at)

	linked, at := b.plan(t, 2, ", clone: linked")
	refused("a linked clone without a snapshot", "has no snapshot", linked, at)
}

func TestLinkedClonesWithWholeNICs(t *testing.T) {
	b := newBench(t)
	b.Snapshot(t, vspheretest.Template)
	b.ports = "nics"
	before := b.Inventory(t)
	l, place := b.plan(t, 2, ", clone: linked")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for _, n := range place.Plan.Nodes {
		var ids []string
		for _, d := range b.VM("roce." + n.Name).Config.Hardware.Device {
			if p, ok := d.(*types.VirtualPCIPassthrough); ok {
				ids = append(ids, p.Backing.(*types.VirtualPCIPassthroughDeviceBackingInfo).Id)
			}
		}
		if want := []string{n.Cards[0].ID}; !cmp.Equal(ids, want) {
			t.Errorf("%s has %v passed through, want %v", n.Name, ids, want)
		}
	}
	b.down(t)
	b.same(t, before)
}

func (b *bench) upAgainAndDown(t *testing.T, l *lab.Lab, place *rack.Placement, before string) {
	t.Helper()
	if again, err := b.up(t, l, place); err != nil {
		t.Error(err)
	} else {
		again.Close()
	}
	b.down(t)
	b.same(t, before)
}

func TestDevicesThatESXiChooses(t *testing.T) {
	b := newBench(t)
	b.ports = "nics"
	before := b.Inventory(t)
	l, place := b.plan(t, 2, ", passthrough: dynamic")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	taken := map[string]bool{}
	for _, n := range place.Plan.Nodes {
		vm := b.VM("roce." + n.Name)
		for _, d := range vm.Config.Hardware.Device {
			if p, ok := d.(*types.VirtualPCIPassthrough); ok {
				taken[p.Backing.(*types.VirtualPCIPassthroughDynamicBackingInfo).AssignedId] = true
			}
		}
	}
	if len(taken) != 2 || taken[""] {
		t.Errorf("the nodes have %v passed through, want two devices", taken)
	}
	b.upAgainAndDown(t, l, place, before)
}

// The lab's own virtual machines are not tenants.
func TestTenantsKeepWhatTheyHave(t *testing.T) {
	b := newBench(t)
	web := b.VM(vspheretest.Running).Config
	web.CpuAffinity = &types.VirtualMachineAffinityInfo{AffinitySet: []int32{0, 1, 2, 3}}
	web.ExtraConfig = []types.BaseOptionValue{&types.OptionValue{Key: "numa.nodeAffinity", Value: "0"}}
	for range 2 {
		web.Hardware.Device = append(web.Hardware.Device, &types.VirtualSriovEthernetCard{
			SriovBacking: &types.VirtualSriovEthernetCardSriovBackingInfo{
				PhysicalFunctionBacking: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: vspheretest.PF}}})
	}
	web.Hardware.Device = append(web.Hardware.Device, &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{
		Backing: &types.VirtualPCIPassthroughDeviceBackingInfo{Id: vspheretest.GPU}}})
	before := b.Inventory(t)
	l, place := b.plan(t, 2, "")
	for _, n := range place.Plan.Nodes {
		if n.CPUs().Overlaps(topology.CPUs(0, 1, 2, 3)) {
			t.Errorf("%s is on %v, of which the tenant has 0-3", n.Name, n.CPUs())
		}
	}
	if i := slices.IndexFunc(place.Plan.VFs, func(pf plan.PFCount) bool { return pf.PF == vspheretest.PF }); i < 0 ||
		place.Plan.VFs[i].Count != place.Plan.VFs[i].Lab+2 {
		t.Errorf("virtual functions %+v, want 2 of the tenant beside those of the lab", place.Plan.VFs)
	}
	b.ports = "gpus"
	if _, err := b.tryPlan(t, 1, ""); err == nil || !strings.Contains(err.Error(), vspheretest.Running) {
		t.Errorf("a node with the GPU of the tenant: %v", err)
	}
	b.ports = "vfs"
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	_, again := b.plan(t, 2, "")
	was, err := json.Marshal(place.Plan)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := json.Marshal(again.Plan); err != nil || !bytes.Equal(was, is) {
		t.Errorf("planned again while it is up: %v\n%s\n%s", err, was, is)
	}
	b.down(t)
	b.same(t, before)
}

func TestGuestsAreCustomized(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	l, place := b.plan(t, 2, ", customize: {domain: hpc.example.org, address: 192.0.2.11/24, gateway: 192.0.2.1, "+
		"dns: [192.0.2.2]}")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for i, n := range place.Plan.Nodes {
		var got []string
		for _, nic := range b.VM("roce." + n.Name).Guest.Net {
			got = append(append(got, nic.IpAddress...), nic.DnsConfig.HostName)
		}
		want := []string{fmt.Sprintf("192.0.2.%d", 11+i), n.Name, n.NICs[0].Addr.Addr().String(), n.Name}
		if !cmp.Equal(want, got) {
			t.Errorf("%s: addresses and names %v, want %v", n.Name, got, want)
		}
	}
	b.upAgainAndDown(t, l, place, before)
}

func TestModuleOptions(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	l, place := b.plan(t, 1, `, modules: {nmlx5_core: "pfctx=0x08 pfcrx=0x08 trust_state=2 max_vfs=0,16,16 ecn=1"}`)
	_, err := b.up(t, l, place)
	if _, unfinished := errors.AsType[*rack.UnfinishedError](err); !unfinished ||
		!strings.Contains(err.Error(), "host DC0_C0_H0 has to be restarted (set the options of module nmlx5_core") {
		t.Fatalf("got %v, want an unfinished up", err)
	}
	node := "roce." + place.Plan.Nodes[0].Name
	if have := b.VM(node); have == nil || have.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("%s is not there and off: %+v", node, have)
	}
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	b.down(t)
	b.same(t, before)
}

// Earlier results stay, and the next up continues.
func TestTheHostHasToBeRestarted(t *testing.T) {
	b := newBench(t)
	b.NeedsRestart = true
	before := b.Inventory(t)
	l, place := b.plan(t, 1, "")
	_, err := b.up(t, l, place)
	_, unfinished := errors.AsType[*rack.UnfinishedError](err)
	if !unfinished || !strings.Contains(err.Error(), "has to be restarted") {
		t.Fatalf("got %v, want an unfinished up", err)
	}
	node := "roce." + place.Plan.Nodes[0].Name
	if have := b.VM(node); have == nil || have.Runtime.PowerState != types.VirtualMachinePowerStatePoweredOff {
		t.Errorf("%s is not there and off: %+v", node, have)
	}
	b.Restart()
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	b.down(t)
	b.Restart()
	b.same(t, before)
}

func TestARunningNodeIsNotChanged(t *testing.T) {
	b := newBench(t)
	before := b.Inventory(t)
	l, place := b.plan(t, 2, "")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	for i := range place.Plan.Nodes {
		place.Plan.Nodes[i].VCPUs = place.Plan.Nodes[i].VCPUs[:1]
	}
	_, err = b.up(t, l, place)
	if err == nil || !strings.Contains(err.Error(), "it runs, and this can be changed only") {
		t.Errorf("got %v", err)
	}
	b.down(t)
	b.same(t, before)
}

// Down leaves a setting that somebody has changed, and says so.
func TestDownLeavesChangesOfOthers(t *testing.T) {
	b := newBench(t)
	l, place := b.plan(t, 1, "")
	r, err := b.up(t, l, place)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	var host *simulator.HostSystem
	for _, e := range b.Model.Map().All("HostSystem") {
		if h := e.(*simulator.HostSystem); h.Name == b.host {
			host = h
		}
	}
	system := *host.ConfigManager.PowerSystem
	const low = 3
	if _, err := methods.ConfigurePowerPolicy(t.Context(), b.Client(t),
		&types.ConfigurePowerPolicy{This: system, Key: low}); err != nil {
		t.Fatal(err)
	}
	var kept []string
	_, err = rack.Down(t.Context(), b.dirs, "roce", func(what string) { kept = append(kept, what) })
	if err != nil || len(kept) != 1 || !strings.Contains(kept[0], "power_policy: found low, rackless had set static") {
		t.Errorf("down: %v, left %q", err, kept)
	}
	if p := b.Model.Map().Get(system).(*vspheretest.HostPowerSystem).Info.CurrentPolicy; p.Key != low {
		t.Errorf("the policy is %s", p.ShortName)
	}
}
