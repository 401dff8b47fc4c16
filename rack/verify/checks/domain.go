package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// A Domain is a node's virtual machine: its threads according to libvirt, and its state according to the kernel.
type Domain struct {
	Node  string // name in the plan
	Name  string // name in messages: libvirt's "LAB.NODE"
	State string // libvirt's word; only a "running" domain can be examined
	PID   int    // of QEMU, or 0
	// VCPUs are in order, from QMP's query-cpus-fast.
	VCPUs []int
	// IOThreads are from query-iothreads.
	IOThreads []int
	// Definition is live, with pins, as inspect reads it. If nil, it is not checked.
	Definition *topology.Tenant
	// Process is the kernel's view (inspect.ReadProcess), nil if unreadable.
	Process *facts.Process
}

// Domains compares virtual machines with the plan. h supplies the IOMMU groups of devices and may be nil.
func Domains(p *plan.Plan, h *topology.Host, domains []Domain) []finding.Finding {
	var out []finding.Finding
	for i := range p.Nodes {
		n := &p.Nodes[i]
		d := lists.Ref(domains, func(d *Domain) bool { return d.Node == n.Name })
		if d == nil {
			out = append(out, finding.Finding{ID: IDDomain, Subject: n.Name, Status: finding.Failed,
				Have: "no such domain", Want: running, Evidence: "virsh list --all",
				Fix: "rackless up LAB.yaml, or virsh define and start of domains/" + n.Name + ".xml of the plan"})
			continue
		}
		c := domainCheck{host: newHostCheck(p, h, nil, nil), n: n, d: d, sheet: sheet{subject: n.Name}}
		out = append(out, c.findings()...)
	}
	return coded(out)
}

// A QEMU belongs to user libvirt-qemu, and /proc shows its threads, mappings and open files only to root.
const fixRoot = "run rackless verify as root"

type domainCheck struct {
	host *hostCheck
	n    *plan.Node
	d    *Domain
	sheet
}

func (c *domainCheck) findings() []finding.Finding {
	f := finding.Finding{ID: IDDomain, Have: cmp.Or(c.d.State, "state not known"), Want: running,
		Evidence: "virsh domstate " + c.d.Name, Fix: "virsh start " + c.d.Name + " says why not; QEMU's own words " +
			"are in /var/log/libvirt/qemu/" + c.d.Name + ".log"}
	switch {
	case c.d.State != running || c.d.PID == 0:
		c.judge(false, f)
		return c.out
	case c.d.Process == nil:
		c.unknown(f, running+", and its process cannot be looked at", fixRoot)
		return c.out
	}
	f.Have += fmt.Sprintf(", process %d", c.d.PID)
	c.judge(true, f)
	// A study may leave a node unpinned on purpose.
	if !c.n.Unpinned {
		c.vcpus()
	}
	c.emulator()
	c.iothreads()
	c.pins()
	c.memory()
	c.vfio()
	return c.out
}

func (c *domainCheck) unread(f finding.Finding, why string) {
	if len(c.d.Process.Unread) > 0 {
		why += ": " + few(c.d.Process.Unread, 2)
	}
	c.unknown(f, why, fixRoot)
}

func (c *domainCheck) thread(tid int) *facts.Thread {
	return lists.Ref(c.d.Process.Threads, func(t *facts.Thread) bool { return t.TID == tid })
}

func (c *domainCheck) status() string { return fmt.Sprintf("/proc/%d/task/*/status", c.d.PID) }

// vcpus asks the kernel, because libvirt has only the requested CPUs. It offers a fix by vcpupin only if that repairs
// every fault: missing or extra virtual CPUs need a restart.
func (c *domainCheck) vcpus() {
	n := len(c.n.VCPUs)
	f := finding.Finding{ID: IDVCPUAffinity, Want: fmt.Sprintf("%s, each on its CPU of %s",
		words.Count(n, "virtual CPU"), topology.ValidCPUs(c.n.VCPUs)), Evidence: c.status()}
	if len(c.d.VCPUs) == 0 {
		c.unread(f, "which threads are virtual CPUs is not known")
		return
	}
	var wrong, fixes []string
	for i := range max(n, len(c.d.VCPUs)) {
		switch {
		case i >= len(c.d.VCPUs):
			wrong = append(wrong, fmt.Sprintf("virtual CPU %d is not there", i))
			continue
		case i >= n:
			wrong = append(wrong, fmt.Sprintf("virtual CPU %d is not in the plan", i))
			continue
		}
		t := c.thread(c.d.VCPUs[i])
		if t == nil {
			wrong = append(wrong, fmt.Sprintf("thread %d of virtual CPU %d is not there", c.d.VCPUs[i], i))
			continue
		}
		if want := topology.ValidCPUs(c.n.VCPUs[i : i+1]); !t.Allowed.Equal(want) {
			wrong = append(wrong, fmt.Sprintf("virtual CPU %d may use %s, not just %s", i, list(t.Allowed), want))
			fixes = append(fixes, fmt.Sprintf("virsh vcpupin %s %d %s --live --config", c.d.Name, i, want))
		}
	}
	// wrong can be longer than the plan.
	f.Have = fmt.Sprintf("%d of %d on their CPU", n-min(n, len(wrong)), n)
	if len(wrong) > 0 {
		f.Have += ": " + few(wrong, 4)
		f.Fix = "define the domain of the plan again, shut the node down and start it"
		if len(fixes) == len(wrong) {
			f.Fix = strings.Join(fixes[:min(len(fixes), 3)], "; ")
			if len(fixes) > 3 {
				f.Fix += "; and so on"
			}
		}
	}
	c.judge(len(wrong) == 0, f)
}

func (c *domainCheck) pinned(f finding.Finding, threads []*facts.Thread, want topology.CPUSet) {
	var wrong []string
	for _, t := range threads {
		// QEMU may choose fewer: a thread stays on each NUMA node with memory.
		if t.Allowed.IsEmpty() || !t.Allowed.IsSubsetOf(want) {
			wrong = append(wrong, fmt.Sprintf("%d %s may use %s", t.TID, words.Printable(t.Name), list(t.Allowed)))
		}
	}
	f.Have = fmt.Sprintf("%s on %s", words.Count(len(threads), "thread"), list(want))
	if len(wrong) > 0 {
		f.Have = few(wrong, 4)
	}
	c.judge(len(wrong) == 0, f)
}

func (c *domainCheck) emulator() {
	want := c.emulatorPin()
	f := finding.Finding{ID: IDEmulatorAffinity, Want: list(want), Evidence: c.status(),
		Fix: "virsh emulatorpin " + c.d.Name + " " + want.String() + " --live --config"}
	if want.IsEmpty() {
		return
	}
	// Virtual CPUs would count as QEMU's own threads.
	if len(c.d.VCPUs) == 0 || c.d.Process.Threads == nil {
		c.unread(f, "which threads are QEMU's own is not known")
		return
	}
	var threads []*facts.Thread
	for i := range c.d.Process.Threads {
		t := &c.d.Process.Threads[i]
		if !slices.Contains(c.d.VCPUs, t.TID) && !slices.Contains(c.d.IOThreads, t.TID) {
			threads = append(threads, t)
		}
	}
	c.pinned(f, threads, want)
}

// emulatorPin returns the wanted pin. For an unknown host, the housekeeping CPUs near the memory are unknown, so it
// accepts a definition that includes the plan's CPUs.
func (c *domainCheck) emulatorPin() topology.CPUSet {
	if h := c.host.h; h == nil || len(h.NUMANodes) == 0 {
		def := c.d.Definition
		if def != nil && def.EmulatorCPUs != nil && c.n.EmulatorCPUs.IsSubsetOf(*def.EmulatorCPUs) {
			return *def.EmulatorCPUs
		}
	}
	return c.host.p.EmulatorPin(c.n, c.host.h)
}

func (c *domainCheck) iothreads() {
	want := c.n.IOThreadCPUs
	if want.IsEmpty() || len(c.d.IOThreads) == 0 {
		return
	}
	f := finding.Finding{ID: IDIOThreadAffinity, Want: list(want), Evidence: c.status(),
		Fix: "virsh iothreadpin " + c.d.Name + " 1 " + want.String() + " --live --config"}
	var threads []*facts.Thread
	for _, tid := range c.d.IOThreads {
		if t := c.thread(tid); t != nil {
			threads = append(threads, t)
		}
	}
	// A missing thread ended in between, or is of another boot.
	if len(threads) < len(c.d.IOThreads) {
		c.unread(f, "threads of I/O threads are not there")
		return
	}
	c.pinned(f, threads, want)
}

func (c *domainCheck) pins() {
	def := c.d.Definition
	if def == nil {
		return
	}
	f := finding.Finding{ID: IDPins, Have: "those of the plan", Want: "those of the plan",
		Evidence: "virsh dumpxml " + c.d.Name,
		Fix:      "define the domain of the plan again (domains/" + c.n.Name + ".xml), shut the node down and start it"}
	var wrong []string
	differs := func(what string, have *topology.CPUSet, want topology.CPUSet) {
		switch {
		case want.IsEmpty(): // not in the plan
		case have == nil:
			wrong = append(wrong, "no "+what)
		case !have.Equal(want):
			wrong = append(wrong, fmt.Sprintf("%s %s, not %s", what, list(*have), want))
		}
	}
	for i, cpu := range c.n.VCPUs {
		var have *topology.CPUSet
		if pin := lists.Ref(def.Pins, func(p *topology.Pin) bool { return p.VCPU == i }); pin != nil {
			have = &pin.CPUs
		}
		if c.n.Unpinned {
			if have != nil {
				wrong = append(wrong, fmt.Sprintf("vcpupin %d %s, not none", i, list(*have)))
			}
			continue
		}
		differs(fmt.Sprintf("vcpupin %d", i), have, topology.ValidCPUs([]int{cpu}))
	}
	differs("emulatorpin", def.EmulatorCPUs, c.emulatorPin())
	if len(c.d.IOThreads) > 0 {
		differs("iothreadpin", def.IOThreadCPUs, c.n.IOThreadCPUs)
	}
	switch {
	// Unless the mode is strict, the kernel takes pages from elsewhere if a node is full.
	case !c.n.Unbound:
		var nodes []int
		for _, m := range c.n.Memory {
			if m.Bytes > 0 {
				nodes = append(nodes, m.NUMANode)
			}
		}
		differs("numatune nodeset", def.MemoryNodes, topology.ValidCPUs(nodes))
		if def.MemoryNodes != nil && def.MemoryMode != "strict" {
			wrong = append(wrong, fmt.Sprintf("numatune mode %q, not strict", def.MemoryMode))
		}
	case def.MemoryNodes != nil:
		wrong = append(wrong, fmt.Sprintf("numatune nodeset %s, not none", list(*def.MemoryNodes)))
	}
	if len(wrong) > 0 {
		f.Have = few(wrong, 4)
	}
	c.judge(len(wrong) == 0, f)
}

// guestMemory returns one mapping of the exact size, or one for each cell. Otherwise it takes the largest up to the
// whole; ok is false if they do not reach it.
func guestMemory(all []facts.Mapping, n *plan.Node) (ram []facts.Mapping, ok bool) {
	var candidates []facts.Mapping
	for _, m := range all {
		// An ordinary file is a library or a disk.
		memory := m.File == "" || m.Huge || strings.HasPrefix(m.File, "/memfd:") ||
			strings.HasPrefix(m.File, "/dev/zero") || strings.HasPrefix(m.File, "/dev/shm/")
		if memory && m.Bytes > 0 {
			candidates = append(candidates, m)
		}
	}
	// Of equally large ones, hugepages come first, then mappings with a policy, which QEMU sets only on guest memory,
	// then mappings in use.
	first := func(is bool) int {
		if is {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(candidates, func(a, b facts.Mapping) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), first(a.Huge)-first(b.Huge),
			first(a.Policy != "default")-first(b.Policy != "default"), cmp.Compare(b.Resident(), a.Resident()))
	})
	cells := []uint64{}
	for _, cell := range n.Cells {
		if cell.Bytes > 0 {
			cells = append(cells, cell.Bytes)
		}
	}
	for _, want := range [][]uint64{{n.MemoryBytes}, cells} {
		if ram := exactly(candidates, want); ram != nil {
			return ram, true
		}
	}
	var sum uint64
	for _, m := range candidates {
		if sum >= n.MemoryBytes {
			break
		}
		ram, sum = append(ram, m), sum+m.Bytes
	}
	return ram, sum >= n.MemoryBytes
}

func exactly(candidates []facts.Mapping, sizes []uint64) []facts.Mapping {
	var out []facts.Mapping
	used := map[uint64]bool{} // by address
	for _, size := range sizes {
		i := slices.IndexFunc(candidates, func(m facts.Mapping) bool { return m.Bytes == size && !used[m.Start] })
		if i < 0 {
			return nil
		}
		used[candidates[i].Start] = true
		out = append(out, candidates[i])
	}
	return out
}

func (c *domainCheck) memory() {
	evidence := fmt.Sprintf("/proc/%d/numa_maps", c.d.PID)
	want := map[int]uint64{} // bytes by NUMA node
	var page uint64
	for _, m := range c.n.Memory {
		want[m.NUMANode] += m.Bytes
		page = max(page, m.PageBytes)
	}
	nodes := finding.Finding{ID: IDMemoryNodes, Want: nodesText(want), Evidence: evidence,
		Fix: "shut the node down and start it once its NUMA nodes have free memory; virsh numatune " + c.d.Name +
			" has to say strict"}
	pages := finding.Finding{ID: IDMemoryPages, Want: "pages of " + words.Exact(page), Evidence: evidence,
		Fix: "define the domain of the plan again (memoryBacking), shut the node down and start it"}
	ram, ok := guestMemory(c.d.Process.Mappings, c.n)
	// QEMU's own buffers are far smaller than any guest.
	if !ok {
		c.unread(nodes, "no memory as large as the guest's is to be seen")
		if page > 0 {
			c.unread(pages, "no memory as large as the guest's is to be seen")
		}
		return
	}
	have, bySize := map[int]uint64{}, map[uint64]uint64{}
	var total uint64
	// numa_maps counts pages, with hugepages in their own size.
	for i := range ram {
		for node, n := range ram[i].Pages {
			have[node] += n * ram[i].PageBytes
		}
		bySize[ram[i].PageBytes] += ram[i].Bytes
		total += ram[i].Resident()
	}
	var wrong []string
	for _, node := range lists.Keys(have) {
		// Less than planned is not a fault yet: untouched pages are nowhere. Pages on other nodes show there.
		if have[node] > want[node] {
			wrong = append(wrong, fmt.Sprintf("%s on NUMA node %d", amount(have[node]), node))
		}
	}
	nodes.Have = nodesText(have)
	whole := total >= c.n.MemoryBytes
	if c.n.Unbound {
		wrong, nodes.Want = nil, "anywhere"
	}
	switch {
	case len(wrong) > 0:
		nodes.Have += ": too much, " + few(wrong, 4)
	case !whole:
		nodes.Have += fmt.Sprintf(": %s of %s", amount(total), amount(c.n.MemoryBytes))
		if page == 0 {
			nodes.Have += " touched so far"
		} else {
			nodes.Have += " only"
		}
	}
	// Hugepages are all allocated before the guest starts, other pages on first touch.
	c.judge(len(wrong) == 0 && (whole || page == 0), nodes)

	if page == 0 {
		return
	}
	var sizes []string
	for _, size := range lists.Keys(bySize) {
		name := "pages of unknown size"
		if size > 0 {
			name = "pages of " + words.Exact(size)
		}
		sizes = append(sizes, fmt.Sprintf("%s in %s", amount(bySize[size]), name))
	}
	pages.Have = strings.Join(sizes, ", ")
	c.judge(len(bySize) == 1 && bySize[page] > 0, pages)
}

func nodesText(bytes map[int]uint64) string {
	var parts []string
	for _, node := range lists.Keys(bytes) {
		if bytes[node] > 0 {
			parts = append(parts, fmt.Sprintf("%s on node %d", amount(bytes[node]), node))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func amount(bytes uint64) string {
	if bytes >= 1<<30 && bytes%(1<<30) == 0 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%.4g MiB", float64(bytes)/(1<<20))
}

func (c *domainCheck) vfio() {
	f := finding.Finding{ID: IDVFIOHeld, Evidence: fmt.Sprintf("/proc/%d/fd", c.d.PID),
		Fix: "define the domain of the plan again, shut the node down and start it; virsh dumpxml " + c.d.Name +
			" shows the hostdevs in force"}
	groups := map[string]bool{} // device files
	for _, id := range c.n.Devices {
		a, err := c.host.address(id)
		d := c.host.tree.Device(a)
		if err != nil || d == nil || d.IOMMUGroup == nil {
			f.Want = "the group of " + id
			c.unread(f, "the host does not tell the IOMMU group of "+id)
			return
		}
		groups[fmt.Sprintf("/dev/vfio/%d", *d.IOMMUGroup)] = true
	}
	// QEMU opens a group once, for any number of functions.
	want := lists.Keys(groups)
	f.Want = cmp.Or(few(want, 6), "no device")
	if c.d.Process.VFIO == nil {
		c.unread(f, "its open files cannot be read")
		return
	}
	var cdevs, held []string
	for _, file := range c.d.Process.VFIO {
		if strings.HasPrefix(file, "/dev/vfio/devices/") {
			cdevs = append(cdevs, file)
		} else {
			held = append(held, file)
		}
	}
	f.Have = cmp.Or(few(c.d.Process.VFIO, 6), "no device")
	if len(held) == 0 && len(cdevs) > 0 {
		// These names do not show their functions.
		f.Want = words.Count(len(c.n.Devices), "device") + " of /dev/vfio/devices"
		c.judge(len(cdevs) == len(c.n.Devices), f)
		return
	}
	slices.Sort(held)
	c.judge(slices.Equal(held, want), f)
}
