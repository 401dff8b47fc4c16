package inspect

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
)

// readIRQs reads the interrupts that disturb isolated CPUs, and RDMA NICs' interrupts: a large machine has thousands,
// each with several files.
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

// irqCPUs returns the effective set (since 4.15), or else the requested one.
func (r *reader) irqCPUs(number int) *topology.CPUSet {
	return r.cpus("proc/irq/"+strconv.Itoa(number), "effective_affinity_list", "smp_affinity_list", "smp_affinity")
}

// unionKnown takes sets that may be unknown.
func unionKnown(a, b *topology.CPUSet) topology.CPUSet {
	var all topology.CPUSet
	for _, set := range []*topology.CPUSet{a, b} {
		if set != nil {
			all = all.Union(*set)
		}
	}
	return all
}

// msiIRQs leaves out a legacy interrupt, which is shared with other devices and which RDMA NICs do not use.
func (r *reader) msiIRQs(a topology.PCIAddr) []int {
	return r.numbered("sys/bus/pci/devices/"+a.String()+"/msi_irqs", "")
}

// describeIRQs adds counts, and names of handlers unless a PCI function owns the interrupt.
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
