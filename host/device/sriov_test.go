package device

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/plan"
)

func TestANICThatGoesWholeGivesUpItsVirtualFunctionsFirst(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	b.must(m.setCount(addr(simPF), 2))
	m.net.vfs[1] = VFSettings{MAC: "02:00:00:00:00:bb", VLAN: new(5), QoS: new(0), VLANProto: new(0x8100),
		MinRate: new(0), MaxRate: new(0), SpoofChk: new(false), Trust: new(true), LinkState: new(1)}
	for i := range m.host.PCI {
		if d := &m.host.PCI[i]; d.Address == addr(simPF) {
			d.SRIOV.Enabled = new(2)
		}
	}
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simPF)}})
	steps := m.steps(t, p, l, Options{})
	before := m.tree()
	b.must(b.make(steps))
	if driver := m.driverOf(addr(simPF)); driver != vfioPCI {
		t.Errorf("driver %q", driver)
	}
	b.must(b.rollback())
	after := m.tree()
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// TestVirtualFunctionsOfBeforeComeBack has other numbers, settings and drivers.
func TestVirtualFunctionsOfBeforeComeBack(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.load("vfio_pci")
	rapid.Check(t, func(r *rapid.T) {
		m.put(m.function(simPF).path(fileAutoprobe), "1")
		if err := m.setCount(addr(simPF), 0); err != nil {
			t.Fatal(err)
		}
		if err := m.setCount(addr(simPF), rapid.IntRange(0, simTotal).Draw(r, "functions")); err != nil {
			t.Fatal(err)
		}
		for i := range m.net.vfs {
			m.net.vfs[i] = VFSettings{
				MAC:  fmt.Sprintf("02:00:00:00:%02x:%02x", i, rapid.Byte().Draw(r, "mac")),
				VLAN: new(rapid.IntRange(0, 4094).Draw(r, "vlan")), QoS: new(rapid.IntRange(0, 7).Draw(r, "qos")),
				VLANProto: new(0x8100),
				MinRate:   new(0), MaxRate: new(rapid.IntRange(0, 1000).Draw(r, "rate")),
				SpoofChk: new(rapid.Bool().Draw(r, "spoofchk")), Trust: new(rapid.Bool().Draw(r, "trust")),
				LinkState: new(rapid.IntRange(0, 2).Draw(r, "state")),
			}
			vf := function{m.s, m.k, m.vfAddr(addr(simPF), i)}
			switch rapid.SampledFrom([]string{"igbvf", "none", "vfio", "override"}).Draw(r, "driver") {
			case "none":
				m.unbind(vf.a)
			case "vfio":
				if err := vf.giveToVFIO(context.Background()); err != nil {
					t.Fatal(err)
				}
			case "override":
				m.put(vf.path("driver_override"), "igbvf")
			}
		}
		m.put(m.function(simPF).path(fileAutoprobe), rapid.SampledFrom([]string{"0", "1"}).Draw(r, "autoprobe"))
		count := rapid.IntRange(1, simTotal).Draw(r, "count")
		op := &SRIOV{PF: addr(simPF), Count: count, Autoprobe: rapid.Bool().Draw(r, "wanted autoprobe"), k: m.k}
		for i := range count {
			if rapid.Bool().Draw(r, "lab") {
				settings, err := labSettings(fmt.Sprintf("52:54:00:00:00:%02x", i))
				if err != nil {
					t.Fatal(err)
				}
				op.VFs = append(op.VFs, LabVF{i, settings})
			}
		}
		b := m.bench(t)
		before := m.tree()
		stop := rapid.IntRange(1, 60).Draw(r, "killed at")
		dieAt(m.s, stop)
		err := survive(t, func() error { return b.make([]change.Step{{Op: op, What: "virtual functions"}}) })
		m.s.Fault = nil
		if err != nil {
			t.Fatal(err)
		}
		b.must(b.make([]change.Step{{Op: op, What: "virtual functions"}}))
		b.must(b.rollback())
		if diff := cmp.Diff(before, m.tree()); diff != "" {
			r.Fatalf("(-before +after):\n%s", diff)
		}
	})
}

func TestInfiniBandVirtualFunctionsGetGUIDs(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	b.must(m.setCount(addr(simPF), 1))
	port, err := m.function(simPF).port()
	b.must(err)
	m.put("/sys/class/net/"+port+"/type", "32")
	for name, guids := range map[string]*uint64{"a kernel that shows them": new(uint64(0)), "an older one": nil} {
		t.Run(name, func(t *testing.T) {
			m.net.vfs[0] = VFSettings{MAC: "00:00:00:00:00:00", NodeGUID: guids, PortGUID: guids}
			settings, err := labSettings("52:54:00:12:34:56")
			b.must(err)
			op := &SRIOV{PF: addr(simPF), Count: 1, Autoprobe: true, VFs: []LabVF{{0, settings}}, k: m.k}
			b.must(op.Do(t.Context(), m.s))
			vf := m.net.vfs[0]
			const want = 0x505400fffe123456
			if vf.NodeGUID == nil || *vf.NodeGUID != want || *vf.PortGUID != want || vf.MAC != "00:00:00:00:00:00" {
				t.Errorf("%+v, want GUID %#x and no MAC", vf, uint64(want))
			}
			m.unbind(m.vfAddr(addr(simPF), 0))
			m.put(function{m.s, m.k, m.vfAddr(addr(simPF), 0)}.path("driver_override"), "(null)")
		})
	}
}

func TestSettingsThatASwitchInTheNICKeepsAreLeftAlone(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	b.must(m.setCount(addr(simPF), 1))
	port, err := m.function(simPF).port()
	b.must(err)
	m.put("/sys/class/net/"+port+"/phys_switch_id", "01020304")
	settings, err := labSettings("52:54:00:12:34:56")
	b.must(err)
	op := &SRIOV{PF: addr(simPF), Count: 1, Autoprobe: true, VFs: []LabVF{{0, settings}}, k: m.k}
	b.must(op.Do(t.Context(), m.s))
	if vf := m.net.vfs[0]; vf.MAC != "52:54:00:12:34:56" || *vf.Trust || !*vf.SpoofChk {
		t.Errorf("%s", describeVF(vf))
	}
	state, err := op.Read(t.Context(), m.s)
	if err != nil || !op.Done(state) {
		t.Errorf("state %s, %v: want done", state, err)
	}
}

func TestVirtualFunctionsThatCannotBeMade(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	m.refuses[m.function(simPF).path(fileCount)] = syscall.ENOMEM
	p, l := testPlan(t, []plan.PFCount{{PF: simPF, Count: 3}}, wish{"b", []plan.NodeDevice{vfCard(simPF, 1)}})
	before := m.tree()
	err := b.make(m.steps(t, p, l, Options{}))
	for _, want := range []string{"0000:81:00.0 does not make 3 virtual functions: cannot allocate memory",
		"not enough MMIO resources", "pci=realloc"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}
