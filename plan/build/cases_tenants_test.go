package build_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/machinetest"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/conflict"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
)

const webUUID = "6695eb01-f6a4-8304-79aa-97f2502e193f"

func web() topology.Tenant {
	t := topology.Tenant{Name: "web", UUID: webUUID, State: "running", VCPUs: 8, MemoryBytes: new(uint64(8 * gib)),
		Hugepages:   new(uint64(gib)),
		MemoryNodes: new(topology.CPUs(1)), MemoryMode: "strict", EmulatorCPUs: new(topology.CPUs(31, 63)),
		Devices: []topology.TenantDevice{
			{PCI: topology.PCIAddr{Bus: 0x21}, Managed: true}, {PCI: topology.PCIAddr{Bus: 0x21, Function: 1},
				Managed: true}},
		GuestNodes: new(0), GuestSwitches: new(0), GuestExpanders: new(0)}
	for v := range 8 {
		t.Pins = append(t.Pins, topology.Pin{VCPU: v, CPUs: topology.CPUs(8 + v/2 + 32*(v%2))})
	}
	return t
}

const webDomain = `<domain type='kvm' id='7'>
  <name>web</name>
  <uuid>` + webUUID + `</uuid>
  <memory unit='GiB'>8</memory>
  <memoryBacking><hugepages><page size='1' unit='G'/></hugepages></memoryBacking>
  <vcpu placement='static'>8</vcpu>
  <cputune>
    <vcpupin vcpu='0' cpuset='8'/><vcpupin vcpu='1' cpuset='40'/>
    <vcpupin vcpu='2' cpuset='9'/><vcpupin vcpu='3' cpuset='41'/>
    <vcpupin vcpu='4' cpuset='10'/><vcpupin vcpu='5' cpuset='42'/>
    <vcpupin vcpu='6' cpuset='11'/><vcpupin vcpu='7' cpuset='43'/>
    <emulatorpin cpuset='31,63'/>
  </cputune>
  <numatune><memory mode='strict' nodeset='1'/></numatune>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x0000' bus='0x21' slot='0x00' function='0x0'/></source></hostdev>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x0000' bus='0x21' slot='0x00' function='0x1'/></source></hostdev>
  </devices>
</domain>`

func virsh(_ context.Context, argv ...string) ([]byte, error) {
	line := strings.Join(argv, " ")
	switch {
	case !strings.HasPrefix(line, "virsh "):
		return nil, fs.ErrNotExist
	case strings.Contains(line, " list "):
		if strings.HasSuffix(line, "--state-running") {
			return []byte(webUUID + "\n"), nil
		}
		return []byte("\n"), nil
	case strings.Contains(line, " dumpxml "):
		return []byte(webDomain), nil
	}
	return nil, fs.ErrNotExist
}

func besideWeb(changes ...func(*lab.Lab)) *lab.Lab {
	l := labOf(1, cpus(16), memory(16*lab.GiB), gpus(some(1)), nics(some(1)))
	l.Reserve.Cores = new(4)
	return with(l, changes...)
}

func TestALabBesideATenant(t *testing.T) {
	t.Parallel()
	h := epyc(t)
	h.Tenants = []topology.Tenant{web()}
	c := proved(t, h, besideWeb(), build.Options{})
	held := topology.CPUs(8, 9, 10, 11, 31, 40, 41, 42, 43, 63)
	for _, n := range c.pl.Nodes {
		if cpus := topology.CPUs(n.VCPUs...); cpus.Overlaps(held) || n.EmulatorCPUs.Overlaps(held) {
			t.Errorf("%s is on CPUs %s and %s, of which web has %s", n.Name, cpus, n.EmulatorCPUs, held)
		}
		if !slices.Contains(n.Devices, "0000:06:00.0") || slices.ContainsFunc(n.Devices, func(d string) bool {
			return strings.HasPrefix(d, "0000:21:")
		}) {
			t.Errorf("%s gets %v; want GPU 0000:06:00.0, because web has the other", n.Name, n.Devices)
		}
	}
	if k := c.pl.Housekeeping; !k.TenantCPUs.Equal(held) || k.CPUs.Overlaps(held) || k.Cores != 32-5-8 {
		t.Errorf("the host keeps %s (%d cores) beside %s of tenants; want 19 cores beside %s", k.CPUs, k.Cores,
			k.TenantCPUs, held)
	}
}

// Lab nodes on its NUMA node cannot have it.
func TestTheMemoryOfATenantIsGone(t *testing.T) {
	t.Parallel()
	h := machine{desc: "pack:1 numa:2 core:8 pu:2", gib: []int{32, 32}}.host(t)
	h.Tenants = []topology.Tenant{{Name: "db", VCPUs: 2, Pins: []topology.Pin{{VCPU: 0, CPUs: topology.CPUs(0)},
		{VCPU: 1, CPUs: topology.CPUs(1)}},
		MemoryBytes: new(uint64(30 * gib)), MemoryNodes: new(topology.CPUs(0))}}
	l := with(labOf(2, cpus(4), memory(16*lab.GiB)), reserve(1))
	c := proved(t, h, l, build.Options{})
	for _, n := range c.pl.Nodes {
		if diff := cmp.Diff([]plan.NodeMemory{{NUMANode: 1, Bytes: 16 * gib, PageBytes: gib}}, n.Memory); diff != "" {
			t.Errorf("%s (-want +got):\n%s", n.Name, diff)
		}
	}
	l.Tenants = lab.TenantsIgnore
	free := proved(t, h, l, build.Options{})
	if free.pl.Cost > c.pl.Cost {
		t.Errorf("cost %d where the tenant is ignored, %d beside it", free.pl.Cost, c.pl.Cost)
	}
}

// Tenants from the host's description count too.
func TestTenantsFromLibvirtAndFromAFileAreTheSame(t *testing.T) {
	t.Parallel()
	read, err := inspect.Read(t.Context(), inspect.Source{Name: "epyc", Run: virsh,
		FS: machinetest.Load("../../examples/hosts/epyc-7551p.ttar").FS()})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]topology.Tenant{web()}, read.Tenants); diff != "" {
		t.Fatalf("what inspect reads of libvirt (-want +got):\n%s", diff)
	}
	want := proved(t, read, besideWeb(), build.Options{HostName: "epyc"})

	written := epyc(t)
	written.Provenance, written.Tenants = read.Provenance, []topology.Tenant{web()}
	got := proved(t, written, besideWeb(), build.Options{HostName: "epyc"})
	if diff := cmp.Diff(jsonText(t, want.pl), jsonText(t, got.pl)); diff != "" {
		t.Errorf("written down: %s", diff)
	}
	written.Tenants = nil
	got = proved(t, written, besideWeb(func(l *lab.Lab) {
		l.Tenants = "tenants.json"
	}), build.Options{HostName: "epyc", Tenants: []topology.Tenant{web()}})
	if diff := cmp.Diff(jsonText(t, want.pl), jsonText(t, got.pl)); diff != "" {
		t.Errorf("from a file: %s", diff)
	}
}

func TestTenantsThatAreOffOrFloat(t *testing.T) {
	t.Parallel()
	note := func(c *solved, part string) bool {
		return slices.ContainsFunc(c.pl.Notes, func(n string) bool { return strings.Contains(n, part) })
	}
	t.Run("one that is shut off keeps what it has", func(t *testing.T) {
		t.Parallel()
		h := epyc(t)
		h.Tenants = []topology.Tenant{web()}
		h.Tenants[0].State = "shut off"
		c := proved(t, h, besideWeb(), build.Options{})
		if slices.Contains(c.pl.Nodes[0].Devices, "0000:21:00.0") || !note(c, "shut off") {
			t.Errorf("devices %v, notes %q", c.pl.Nodes[0].Devices, c.pl.Notes)
		}
	})
	t.Run("one without pins holds no core, and the plan says what that means", func(t *testing.T) {
		t.Parallel()
		h := epyc(t)
		h.Tenants = []topology.Tenant{web()}
		h.Tenants[0].Pins, h.Tenants[0].EmulatorCPUs = nil, nil
		c := proved(t, h, besideWeb(), build.Options{})
		if !c.pl.Housekeeping.TenantCPUs.IsEmpty() || !note(c, "not pinned") {
			t.Errorf("tenants have CPUs %s, notes %q", c.pl.Housekeeping.TenantCPUs, c.pl.Notes)
		}
	})
	t.Run("ignored, it is as if it were not there", func(t *testing.T) {
		t.Parallel()
		h := epyc(t)
		bare := proved(t, h, besideWeb(), build.Options{})
		h.Tenants = []topology.Tenant{web()}
		c := proved(t, h, besideWeb(func(l *lab.Lab) { l.Tenants = lab.TenantsIgnore }), build.Options{})
		if diff := cmp.Diff(jsonText(t, bare.pl.Nodes), jsonText(t, c.pl.Nodes)); diff != "" {
			t.Errorf("(-without +ignored):\n%s", diff)
		}
	})
}

// A tenant starts on the plan's CPUs and takes its GPU: the plan is refused with its name.
func TestATenantThatCameAfterThePlan(t *testing.T) {
	t.Parallel()
	h := epyc(t)
	c := proved(t, h, besideWeb(func(l *lab.Lab) {
		l.Nodes[0].GPURequests = []lab.DeviceRequest{at("0000:21:00.0")}
	}), build.Options{})
	late := web()
	late.Pins = []topology.Pin{{VCPU: 0, CPUs: topology.CPUs(c.pl.Nodes[0].VCPUs[0])}}
	h.Tenants = []topology.Tenant{late}
	err := verify.Plan(h, c.l, c.p, c.pl)
	if err == nil || !strings.Contains(err.Error(), "web") {
		t.Errorf("the check says %v; want it to name the tenant", err)
	}
}

// The error names the tenant.
func TestATenantInTheWay(t *testing.T) {
	t.Parallel()
	h := epyc(t)
	h.Tenants = []topology.Tenant{web()}
	l := labOf(2, cpus(8), memory(8*lab.GiB), gpus(some(1)))
	text := whyNot(t, h, l)
	if !strings.Contains(text, "web") || !strings.Contains(text, "GPU") {
		t.Errorf("got %q; want it to say that VM web has a GPU", text)
	}
}

func whyNot(t *testing.T, h *topology.Host, l *lab.Lab) string {
	t.Helper()
	c, err := solve(t, h, l, build.Options{}, search.Options{})
	if err == nil {
		t.Fatalf("a plan for %s, where none can be", jsonText(t, c.pl.Nodes))
	}
	if c == nil {
		return err.Error()
	}
	if !errors.Is(err, search.ErrInfeasible) {
		t.Fatalf("Solve: %v; want the proof that it cannot be", err)
	}
	why, err := conflict.Find(t.Context(), c.p, func(ctx context.Context, p *plan.Problem) (bool, error) {
		_, err := search.Solve(ctx, p, search.Options{Steps: 100_000})
		if errors.Is(err, search.ErrInfeasible) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatalf("conflict.Find: %v", err)
	}
	if !why.Minimal || len(why.Requests) == 0 {
		t.Errorf("conflict %s: want a set of requests of which none can be left out", jsonText(t, why))
	}
	return why.Message + "\n" + why.Nearest
}
