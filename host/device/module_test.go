package device

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

func TestAModuleThatSomebodyUsesStays(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	p, l := testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindNIC, simNIC)}})
	b.must(b.make(m.steps(t, p, l, Options{})))
	f := m.function(simDisk)
	b.must(f.giveToVFIO(t.Context()))
	err := b.rollback()
	if want := "module vfio_pci stays loaded: it is used by 0000:01:00.0"; err == nil || !strings.Contains(err.Error(),
		want) {
		t.Errorf("error %v, want %q", err, want)
	}
	if driver := m.driverOf(addr(simNIC)); driver != "igb" {
		t.Errorf("driver of our function: %q", driver)
	}
	b.must(f.backTo(t.Context(), "nvme", ""))
	b.must(b.rollback())
	for _, name := range []string{"vfio_pci", "vfio_iommu_type1", "vfio"} {
		if state, err := moduleState(m.s, name); err != nil || state != moduleAbsent {
			t.Errorf("module %s in the end: %q, %v", name, state, err)
		}
	}
}

func TestModulesThatAreBuiltInCountAsLoaded(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	m.put("/lib/modules/6.1.0-test/modules.builtin", "kernel/drivers/vfio/vfio.ko\nkernel/drivers/vfio/pci/vfio-pci.ko")
	if err := os.MkdirAll(m.s.Path("/sys/module/vfio_iommu_type1/parameters"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, module := range vfioModules() {
		state, err := module.Read(t.Context(), m.s)
		if err != nil || state != moduleBuiltIn || !module.Done(state) {
			t.Errorf("%s: %q, %v", module.Name, state, err)
		}
	}
}

func TestNVIDIAsStackIsUnloadedWhereAllItsGPUsGo(t *testing.T) {
	t.Parallel()
	nvidia := func(t *testing.T) *sim {
		m := newSim(t)
		for _, a := range []string{simGPU, simScreen} {
			m.unbind(addr(a))
			m.natives[addr(a)] = nvidiaDriver
		}
		m.unload("ast")
		m.load("nvidia")
		m.needs["nvidia_uvm"] = []string{"nvidia"}
		m.load("nvidia_uvm")
		m.put("/proc/driver/nvidia/gpus/"+simGPU+"/information", "Model: \t\t NVIDIA A2\nDevice Minor: \t 0")
		m.put("/proc/driver/nvidia/gpus/"+simScreen+"/information", "Device Minor: \t 1")
		m.unbind(addr(simScreen))
		for i := range m.host.PCI {
			if d := &m.host.PCI[i]; d.Address == addr(simGPU) {
				d.Driver = nvidiaDriver
			}
		}
		return m
	}
	only := func(t *testing.T) (*plan.Plan, *labType) {
		return testPlan(t, nil, wish{"a", []plan.NodeDevice{wholeCard(plan.KindGPU, simGPU, simAudio)}})
	}
	t.Run("all go, and come back with it", func(t *testing.T) {
		m := nvidia(t)
		p, l := only(t)
		before := m.tree()
		b := m.bench(t)
		b.must(b.make(m.steps(t, p, l, Options{})))
		if m.s.Exists("/sys/module/nvidia") || m.s.Exists("/sys/module/nvidia_uvm") {
			t.Error("nvidia is still loaded")
		}
		// When the driver comes back it would also bind to the other card.
		m.put(m.function(simScreen).path("driver_override"), "none")
		b.must(b.rollback())
		m.put(m.function(simScreen).path("driver_override"), "(null)")
		if diff := cmp.Diff(before, m.tree()); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	})
	t.Run("a process uses a GPU", func(t *testing.T) {
		m := nvidia(t)
		m.process(77, "nvidia-persiste", "/dev/nvidia0", "/dev/nvidiactl")
		p, l := only(t)
		m.bench(t).refuses(m.steps(t, p, l, Options{}),
			"0000:41:00.0 is in use: nvidia-persiste (77) has /dev/nvidia0 open",
			"systemctl stop nvidia-persistenced; nvidia-smi -i 0000:41:00.0 -pm 0")
	})
	t.Run("another GPU stays", func(t *testing.T) {
		m := nvidia(t)
		b := m.bench(t)
		b.must(m.bind(addr(simScreen), nvidiaDriver))
		for i := range m.host.PCI {
			if d := &m.host.PCI[i]; d.Address == addr(simScreen) {
				d.Driver = nvidiaDriver
			}
		}
		p, l := only(t)
		b.must(b.make(m.steps(t, p, l, Options{})))
		if m.driverOf(addr(simScreen)) != nvidiaDriver || m.driverOf(addr(simGPU)) != vfioPCI {
			t.Errorf("drivers %q and %q", m.driverOf(addr(simScreen)), m.driverOf(addr(simGPU)))
		}
	})
	t.Run("another GPU came to the driver since", func(t *testing.T) {
		m := nvidia(t)
		p, l := only(t)
		steps := m.steps(t, p, l, Options{})
		if err := m.bind(addr(simScreen), nvidiaDriver); err != nil {
			t.Fatal(err)
		}
		m.bench(t).refuses(steps, "module nvidia: GPU 0000:02:00.0 uses it and stays with the host: make a new plan")
	})
	t.Run("a module of somebody else's holds it", func(t *testing.T) {
		m := nvidia(t)
		m.needs["gdrdrv"] = []string{"nvidia"}
		m.load("gdrdrv")
		p, l := only(t)
		m.bench(t).refuses(m.steps(t, p, l, Options{}), "module nvidia is used by module gdrdrv: rmmod gdrdrv first")
	})
}
