package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	_ "github.com/rackless/rackless/rack/placed" // labs on a host
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/libvirt"
	"github.com/rackless/rackless/vm/libvirttest"
)

const soloLab = "name: solo\ndriver: libvirt\nhugepages: off\nnodes:\n  vm: {count: 1, cpus: 1, memory: 512MiB, " +
	"nics: 0}\n"

// solo is for one node on CPU 1: any machine with two CPUs can run it.
func solo() *rack.Placement {
	return &rack.Placement{
		Host: &topology.Host{System: topology.System{Arch: "x86_64"}},
		Plan: &plan.Plan{
			Schema: plan.Schema, Lab: "solo", Housekeeping: plan.Housekeeping{CPUs: topology.CPUs(0), Cores: 1},
			Nodes: []plan.Node{{
				Name: "vm00", VCPUs: []int{1}, Cores: 1, Threads: 1, EmulatorCPUs: topology.CPUs(0),
				IOThreadCPUs: topology.CPUs(0),
				MemoryBytes:  512 << 20, Memory: []plan.NodeMemory{{NUMANode: 0, Bytes: 512 << 20}},
				Cells: []plan.Cell{{NUMANodes: []int{0}, VCPUs: 1, Bytes: 512 << 20, Distances: []int{10}}},
			}},
		},
	}
}

func newPlaced(t *testing.T, dirs rack.Dirs, place *rack.Placement, factors string) (*Rig, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(soloLab), 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := study.Parse("study.yaml",
		[]byte("name: s\nlab: lab.yaml\nmeasure: [{test: sysbench_cpu_single, seconds: 2}]\nfactors:\n"+factors))
	if err != nil {
		t.Fatal(err)
	}
	return New(dirs, spec, file, rack.Options{Accel: "tcg", Place: place}, func(l *lab.Lab) (*plan.Plan, error) {
		p := *place.Plan
		n := p.Nodes[0]
		n.MemoryBytes = uint64(l.Nodes[0].Memory)
		n.Memory = []plan.NodeMemory{{NUMANode: 0, Bytes: n.MemoryBytes}}
		n.Cells = []plan.Cell{{NUMANodes: []int{0}, VCPUs: l.Nodes[0].CPUs, Bytes: n.MemoryBytes, Distances: []int{10}}}
		n.VCPUs = nil
		for i := range l.Nodes[0].CPUs {
			n.VCPUs = append(n.VCPUs, 1+i)
		}
		for range l.Nodes[0].GPUs {
			n.Cards = append(n.Cards, plan.NodeDevice{ID: "0000:06:00.0", Kind: plan.KindGPU})
		}
		p.Nodes = []plan.Node{n}
		return &p, nil
	})
}

func TestWhatAHostDoesNotHaveIsRefusedBeforeAnythingIsMeasured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, uri, factors, want string }{
		{"another machine", "qemu+ssh://root@elsewhere/system", "  placement: [default, pin]\n", "run the study there"},
		{"no siblings, or no such CPU", "qemu:///session", "  placement: [pin, pin+numa+smt]\n",
			"factor placement: level pin+numa+smt: node vm00: its cores have one thread each"},
		{"nowhere wrong to go", "qemu:///session", "  placement: [pin, wrong-numa]\n",
			"factor placement: level wrong-numa: lab node vm00: no NUMA node is wrong for it"},
		{"pages that are not there", "qemu:///session", "  hugepages: [off, 1GiB]\n",
			"are no whole pages of 1073741824 bytes"},
		{"a plan that isolates nothing", "qemu:///session", "  isolation: [cpuset, isolcpus]\n",
			"factor isolation: level isolcpus: the plan of the lab has no isolcpus among its kernel arguments"},
		{"nodes that are not pinned, and CPUs that take it", "qemu:///session",
			"  placement: [pin, default]\n  isolation: [cpuset, isolcpus]\n",
			"factor placement: level default: the kernel keeps the lab's CPUs to those who ask for them"},
		{"more CPUs than it is prepared for", "qemu:///session", "  lab.nodes.vm.cpus: [1, 2]\n",
			"lab.nodes.vm.cpus=2: the host is prepared for a lab on CPUs 1, and the plan of this one has nodes " +
				"on CPUs 2"},
		{"a device that it is not prepared to give", "qemu:///session", "  lab.nodes.vm.gpus: [0, 1]\n",
			"node vm00 is given 0000:06:00.0 (gpu), which the host is not prepared to give it"},
		{"a larger MTU than the port of its virtual functions has", "qemu:///session",
			"  lab.fabric.mtu: [1500, 9200]\n",
			"lab.fabric.mtu=9200: the NICs whose virtual functions the lab has are prepared for an MTU of 4200: let " +
				"the lab file have the largest, 9200"},
		{"another lab", "qemu:///session", "  lab.name: [solo, other]\n",
			"lab.name=other: name and driver of the lab stay as they are in a study"},
		{"a switch that is not ours", "qemu:///session", "  link.loss: [\"0\", 1%]\n",
			"there is no switch of rackless between them"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			place := solo()
			place.URI = tt.uri
			if strings.Contains(tt.factors, "default, ") || strings.Contains(tt.factors, ", default") {
				place.Plan.KernelArgs = []string{"isolcpus=managed_irq,domain,0"}
			}
			if strings.Contains(tt.factors, "mtu") {
				place.Plan.Nodes[0].Cards = []plan.NodeDevice{{ID: "0000:41:00.0", Kind: plan.KindVF, VF: new(int)}}
			}
			dir := t.TempDir()
			if _, err := newPlaced(t, rack.Dirs{Run: dir, Cache: dir, Data: dir}, place, tt.factors); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Only the boot decides whether a run can be made.
func TestARunWaitsForTheBootThatItTakes(t *testing.T) {
	t.Parallel()
	two, four := topology.CPUs(2, 3), topology.CPUs(1, 2, 3, 4)
	one := topology.CPUs(3)
	for _, tt := range []struct {
		name     string
		isolated *topology.CPUSet
		level    string // "": no such factor
		want     *BootError
	}{
		{"isolated, as wanted", &two, study.IsolationIsolcpus, nil},
		{"more is isolated", &four, study.IsolationIsolcpus, nil},
		{"not isolated", nil, study.IsolationIsolcpus, &BootError{Isolated: true, CPUs: two}},
		{"half of them", &one, study.IsolationIsolcpus, &BootError{Isolated: true, CPUs: two}},
		{"half of them is too much", &one, study.IsolationNone, &BootError{CPUs: two}},
		{"isolated, and others are to be there", &two, study.IsolationNone, &BootError{CPUs: two}},
		{"isolated by the kernel, and not by a cpuset", &two, study.IsolationCpuset, &BootError{CPUs: two}},
		{"not isolated, as wanted", nil, study.IsolationCpuset, nil},
		{"isolated, and nobody asks", &two, "", nil},
	} {
		host := &topology.Host{}
		host.CPUs.Isolated = tt.isolated
		r := &Rig{protected: two}
		r.site = &hostSite{Rig: r, host: host}
		settings := map[string]string{study.FactorContention: "idle"}
		if tt.level != "" {
			settings[study.FactorIsolation] = tt.level
		}
		err := r.Ready(settings)
		if tt.want == nil && err != nil || tt.want != nil && (err == nil || err.Error() != tt.want.Error()) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
	}
	if err := (&emulatedSite{}).ready(map[string]string{study.FactorIsolation: study.IsolationCpuset}); err != nil {
		t.Errorf("an emulated lab: %v", err)
	}
}

// Nodes that would leave the partition are reported before anything is measured, not by QEMU in the middle.
func TestNodesStayWithinThePartition(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, cpus string
		node       plan.Node
		want       string // "" means no error
	}{
		{"as planned", "0-2", plan.Node{Name: "vm00", VCPUs: []int{1, 2}}, ""},
		{"on a CPU of the host's", "0-2\n", plan.Node{Name: "vm00", VCPUs: []int{2, 6}},
			"node vm00 would be on CPUs 6, and machine.slice has CPUs 0-2 alone: give the lab " +
				"another lab node"},
		{"pinned nowhere", "0-2", plan.Node{Name: "vm00", VCPUs: []int{2, 6}, Unpinned: true}, ""},
		{"the slice is not limited", "\n", plan.Node{Name: "vm00", VCPUs: []int{6}}, ""},
		{"there is no slice", "", plan.Node{Name: "vm00", VCPUs: []int{6}}, ""},
	} {
		root := fstest.MapFS{}
		if tt.cpus != "" {
			root["sys/fs/cgroup/machine.slice/cpuset.cpus"] = &fstest.MapFile{Data: []byte(tt.cpus)}
		}
		err := (&hostSite{Rig: &Rig{machine: machine{root: root}}}).within(&plan.Plan{Nodes: []plan.Node{tt.node}})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A retrained link is detected, except of a GPU that saves power.
func TestLinksOfTheLabsDevicesArePartOfTheState(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const dir = "sys/bus/pci/devices/"
	place := solo()
	place.Plan.Nodes[0].Cards = []plan.NodeDevice{
		{ID: "0000:06:00.0", Kind: plan.KindGPU}, {ID: "0000:41:00.0", Kind: plan.KindNIC},
		{ID: "0000:41:00.0", Kind: plan.KindVF, VF: new(1)}, {ID: "0000:61:00.0", Kind: plan.KindNIC},
	}
	r := &hostSite{place: place, Rig: &Rig{machine: machine{root: fstest.MapFS{
		dir + "0000:06:00.0/current_link_speed": file("2.5 GT/s PCIe\n"),
		dir + "0000:06:00.0/current_link_width": file("16\n"),
		dir + "0000:41:00.0/current_link_speed": file("8.0 GT/s PCIe\n"),
		dir + "0000:41:00.0/current_link_width": file("8\n"),
		dir + "0000:61:00.0/current_link_speed": file("Unknown\n"),
		dir + "0000:61:00.0/current_link_width": file("0\n"),
	}}}}
	if got, want := r.pcieLinks(), []string{"0000:06:00.0 x16", "0000:41:00.0 8.0 GT/s PCIe x8"}; !slices.Equal(got,
		want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// On a real libvirt, the kernel's view of threads matches the level, and restore returns to the plan.
func TestE2EALabOnThisHostIsArrangedAsTheCellSays(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	dirs := nodeDirs(t)
	for program, debian := range libvirttest.Programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("no %s: install Debian's %s", program, debian)
			}
			t.Skipf("no %s: install Debian's %s to run this test", program, debian)
		}
	}
	d, err := libvirttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	// The daemon's user may not read this home directory.
	img, err := image.Node.Ensure(t.Context(), image.Options{Cache: dirs.Images(), Progress: func(s string) {
		t.Log(s)
	}})
	if err != nil {
		t.Fatal(err)
	}
	dirs.Cache = filepath.Join(d.Dir, "cache")
	if err := os.CopyFS(filepath.Join(dirs.Images(), img.Key), os.DirFS(filepath.Dir(img.KernelPath()))); err != nil {
		t.Fatal(err)
	}
	place := solo()
	place.URI = d.URI
	r, err := newPlaced(t, dirs, place, "  placement: [default, pin, pin+numa]\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := rack.Down(context.Background(), dirs, "solo"); err != nil && !errors.Is(err, rack.ErrNotRunning) {
			t.Error(err)
		}
	})
	ctx := t.Context()
	c, err := libvirt.Connect(ctx, d.URI)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// of the virtual CPU's thread, the process, and the active definition
	affinity := func() (cpus string, pid int, xml string) {
		t.Helper()
		th, err := c.Threads(ctx, "solo.vm00")
		if err != nil || len(th.VCPUs) != 1 {
			t.Fatalf("threads %+v, %v", th, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", th.PID, th.VCPUs[0]))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		cpus, _, _ = strings.Cut(rest, "\n")
		text, err := d.Virsh("dumpxml", "solo.vm00")
		if err != nil {
			t.Fatal(err)
		}
		return cpus, th.PID, text
	}
	for _, tt := range []struct {
		level, cpus  string
		pinned, numa bool
	}{
		{"default", r.all.String(), false, false},
		{"pin", "1", true, false},
		{"pin+numa", "1", true, true},
	} {
		if err := r.Apply(ctx, map[string]string{study.FactorPlacement: tt.level}); err != nil {
			t.Fatal(tt.level, err)
		}
		cpus, pid, xml := affinity()
		if cpus != tt.cpus || strings.Contains(xml, "<vcpupin") != tt.pinned ||
			strings.Contains(xml, "<numatune>") != tt.numa {
			t.Errorf("%s: on CPUs %s, want %s\n%s", tt.level, cpus, tt.cpus, xml)
		}
		samples, err := r.Measure(ctx, r.spec.Measure[0])
		if err != nil || len(samples) != 1 || samples[0].Error != "" || samples[0].Value <= 0 || !samples[0].Emulated {
			t.Errorf("%s: measured %+v, %v", tt.level, samples, err)
		}
		if err := r.Apply(ctx, map[string]string{study.FactorPlacement: tt.level}); err != nil {
			t.Fatal(tt.level, err)
		}
		if _, again, _ := affinity(); again != pid {
			t.Errorf("%s: the node was started anew without need", tt.level)
		}
	}
	less := map[string]string{study.FactorPlacement: "default", "lab.nodes.vm.memory": "448MiB"}
	if err := r.check(less); err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(ctx, less); err != nil {
		t.Fatal(err)
	}
	if _, _, xml := affinity(); !strings.Contains(xml, ">458752</memory>") || strings.Contains(xml, "<vcpupin") {
		t.Errorf("with less memory, and not pinned:\n%s", xml)
	}
	// A missing CPU leaves the lab down, and restore works.
	missing := *place.Plan
	missing.Nodes = slices.Clone(missing.Nodes)
	missing.Nodes[0].VCPUs = []int{4000}
	if err := r.site.(*hostSite).upArranged(ctx, r.lab, &missing); err == nil {
		t.Fatal("the node runs on CPU 4000")
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	back, err := rack.Open(dirs, "solo")
	if err != nil {
		t.Fatal(err)
	}
	r.rack = back
	if cpus, _, xml := affinity(); cpus != "1" || !strings.Contains(xml, "<numatune>") ||
		!strings.Contains(xml, ">524288</memory>") {
		t.Errorf("after the study: on CPUs %s\n%s", cpus, xml)
	}
	if err := back.Close(); err != nil {
		t.Fatal(err)
	}
}
