package device

import (
	"context"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

type handiwork struct {
	name  string
	group string // only one of each group is done
	do    func(m *sim, card *mellanox)
	left  []string

	// of reports whether a path keeps its changed state.
	of func(m *sim, path string) bool
}

func ofFunction(address string) func(*sim, string) bool {
	return func(m *sim, path string) bool {
		group, err := m.function(address).group()
		return err == nil && (path == "/dev/vfio/"+group || strings.HasPrefix(path, "/sys/") &&
			strings.Contains(path, address) && !strings.HasSuffix(path, d3cold))
	}
}

func ofVFs(m *sim, path string) bool {
	virtual := strings.Contains(path, "virtfn") || strings.HasSuffix(path, fileCount) ||
		strings.HasPrefix(path, "vf ") || strings.Contains(path, "/iommu_groups/10") ||
		strings.HasPrefix(path, "/dev/vfio/10")
	for i := range simTotal {
		virtual = virtual || strings.Contains(path, m.vfAddr(addr(simPF), i).String())
	}
	return virtual
}

func nothing(*sim, string) bool { return false }

func (m *sim) rebind(address, driver string) {
	f := m.function(address)
	m.unbind(f.a)
	m.put(f.path("driver_override"), driver)
	if err := m.bind(f.a, driver); err != nil {
		m.t.Fatal(err)
	}
}

func (m *sim) labVF() int {
	for i := range simTotal {
		if m.net.vfs[i].MAC != "" && m.driverOf(m.vfAddr(addr(simPF), i)) == vfioPCI {
			return i
		}
	}
	m.t.Fatal("no virtual function is with vfio-pci")
	return 0
}

const driverctlFile = "/etc/driverctl.d/pci-" + simGPU

func handiworks() []handiwork {
	sysfs := func(a, file string) string { return "/sys/bus/pci/devices/" + a + "/" + file }
	return []handiwork{
		{"another driver", "", func(m *sim, _ *mellanox) { m.rebind(simGPU, "nvme") },
			[]string{"driver of " + simGPU + ": found nvme, rackless had set vfio-pci"}, ofFunction(simGPU)},
		{"a function taken from vfio-pci", "", func(m *sim, _ *mellanox) {
			m.unbind(addr(simNIC))
			m.put(m.function(simNIC).path("driver_override"), "(null)")
		}, []string{"driver of " + simNIC + ": found no driver, rackless had set vfio-pci"}, ofFunction(simNIC)},
		{"a function given back", "audio", func(m *sim, _ *mellanox) {
			m.unbind(addr(simAudio))
			m.put(m.function(simAudio).path("driver_override"), "(null)")
			if err := m.bind(addr(simAudio), "snd_hda_intel"); err != nil {
				m.t.Fatal(err)
			}
		}, nil, nothing},
		{"power of the slot", "audio", func(m *sim, _ *mellanox) { m.put(m.function(simAudio).path(d3cold), "1") },
			[]string{sysfs(simAudio, d3cold) + ": found 1, rackless had set 0"}, func(m *sim, path string) bool {
				return strings.HasSuffix(path, simAudio+"/"+d3cold)
			}},
		{"another file of driverctl", "", func(m *sim, _ *mellanox) { m.put(driverctlFile, "nvme") },
			[]string{driverctlFile + ": found 5 bytes"}, func(_ *sim, path string) bool {
				return path == driverctlFile || path == filepath.Dir(driverctlFile)
			}},
		{"another number of virtual functions", "vfs", func(m *sim, _ *mellanox) {
			for _, n := range []int{0, 5} {
				if err := m.setCount(addr(simPF), n); err != nil {
					m.t.Fatal(err)
				}
			}
		}, []string{sysfs(simPF, fileCount) + ": found 5, rackless had set 3"}, ofVFs},
		{"no virtual functions", "vfs", func(m *sim, _ *mellanox) {
			if err := m.setCount(addr(simPF), 0); err != nil {
				m.t.Fatal(err)
			}
		}, nil, nothing},
		{"an address of a virtual function", "vfs", func(m *sim, _ *mellanox) {
			i := m.labVF()
			vf := m.net.vfs[i]
			vf.MAC, vf.VLAN = "02:00:00:00:00:99", new(7)
			m.net.vfs[i] = vf
		}, []string{"mac of virtual function 1 of " + simPF + `: found {"mac":"02:00:00:00:00:99"}`,
			"vlan of virtual function 1 of " + simPF + `: found {"vlan":7`}, ofVFs},
		{"the driver of a virtual function", "vfs", func(m *sim, _ *mellanox) {
			m.rebind(m.vfAddr(addr(simPF), m.labVF()).String(), "igbvf")
		}, []string{"driver of virtual function 1 of " + simPF + ": found igbvf, rackless had set vfio-pci"}, ofVFs},
		{"autoprobe", "", func(m *sim, _ *mellanox) { m.put(m.function(simPF).path(fileAutoprobe), "0") },
			[]string{sysfs(simPF, fileAutoprobe) + ": found 0, rackless had set 1"}, func(_ *sim, path string) bool {
				return strings.HasSuffix(path, fileAutoprobe)
			}},
		{"an MTU", "", func(m *sim, _ *mellanox) { m.put(m.netFile("mtu"), "9000") },
			[]string{"MTU of the port of " + simPF + ": found 9000, rackless had set 4200"},
			func(_ *sim, path string) bool {
				return strings.HasSuffix(path, "/mtu") && strings.Contains(path, simPF)
			}},
		{"firmware", "", func(_ *sim, card *mellanox) { card.next[paramVFs] = "16" },
			[]string{simPF + " " + paramVFs + ": found 16, rackless had set 4"}, nothing},
	}
}

func (m *sim) netFile(file string) string {
	m.t.Helper()
	netdev, err := m.function(simPF).port()
	if err != nil || netdev == "" {
		m.t.Fatalf("port %q, %v", netdev, err)
	}
	return netFile(netdev, file)
}

func handSteps(t *testing.T, m *sim) []change.Step {
	t.Helper()
	for i := range m.host.PCI {
		if d := &m.host.PCI[i]; d.Address == addr(simPF) {
			d.Vendor = new(topology.VendorMellanox)
		}
	}
	m.put(m.function(simPF).path("vendor"), "0x15b3")
	p, l := testPlan(t, []plan.PFCount{{PF: simPF, Count: 3, Lab: 2}},
		wish{"a", []plan.NodeDevice{wholeCard(plan.KindGPU, simGPU, simAudio), wholeCard(plan.KindNIC, simNIC)}},
		wish{"b", []plan.NodeDevice{vfCard(simPF, 1), vfCard(simPF, 2)}})
	return m.steps(t, p, l, Options{Firmware: true})
}

// A rollback leaves and reports manual changes, and restores everything else.
func TestWhatIsSetByHandSurvivesARollback(t *testing.T) {
	t.Parallel()
	all := handiworks()
	sets := [][]int{nil}
	for i := range all {
		sets = append(sets, []int{i})
	}
	more := 30
	if testing.Short() {
		more = 6
	}
	for range more {
		set := rand.Perm(len(all))[:2+rand.IntN(3)]
		slices.Sort(set) // a function is rebound before the power setting of its slot
		sets = append(sets, set)
	}
	for _, set := range sets {
		var work []handiwork
		var names []string
		for _, i := range set {
			if group := all[i].group; group == "" || !slices.ContainsFunc(work, func(h handiwork) bool {
				return h.group == group
			}) {
				work, names = append(work, all[i]), append(names, all[i].name)
			}
		}
		t.Run(strings.Join(names, " and "), func(t *testing.T) {
			t.Parallel()
			byHand(t, work)
		})
	}
}

func byHand(t *testing.T, work []handiwork) {
	m, card := newSim(t), newMellanox()
	m.s.Run = func(ctx context.Context, argv []string) ([]byte, error) {
		if strings.HasPrefix(argv[0], "mst") || strings.HasPrefix(argv[0], "mlx") {
			return card.run(ctx, argv)
		}
		return m.program(ctx, argv)
	}
	m.put("/usr/sbin/driverctl", "#!/bin/sh")
	m.put(m.function(simAudio).path(d3cold), "0")
	steps := handSteps(t, m)
	b := m.bench(t)
	before, firmware := m.tree(), maps.Clone(card.next)
	b.must(b.with(func(j *change.Journal) error { // the firmware waits for a reset
		_, err := change.Make(t.Context(), b.s, j, steps, nil)
		return err
	}))
	var want []string
	for _, h := range work {
		h.do(m, card)
		want = append(want, h.left...)
		if h.name == "firmware" {
			firmware[paramVFs] = card.next[paramVFs]
		}
	}
	made := m.tree()
	var left []string
	module := ""
	b.must(b.with(func(j *change.Journal) error {
		results, err := change.Rollback(t.Context(), b.s, j, nil)
		for _, r := range results {
			for _, c := range r.Changed {
				if r.Kind == kindModule {
					module += c.String()
					continue
				}
				left = append(left, c.String())
			}
		}
		if n := len(j.Entries()); n > 0 {
			t.Errorf("%d entries remain", n)
		}
		return err
	}))
	after := m.tree()
	paths := maps.Clone(before)
	maps.Copy(paths, made)
	maps.Copy(paths, after)
	for path := range paths {
		good := before[path]
		if slices.ContainsFunc(work, func(h handiwork) bool { return h.of(m, path) }) ||
			module != "" && (strings.HasPrefix(path, "/sys/module/") || path == pciDrivers+"/vfio-pci") {
			good = made[path]
		}
		if after[path] != good {
			t.Errorf("%s is %q, want %q", path, after[path], good)
		}
	}
	if diff := cmp.Diff(firmware, card.next); diff != "" {
		t.Errorf("firmware (-want +is):\n%s", diff)
	}
	for _, w := range want {
		if !slices.ContainsFunc(left, func(c string) bool { return strings.HasPrefix(c, w) }) {
			t.Errorf("nobody says %q: %q", w, left)
		}
	}
	if len(left) != len(want) {
		t.Errorf("left %q, want %q", left, want)
	}
}

// An undo or a boot may have been cut off there.
func TestAFunctionThatIsFreeGoesBack(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	before := m.tree()
	b.must(b.make(simSteps(t, m, Options{})))
	m.unbind(addr(simGPU))
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// A boot removes virtual functions and binds functions to their own drivers; neither counts as somebody's choice.
func TestWhatABootBringsIsUndoneAsBefore(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	const boot = "/proc/sys/kernel/random/boot_id"
	m.put(boot, "first")
	b := m.bench(t)
	b.must(m.setCount(addr(simPF), 2))
	before := m.tree()
	b.must(b.make(simSteps(t, m, Options{})))
	m.put(boot, "second")
	b.must(m.setCount(addr(simPF), 0))
	m.unbind(addr(simGPU))
	m.put(m.function(simGPU).path("driver_override"), "(null)")
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// A restarted driver of the port forgets the addresses that were set.
func TestAVirtualFunctionWithoutAnAddressIsNobodyElses(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	before := m.tree()
	b.must(b.make(simSteps(t, m, Options{})))
	vf := m.net.vfs[1]
	vf.MAC = noMAC
	m.net.vfs[1] = vf
	b.must(b.rollback())
	if diff := cmp.Diff(before, m.tree()); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// With as many virtual functions before as the lab has, each is restored on its own.
func TestOneVirtualFunctionOfSeveralIsKept(t *testing.T) {
	t.Parallel()
	m := newSim(t)
	b := m.bench(t)
	b.must(m.setCount(addr(simPF), 3))
	for i := range m.host.PCI {
		if d := &m.host.PCI[i]; d.Address == addr(simPF) {
			d.SRIOV.Enabled = new(3)
		}
	}
	before := maps.Clone(m.net.vfs)
	b.must(b.make(simSteps(t, m, Options{})))
	vf := m.net.vfs[1]
	vf.MAC = "02:00:00:00:00:99"
	m.net.vfs[1] = vf
	b.must(b.rollback())
	want := before[1]
	want.MAC = vf.MAC
	before[1] = want
	for i := range before {
		if got, want := describeVF(m.net.vfs[i]), describeVF(before[i]); got != want {
			t.Errorf("virtual function %d is %s, want %s", i, got, want)
		}
		if driver := m.driverOf(m.vfAddr(addr(simPF), i)); driver != "igbvf" {
			t.Errorf("virtual function %d is with %s", i, driver)
		}
	}
	if _, err := os.Stat(b.journal); err == nil {
		t.Error("the journal is still there")
	}
}
