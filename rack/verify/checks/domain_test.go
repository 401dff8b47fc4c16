package checks

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

func started(t fataler, p *plan.Plan, h *topology.Host) []Domain {
	t.Helper()
	var all []Domain
	for i := range p.Nodes {
		n := &p.Nodes[i]
		pid := 5000 + 1000*i
		emulator := p.EmulatorPin(n, h)
		d := Domain{Node: n.Name, Name: p.Lab + "." + n.Name, State: "running", PID: pid, IOThreads: []int{pid + 1},
			Definition: &topology.Tenant{EmulatorCPUs: &emulator, IOThreadCPUs: &n.IOThreadCPUs, MemoryMode: "strict"}}
		proc := &facts.Process{PID: pid, VFIO: []string{}, Threads: []facts.Thread{
			{PID: pid, TID: pid, Name: "qemu-system-x86", Allowed: emulator},
			{PID: pid, TID: pid + 1, Name: "IO iothread1", Allowed: n.IOThreadCPUs},
			{PID: pid, TID: pid + 2, Name: fmt.Sprintf("vhost-%d", pid), Allowed: emulator},
		}}
		for k, cpu := range n.VCPUs {
			tid := pid + 100 + k
			d.VCPUs = append(d.VCPUs, tid)
			d.Definition.Pins = append(d.Definition.Pins, topology.Pin{VCPU: k, CPUs: topology.CPUs(cpu)})
			proc.Threads = append(proc.Threads, facts.Thread{PID: pid, TID: tid, Name: fmt.Sprintf("CPU %d/KVM", k),
				Allowed: topology.CPUs(cpu), LastCPU: cpu})
		}
		proc.Mappings = memoryOf(n)
		nodes := topology.CPUSet{}
		for _, m := range n.Memory {
			nodes = nodes.Union(topology.CPUs(m.NUMANode))
		}
		d.Definition.MemoryNodes = &nodes
		for _, id := range n.Devices {
			file := fmt.Sprintf("/dev/vfio/%d", *deviceOf(t, p, h, id).IOMMUGroup)
			if !slices.Contains(proc.VFIO, file) {
				proc.VFIO = append(proc.VFIO, file)
			}
		}
		slices.Sort(proc.VFIO)
		d.Process = proc
		all = append(all, d)
	}
	return all
}

func memoryOf(n *plan.Node) []facts.Mapping {
	all := []facts.Mapping{
		{Start: 0x1000, Bytes: 1 << 20, Policy: "default", File: "/usr/bin/qemu-system-x86_64",
			Pages: map[int]uint64{3: 50}, PageBytes: 4096},
		// a heap
		{Start: 0x2000, Bytes: 128 << 20, Policy: "default", Anon: true, Pages: map[int]uint64{3: 5}, PageBytes: 4096},
	}
	left := map[int]uint64{}
	for _, m := range n.Memory {
		left[m.NUMANode] += m.Bytes
	}
	page := n.Memory[0].PageBytes
	for i, cell := range n.Cells {
		m := facts.Mapping{Start: uint64(i+1) << 40, Bytes: cell.Bytes, Policy: "bind:0", Huge: page > 0, Anon: true,
			PageBytes: max(page, 4096), Pages: map[int]uint64{}}
		rest := cell.Bytes
		for _, node := range cell.NUMANodes {
			take := min(rest, left[node])
			m.Pages[node] = take / m.PageBytes
			rest, left[node] = rest-take, left[node]-take
		}
		all = append(all, m)
	}
	return all
}

func TestEachFaultOfAVirtualMachineIsFound(t *testing.T) {
	ram := func(d *Domain) *facts.Mapping { return &d.Process.Mappings[2] }
	// 0 main, 1 I/O, 2 vhost, then virtual CPUs
	thread := func(d *Domain, i int) *facts.Thread { return &d.Process.Threads[i] }
	tests := []struct {
		name   string
		change func(c *planCase, d *Domain)
		want   []string
	}{
		{"all is as planned", func(c *planCase, d *Domain) {}, nil},
		{"it does not run", func(c *planCase, d *Domain) {
			d.State, d.PID, d.Process = "shut off", 0, nil
		}, []string{"failed domain-running | vm00 | shut off"}},
		{"it is paused", func(c *planCase, d *Domain) {
			d.State = "paused"
		}, []string{"failed domain-running | vm00 | paused"}},
		{"its process cannot be looked at", func(c *planCase, d *Domain) {
			d.Process = nil
		}, []string{"unknown domain-running | vm00 | running, and its process cannot"}},
		{"it is another lab node's", func(c *planCase, d *Domain) {
			d.Node = "vm07"
		}, []string{"failed domain-running | vm00 | no such domain"}},
		{"a virtual CPU floats", func(c *planCase, d *Domain) { thread(d, 3).Allowed = topology.CPURange(2, 7) },
			[]string{"failed vcpu-affinity | vm00 | 27 of 28 on their CPU: virtual CPU 0 may use 2-7, not just "}},
		{"two virtual CPUs are swapped", func(c *planCase, d *Domain) {
			thread(d, 3).Allowed, thread(d, 4).Allowed = thread(d, 4).Allowed, thread(d, 3).Allowed
		}, []string{"failed vcpu-affinity | vm00 | 26 of 28 on their CPU"}},
		{"a virtual CPU is missing", func(c *planCase, d *Domain) {
			d.VCPUs, d.Process.Threads = d.VCPUs[:27], d.Process.Threads[:30]
		},
			[]string{"failed vcpu-affinity | vm00 | 27 of 28 on their CPU: virtual CPU 27 is not there"}},
		{"one more than planned", func(c *planCase, d *Domain) {
			d.VCPUs = append(d.VCPUs, 5999)
			d.Process.Threads = append(d.Process.Threads, facts.Thread{PID: 5000, TID: 5999})
		}, []string{"failed vcpu-affinity | vm00 | 27 of 28 on their CPU: virtual CPU 28 is not in the plan"}},
		{"a thread has ended meanwhile", func(c *planCase, d *Domain) {
			d.Process.Threads = slices.Delete(d.Process.Threads, 3, 4)
		},
			[]string{"failed vcpu-affinity | vm00 | 27 of 28 on their CPU: thread 5100 of virtual CPU 0 is not there"}},
		{"which threads are virtual CPUs is not known", func(c *planCase, d *Domain) { d.VCPUs = nil },
			[]string{"unknown vcpu-affinity | vm00 | which threads",
				"unknown emulator-affinity | vm00 | which threads"}},
		{"QEMU is where its virtual CPUs are", func(c *planCase, d *Domain) {
			thread(d, 2).Allowed = topology.CPURange(0, 63)
		},
			[]string{"failed emulator-affinity | vm00 | 5002 vhost-5000 may use 0-63"}},
		{"the I/O thread is not pinned", func(c *planCase, d *Domain) {
			thread(d, 1).Allowed = topology.CPURange(0, 63)
		},
			[]string{"failed iothread-affinity | vm00 | 5001 IO iothread1 may use 0-63"}},
		{"the I/O thread is gone", func(c *planCase, d *Domain) { d.IOThreads = []int{4999} },
			[]string{"unknown iothread-affinity | vm00 | threads of I/O threads are not there"}},
		{"it has no I/O thread", func(c *planCase, d *Domain) {
			d.IOThreads, d.Process.Threads = nil, slices.Delete(d.Process.Threads, 1, 2)
		}, nil},
		{"the definition was changed by hand", func(c *planCase, d *Domain) {
			d.Definition.Pins[1].CPUs = topology.CPUs(1, 2)
			d.Definition.Pins = slices.Delete(d.Definition.Pins, 2, 3)
			d.Definition.EmulatorCPUs, d.Definition.MemoryMode = nil, "preferred"
		}, []string{"failed domain-pins | vm00 | vcpupin 1 1-2, not "}},
		{"the definition is not known", func(c *planCase, d *Domain) { d.Definition = nil }, nil},
		{"numatune is for other nodes", func(c *planCase, d *Domain) {
			d.Definition.MemoryNodes = new(topology.CPUs(1))
		}, []string{"failed domain-pins | vm00 | numatune nodeset 1, not "}},
		{"a study has left it unpinned", func(c *planCase, d *Domain) {
			c.p.Nodes[0].Unpinned, c.p.Nodes[0].Unbound = true, true
			c.p.Nodes[0].EmulatorCPUs, c.p.Nodes[0].IOThreadCPUs = topology.CPUSet{}, topology.CPUSet{}
			d.Definition = &topology.Tenant{}
			for i := range d.Process.Threads {
				thread(d, i).Allowed = topology.CPURange(0, 63)
			}
			ram(d).Pages = map[int]uint64{3: ram(d).Bytes / ram(d).PageBytes}
		}, nil},
		{"it is pinned and bound, and is not to be", func(c *planCase, d *Domain) {
			c.p.Nodes[0].Unpinned, c.p.Nodes[0].Unbound = true, true
		}, []string{"failed domain-pins | vm00 | vcpupin 0 1, not none"}},
		{"a page is on a node that the plan does not name", func(c *planCase, d *Domain) {
			for node := range ram(d).Pages {
				ram(d).Pages[node]--
				ram(d).Pages[3]++
				break
			}
		}, []string{"failed memory-nodes | vm00 | "}},
		{"more on one node than planned", func(c *planCase, d *Domain) {
			var to int
			for node := range ram(d).Pages {
				to = node
			}
			for node := range ram(d).Pages {
				if node != to {
					ram(d).Pages[to] += ram(d).Pages[node]
					ram(d).Pages[node] = 0
				}
			}
			ram(d).Pages[to]++
		}, []string{"failed memory-nodes | vm00 | "}},
		{"hugepages are not all there", func(c *planCase, d *Domain) {
			for node := range ram(d).Pages {
				ram(d).Pages[node] = 1
			}
		}, []string{"failed memory-nodes | vm00 | "}},
		{"pages of another size", func(c *planCase, d *Domain) {
			for i := 2; i < len(d.Process.Mappings); i++ {
				m := &d.Process.Mappings[i]
				for node := range m.Pages {
					m.Pages[node] *= 512
				}
				m.PageBytes = 2 << 20
			}
		}, []string{"failed memory-pages | vm00 | 32 GiB in pages of 2 MiB"}},
		{"no hugepages at all", func(c *planCase, d *Domain) {
			for i := 2; i < len(d.Process.Mappings); i++ {
				m := &d.Process.Mappings[i]
				for node := range m.Pages {
					m.Pages[node] <<= 18
				}
				m.PageBytes, m.Huge = 4096, false
			}
		}, []string{"failed memory-pages | vm00 | 32 GiB in pages of 4 KiB"}},
		{"memory cannot be read", func(c *planCase, d *Domain) {
			d.Process.Mappings, d.Process.Unread = nil, []string{"/proc/5000/numa_maps: permission denied"}
		}, []string{"unknown memory-nodes | vm00 | no memory as large as the guest's is to be seen: " +
			"/proc/5000/numa_maps: permission denied", "unknown memory-pages"}},
		{"a device was unplugged", func(c *planCase, d *Domain) {
			d.Process.VFIO = d.Process.VFIO[1:]
		}, []string{"failed vfio-held | vm00 | /dev/vfio/"}},
		{"it holds one of somebody else", func(c *planCase, d *Domain) {
			d.Process.VFIO = append(d.Process.VFIO, "/dev/vfio/999999")
		}, []string{"failed vfio-held | vm00 | "}},
		{"it holds none", func(c *planCase, d *Domain) {
			d.Process.VFIO = []string{}
		}, []string{"failed vfio-held | vm00 | no device"}},
		{"it holds them by iommufd", func(c *planCase, d *Domain) {
			d.Process.VFIO = nil
			for i := range c.p.Nodes[0].Devices {
				d.Process.VFIO = append(d.Process.VFIO, fmt.Sprintf("/dev/vfio/devices/vfio%d", i))
			}
		}, nil},
		{"it holds one too few by iommufd", func(c *planCase, d *Domain) {
			d.Process.VFIO = []string{"/dev/vfio/devices/vfio0"}
		}, []string{"failed vfio-held | vm00 | /dev/vfio/devices/vfio0"}},
		{"its open files cannot be read", func(c *planCase, d *Domain) {
			d.Process.VFIO = nil
		}, []string{"unknown vfio-held | vm00 | its open files cannot be read"}},
		{"the group of a device is not known", func(c *planCase, d *Domain) {
			a, _ := topology.ParsePCIAddr(c.p.Nodes[0].Devices[0])
			find(c.h, a).IOMMUGroup = nil
		}, []string{"unknown vfio-held | vm00 | the host does not tell the IOMMU group of 0000:06:00.0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := epyc(t)
			domains := started(t, c.p, c.h)
			tt.change(c, &domains[0])
			got := Domains(c.p, c.h, domains)
			wellFormed(t, got)
			matches(t, notOK(got), tt.want)
		})
	}
}

// Ordinary pages exist only if touched.
func TestMemoryThatWasNeverTouchedIsNotHeldAgainstAGuest(t *testing.T) {
	c := epyc(t)
	n := &c.p.Nodes[0]
	for i := range n.Memory {
		n.Memory[i].PageBytes = 0
	}
	domains := started(t, c.p, c.h)
	for i := range domains[0].Process.Mappings {
		clear(domains[0].Process.Mappings[i].Pages)
	}
	domains[0].Process.Mappings[2].Pages[n.Memory[0].NUMANode] = 3 << 8
	got := Domains(c.p, c.h, domains)
	matches(t, notOK(got), nil)
	i := slices.IndexFunc(got, func(f finding.Finding) bool { return f.ID == IDMemoryNodes })
	if want := fmt.Sprintf("3 MiB on node %d: 3 MiB of 32 GiB touched so far",
		n.Memory[0].NUMANode); got[i].Have != want {
		t.Errorf("have %q, want %q", got[i].Have, want)
	}
	if slices.ContainsFunc(got, func(f finding.Finding) bool { return f.ID == IDMemoryPages && f.Subject == "vm00" }) {
		t.Error("the size of pages is checked, and the plan has no hugepages")
	}
}

// The mappings are of real QEMUs; see facts/testdata/README.md.
func TestTheMemoryOfARealGuestIsFound(t *testing.T) {
	const size = 64 << 20
	for name, file := range map[string]string{"qemu-huge": `/memfd:memory-backend-memfd\040(deleted)`, "qemu-plain": "",
		"qemu-shared": `/memfd:memory-backend-memfd\040(deleted)`} {
		t.Run(name, func(t *testing.T) {
			read := func(suffix string) string {
				b, err := os.ReadFile(filepath.Join("../../../machine/facts/testdata", name+suffix))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			all, err := facts.ParseNUMAMaps(read(".numa_maps"))
			if err != nil {
				t.Fatal(err)
			}
			if err := facts.AddSizes(all, read(".maps")); err != nil {
				t.Fatal(err)
			}
			for _, cells := range [][]plan.Cell{{{Bytes: size}}, nil} {
				got, ok := guestMemory(all, &plan.Node{MemoryBytes: size, Cells: cells})
				if !ok || len(got) != 1 || got[0].Bytes != size || got[0].File != file {
					t.Errorf("got %+v, %v", got, ok)
				}
			}
			if got, ok := guestMemory(all, &plan.Node{MemoryBytes: size - 4096}); !ok || len(got) != 1 {
				t.Errorf("of another size: %d mappings, %v", len(got), ok)
			}
			if _, ok := guestMemory(all, &plan.Node{MemoryBytes: 1 << 50}); ok {
				t.Error("a petabyte was found")
			}
		})
	}
}
