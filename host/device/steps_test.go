package device

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func simSteps(t testing.TB, m *sim, o Options) []change.Step {
	t.Helper()
	p, l := testPlan(t, []plan.PFCount{{PF: simPF, Count: 3, Lab: 2}},
		wish{"a", []plan.NodeDevice{wholeCard(plan.KindGPU, simGPU, simAudio), wholeCard(plan.KindNIC, simNIC)}},
		wish{"b", []plan.NodeDevice{vfCard(simPF, 1), vfCard(simPF, 2)}})
	return m.steps(t, p, l, o)
}

func (m *sim) steps(t testing.TB, p *plan.Plan, l *labType, o Options) []change.Step {
	t.Helper()
	if o.Inspect == nil {
		o.Inspect = m.inspect
	}
	steps, err := stepsOn(m.k, p, l, m.host, o)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func (m *sim) bench(t testing.TB) *bench { return newBench(t, m.s, kindsWith(m.k)) }

func TestStepsComeInTheOrderInWhichTheyCanBeMade(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	var got []string
	for _, s := range simSteps(t, m, Options{}) {
		line := s.Op.Kind() + " " + s.Op.Subject() + ": " + s.What
		if s.Why == "" {
			t.Errorf("%s: no reason", s.What)
		}
		got = append(got, line)
	}
	want := []string{
		"module vfio_iommu_type1: load module vfio_iommu_type1", "module vfio_pci: load module vfio_pci",
		"pci-driver 0000:41:00.0: hand 0000:41:00.0 (GPU) to vfio-pci",
		"driverctl 0000:41:00.0: tell driverctl, where it is installed, that 0000:41:00.0 is for vfio-pci",
		"pci-driver 0000:41:00.1: hand 0000:41:00.1 (comes with 0000:41:00.0) to vfio-pci",
		"driverctl 0000:41:00.1: tell driverctl, where it is installed, that 0000:41:00.1 is for vfio-pci",
		"pci-driver 0000:61:00.0: hand 0000:61:00.0 (NIC) to vfio-pci",
		"driverctl 0000:61:00.0: tell driverctl, where it is installed, that 0000:61:00.0 is for vfio-pci",
		"pf-link 0000:81:00.0: set the port of 0000:81:00.0 up, with an MTU of at least 4200 bytes",
		"sriov 0000:81:00.0: have 3 virtual functions on 0000:81:00.0, 2 of them with vfio-pci and the lab's " +
			"addresses",
		"file /etc/udev/rules.d/10-rackless-pair.rules: write a udev rule that keeps the functions for vfio-pci from " +
			"their first moment",
		"file /etc/modprobe.d/rackless-pair.conf: have vfio-pci loaded before the drivers of the functions",
		"file /etc/modules-load.d/rackless-pair.conf: have VFIO's modules loaded at each boot",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStepsAreTheSameWhateverTheMachineLooksLikeNow(t *testing.T) {
	t.Parallel()
	ops := func(m *sim) []string {
		var out []string
		for _, s := range simSteps(t, m, Options{}) {
			b, err := json.Marshal(s.Op)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(b))
		}
		return out
	}
	m := newSim(t)
	before := ops(m)
	b := m.bench(t)
	b.must(b.make(simSteps(t, m, Options{})))
	if diff := cmp.Diff(before, ops(m)); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestALabWithoutDevicesHasNoSteps(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	p, l := testPlan(t, nil, wish{node: "a"})
	if steps := m.steps(t, p, l, Options{}); len(steps) > 0 {
		t.Errorf("%d steps", len(steps))
	}
}

func TestPlansThatCannotBeMadeAreErrors(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	for _, c := range []struct {
		name   string
		change func(*plan.Plan)
		want   string
	}{
		{"a host that is known by a matrix", func(p *plan.Plan) {
			p.Nodes[0].Cards[0].Functions = []string{"GPU0"}
		}, `node "a": PCI address "GPU0": no bus`},
		{"a physical function without an address", func(p *plan.Plan) {
			p.VFs[0].PF = "NIC0"
		}, `virtual functions of "NIC0"`},
		{"a virtual function that is not made", func(p *plan.Plan) {
			p.Nodes[1].Cards[0].VF = new(3)
		}, "virtual function of 0000:81:00.0 is not among those"},
		{"a virtual function without an index", func(p *plan.Plan) {
			p.Nodes[1].Cards[0].VF = nil
		}, "the plan was edited"},
		{"a virtual function without a port", func(p *plan.Plan) { p.Nodes[1].NICs = nil }, "has no port"},
		{"a MAC address that is none", func(p *plan.Plan) {
			p.Nodes[1].NICs[0].MAC = "-o exec"
		}, `MAC address "-o exec": want six bytes with colons`},
		{"another lab", func(p *plan.Plan) { p.Lab = "other" }, `the plan is of lab "other", and the lab is "pair"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, l := testPlan(t, []plan.PFCount{{PF: simPF, Count: 3}},
				wish{"a", []plan.NodeDevice{wholeCard(plan.KindGPU, simGPU)}},
				wish{"b", []plan.NodeDevice{vfCard(simPF, 1)}})
			p.Nodes[1].NICs = slices.Clone(p.Nodes[1].NICs)
			c.change(p)
			_, err := stepsOn(m.k, p, l, m.host, Options{Inspect: m.inspect})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	p, l := testPlan(t, nil, wish{node: "a"})
	if _, err := Steps(p, l, m.host, Options{}); err == nil {
		t.Error("steps without a way to look at the machine are no error")
	}
}

func TestDevicesGoToLabNodesAndComeBackByteForByte(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	steps := simSteps(t, m, Options{})
	before := m.tree()
	b := m.bench(t)
	b.must(b.make(steps))
	for _, a := range []string{simGPU, simAudio, simNIC} {
		if driver := m.driverOf(addr(a)); driver != vfioPCI {
			t.Errorf("driver of %s: %q", a, driver)
		}
		if cold, err := m.s.Value(m.function(a).path(d3cold)); err != nil || cold != "0" {
			t.Errorf("d3cold_allowed of %s: %q, %v", a, cold, err)
		}
	}
	var vfs []string
	for i := range 3 {
		vfs = append(vfs, m.driverOf(m.vfAddr(addr(simPF), i))+" "+describeVF(m.net.vfs[i]))
	}
	settings := steps[slices.IndexFunc(steps, func(s change.Step) bool {
		return s.Op.Kind() == kindSRIOV
	})].Op.(*SRIOV).VFs
	want := []string{
		"igbvf 00:00:00:00:00:00 vlan 0 qos 0 rate 0-0 spoofchk true trust false state 0",
		"vfio-pci " + settings[0].Settings.MAC + " vlan 0 qos 0 rate 0-0 spoofchk false trust true state 0",
		"vfio-pci " + settings[1].Settings.MAC + " vlan 0 qos 0 rate 0-0 spoofchk false trust true state 0",
	}
	if diff := cmp.Diff(want, vfs); diff != "" {
		t.Errorf("virtual functions (-want +got):\n%s", diff)
	}
	rule, err := m.s.ReadFile("/etc/udev/rules.d/10-rackless-pair.rules")
	if line := `ACTION=="add", SUBSYSTEM=="pci", KERNEL=="0000:41:00.1", ATTR{driver_override}="vfio-pci"`; err !=
		nil || !strings.Contains(string(rule), line) {
		t.Errorf("udev rule, %v:\n%s\nwant %s", err, rule, line)
	}
	b.inPlace(steps)
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestAfterARebootInWhichTheUdevRuleWasFirst(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	steps := simSteps(t, m, Options{})
	before := m.tree()
	b := m.bench(t)
	b.must(b.make(steps))
	reboot := func() {
		b.must(m.setCount(addr(simPF), 0))
		port := "/sys/bus/pci/devices/" + simPF + "/net/eno4/"
		m.put(port+"mtu", "1500")
		m.put(port+"flags", "0x1002")
		for _, a := range []string{simGPU, simAudio, simNIC} {
			m.put(m.function(a).path(d3cold), "1")
		}
	}
	reboot()
	b.must(b.make(steps)) // as the boot unit does
	b.inPlace(steps)
	reboot()
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestBeforeTheIOMMUIsOnDevicesWaitAndTheirBootFilesToo(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	p.KernelArgs = []string{"intel_iommu=on", "iommu=pt", "isolcpus=2"}
	steps := m.steps(t, p, l, Options{})
	m.put("/proc/cmdline", "quiet iommu=pt")
	m.gone(m.function(simNIC).path("iommu_group"))
	results, err := change.Survey(t.Context(), m.s, steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		wait := r.Kind == kindDriver || strings.HasPrefix(r.Subject, "/etc/udev") || strings.HasPrefix(r.Subject,
			"/etc/modprobe")
		if wait != (r.Status == change.Waiting) && r.Status != change.InPlace {
			t.Errorf("%s %s: %s", r.Kind, r.Subject, r.Status)
		}
	}
	m.put("/proc/cmdline", "quiet iommu=pt intel_iommu=on")
	m.bench(t).refuses(steps, "0000:61:00.0 is in no IOMMU group: switch VT-d or AMD-Vi on")
}

func TestWhatTheHostLivesOnIsRefusedBeforeTheIOMMUIsOn(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	p.KernelArgs = []string{"intel_iommu=on"}
	m.put("/proc/cmdline", "quiet")
	m.gone(m.function(simNIC).path("iommu_group"))
	m.host.Routes = []topology.Route{{Family: "ipv4", Netdev: "eno3", PCI: []string{simNIC}}}
	m.bench(t).refuses(m.steps(t, p, l, Options{}), "0000:61:00.0 carries the default route")
}

func TestAFunctionThatDoesNotGoToVFIOIsBackWithItsDriver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, file, want string }{
		{"the kernel does not bind it", pciDrivers + "/vfio-pci/bind",
			"0000:61:00.0 does not go to vfio-pci: invalid argument; see the end of dmesg"},
		{"the driver does not let go", pciDrivers + "/igb/unbind", "device or resource busy"},
		{"there is no override", pciDevices + "/" + simNIC + "/driver_override", "invalid argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newSim(t)
			before := m.tree()
			errs := map[string]error{"/unbind": syscall.EBUSY}
			m.refuses[c.file] = syscall.EINVAL
			if err := errs["/"+filepath.Base(c.file)]; err != nil {
				m.refuses[c.file] = err
			}
			b := m.bench(t)
			p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
			err := b.make(m.steps(t, p, l, Options{}))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if driver := m.driverOf(addr(simNIC)); driver != "igb" {
				t.Errorf("driver: %q, want igb", driver)
			}
			delete(m.refuses, c.file)
			b.must(b.rollback())
			if diff := cmp.Diff(before, m.tree()); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

func TestADriverIsLoadedForItsFunctionToComeBack(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.modules["igb"] = "intel_gigabit" // like xhci_hcd in xhci_pci
	m.unload("igb")
	m.load("intel_gigabit")
	b := m.bench(t)
	before := m.tree()
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	m.unbind(addr(simPF)) // it would hold the module
	b.must(b.make(m.steps(t, p, l, Options{})))
	m.unload("intel_gigabit")
	b.must(b.rollback())
	after := m.tree()
	if diff := cmp.Diff(before[pciDevices+"/"+simNIC+"/driver"], after[pciDevices+"/"+simNIC+"/driver"]); diff != "" ||
		m.driverOf(addr(simNIC)) != "igb" {
		t.Errorf("driver %q, %s", m.driverOf(addr(simNIC)), diff)
	}
}

func TestAFunctionThatIsGoneIsSaidToBe(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := newBenchWithoutCleanup(t, m)
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	b.must(b.make(m.steps(t, p, l, Options{})))
	m.unbind(addr(simNIC))
	m.gone(pciDevices + "/" + simNIC)
	err := b.rollback()
	if want := "remains (pci-driver 0000:61:00.0): it cannot go back to igb: 0000:61:00.0 is not there: file does " +
		"not exist"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

func newBenchWithoutCleanup(t *testing.T, m *sim) *bench {
	b := m.bench(t)
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(b.journal)) }) // runs before the rollback of newBench
	return b
}

func TestDriverctlIsToldWhereItIsInstalled(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.put("/usr/sbin/driverctl", "#!/bin/bash")
	m.put("/etc/driverctl.d/pci-"+simNIC, "igb")
	before := m.tree()
	b := m.bench(t)
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	b.must(b.make(m.steps(t, p, l, Options{})))
	if text, err := m.s.Value("/etc/driverctl.d/pci-" + simNIC); err != nil || text != vfioPCI {
		t.Errorf("driverctl's file: %q, %v", text, err)
	}
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestTheMachinesOwnNetworkIsNotThatOfATreeOfFiles(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	_, err := realKernel().network(m.s)
	if err == nil || !strings.Contains(err.Error(), "they are not of one machine") {
		t.Errorf("error %v", err)
	}
}

func TestStatesThatAreNoneAreErrors(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	for kind, empty := range kindsWith(m.k) {
		op := empty()
		if kind == kindModule || kind == kindFirmware {
			continue // any text is a state
		}
		if op.Done("{") {
			t.Errorf("%s: done", kind)
		}
		if err := op.Restore(t.Context(), m.s, "{"); err == nil {
			t.Errorf("%s: restored", kind)
		}
	}
	if _, err := parseSRIOVState(`{"numvfs":2}`); err == nil {
		t.Error("two virtual functions of which none is described are no error")
	}
}
