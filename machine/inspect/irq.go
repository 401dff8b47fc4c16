package inspect

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// readIRQs reads the interrupts that disturb isolated CPUs, and the interrupts of RDMA NICs. It reads no others,
// because a large machine has thousands, each with several files.
//
// Source: Documentation/core-api/irq/irq-affinity.rst, Documentation/ABI/testing/sysfs-bus-pci (msi_irqs).
func (r *reader) readIRQs() {
	isolated := unionKnown(r.h.CPUs.Isolated, r.h.CPUs.NoHzFull)
	owner := map[int]string{} // PCI functions by interrupt
	for i := range r.h.NICs {
		if n := &r.h.NICs[i]; n.Address != nil && len(n.RDMA) > 0 {
			for _, irq := range r.msiIRQs(*n.Address) {
				owner[irq] = n.Address.String()
			}
		}
	}
	numbers := lists.Keys(owner)
	ofNICs := len(numbers)
	if !isolated.IsEmpty() {
		for i := range r.h.PCI {
			for _, irq := range r.msiIRQs(r.h.PCI[i].Address) {
				owner[irq] = cmp.Or(owner[irq], r.h.PCI[i].Address.String())
			}
		}
		for _, irq := range r.numbered("proc/irq", "") {
			if !slices.Contains(numbers[:ofNICs], irq) {
				numbers = append(numbers, irq)
			}
		}
	}
	var kept []topology.IRQ
	for i, number := range numbers {
		cpus := r.irqCPUs(number)
		if cpus == nil || cpus.IsEmpty() || i >= ofNICs && !cpus.Overlaps(isolated) {
			continue
		}
		kept = append(kept, topology.IRQ{Number: number, CPUs: *cpus, Device: owner[number]})
	}
	if len(kept) > 0 {
		r.describeIRQs(kept)
	}
	r.h.IRQs = kept
}

// irqCPUs returns the CPUs that serve an interrupt: the effective set of the hardware (since 4.15), or else the
// requested set.
func (r *reader) irqCPUs(number int) *topology.CPUSet {
	return r.cpus("proc/irq/"+strconv.Itoa(number), "effective_affinity_list", "smp_affinity_list", "smp_affinity")
}

// unionKnown returns the union of two sets, either of which may be unknown.
func unionKnown(a, b *topology.CPUSet) topology.CPUSet {
	var all topology.CPUSet
	for _, set := range []*topology.CPUSet{a, b} {
		if set != nil {
			all = all.Union(*set)
		}
	}
	return all
}

// msiIRQs returns the numbers of a function's message-signalled interrupts. A legacy interrupt is shared with other
// devices, and RDMA NICs do not use one.
func (r *reader) msiIRQs(a topology.PCIAddr) []int {
	return r.numbered("sys/bus/pci/devices/"+a.String()+"/msi_irqs", "")
}

// describeIRQs adds the count of each interrupt, and the names of its handlers unless a PCI function owns it.
func (r *reader) describeIRQs(irqs []topology.IRQ) {
	const p = "proc/interrupts"
	text, ok := r.text(p)
	if !ok {
		return
	}
	counted, err := facts.ParseInterrupts(text)
	if err != nil {
		r.unread(p, err.Error())
	}
	for i := range irqs {
		at, ok := slices.BinarySearchFunc(counted, irqs[i].Number, func(q facts.Interrupt, number int) int {
			return cmp.Compare(q.Number, number)
		})
		if ok {
			irqs[i].Count = new(counted[at].Count())
			irqs[i].Device = cmp.Or(irqs[i].Device, counted[at].Action)
		}
	}
}
