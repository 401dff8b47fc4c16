package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/topology"
)

// readIRQs reads the interrupts that matter: those that disturb isolated CPUs, and those of RDMA
// NICs. A large machine has thousands, and each is some files: where neither is there, none is
// read.
//
// Source: Documentation/core-api/irq/irq-affinity.rst, Documentation/ABI/testing/sysfs-bus-pci (msi_irqs).
func (r *reader) readIRQs() {
	isolated := unionKnown(r.h.CPUs.Isolated, r.h.CPUs.NoHzFull)
	owner := map[int]string{} // by interrupt: the PCI function it is of
	for i := range r.h.NICs {
		if n := &r.h.NICs[i]; n.Address != nil && len(n.RDMA) > 0 {
			for _, irq := range r.msiIRQs(*n.Address) {
				owner[irq] = n.Address.String()
			}
		}
	}
	numbers := slices.Sorted(maps.Keys(owner))
	ofNICs := len(numbers)
	if !isolated.IsEmpty() {
		for i := range r.h.PCI {
			for _, irq := range r.msiIRQs(r.h.PCI[i].Address) {
				if owner[irq] == "" {
					owner[irq] = r.h.PCI[i].Address.String()
				}
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

// unionKnown returns the members of both sets, those of them that are known.
func unionKnown(a, b *topology.CPUSet) topology.CPUSet {
	var out topology.CPUSet
	for _, s := range []*topology.CPUSet{a, b} {
		if s != nil {
			out = out.Union(*s)
		}
	}
	return out
}

// msiIRQs returns the numbers of a function's message-signalled interrupts. The only one of a
// function without them is shared with others, and not one of a NIC for RDMA.
func (r *reader) msiIRQs(a topology.PCIAddr) []int {
	return r.numbered("sys/bus/pci/devices/"+a.String()+"/msi_irqs", "")
}

// irqCPUs returns the CPUs that serve an interrupt, nil where it cannot be told: per-CPU interrupts
// have no such files. The effective set is what the hardware does (4.15); it is empty while nobody
// uses the interrupt. The set asked for is what older kernels show.
func (r *reader) irqCPUs(number int) *topology.CPUSet {
	dir := "proc/irq/" + strconv.Itoa(number) + "/"
	if set := r.list(dir + "effective_affinity_list"); set != nil {
		return set
	}
	if set := r.list(dir + "smp_affinity_list"); set != nil {
		return set
	}
	return r.mask(dir + "smp_affinity")
}

// describeIRQs adds how often each was served, and by its actions what it is for, unless a PCI function owns it.
func (r *reader) describeIRQs(irqs []topology.IRQ) {
	const p = "proc/interrupts"
	text, ok := r.text(p)
	if !ok {
		return
	}
	lines, err := parseInterrupts(text)
	if err != nil {
		r.unread(p, err.Error())
	}
	for i := range irqs {
		line, ok := lines[irqs[i].Number]
		if !ok {
			continue
		}
		irqs[i].Count = new(line.count)
		if irqs[i].Device == "" {
			irqs[i].Device = line.actions
		}
	}
}

// An interruptLine is a line of /proc/interrupts.
type interruptLine struct {
	count   uint64 // on all CPUs
	actions string // names of its handlers: "nvme0q1", "i801_smbus, ehci_hcd:usb1"
}

// parseInterrupts parses the numbered lines of /proc/interrupts. A line has a count for each CPU of
// the heading, then the interrupt chip, its own number and trigger in one or two columns, and the
// handlers:
//
//	          CPU0       CPU1
//	124:         12          3  IR-PCI-MSI 524288-edge      eth0-TxRx-0
//	126:          0          7  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0
//	  9:          0          4     GICv3  25 Level     vgic
//
// What is wrong with a line leaves it out, and is the error; the others are still good.
func parseInterrupts(text string) (map[int]interruptLine, error) {
	heading, rest, _ := strings.Cut(text, "\n")
	columns := strings.Fields(heading)
	for _, c := range columns {
		if !strings.HasPrefix(c, "CPU") {
			return nil, fmt.Errorf("first line %q does not name CPUs", where.Clip(heading))
		}
	}
	lines := map[int]interruptLine{}
	var bad error
	for line := range strings.Lines(rest) {
		name, after, ok := strings.Cut(line, ":")
		number, err := strconv.Atoi(strings.TrimSpace(name))
		if !ok || err != nil || number < 0 {
			continue // NMI, LOC, ...: of the CPU itself
		}
		fields := strings.Fields(after)
		if len(fields) < len(columns) {
			bad = fmt.Errorf("interrupt %d has %d counts for %d CPUs", number, len(fields), len(columns))
			continue
		}
		count, err := sum(fields[:len(columns)])
		if err != nil {
			bad = fmt.Errorf("interrupt %d: %w", number, err)
			continue
		}
		lines[number] = interruptLine{count, actions(fields[len(columns):])}
	}
	return lines, bad
}

// sum adds the counts of all CPUs. They are of 32 or 64 bits and wrap around, as the sum may.
func sum(counts []string) (uint64, error) {
	var total uint64
	for _, c := range counts {
		v, err := strconv.ParseUint(c, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a count", where.Clip(c))
		}
		total += v
	}
	return total, nil
}

// actions returns the handlers' names of what follows the counts: all after the column with the
// trigger, which is the last that says "edge" or "level" within the first four.
func actions(fields []string) string {
	at := -1
	for i, f := range fields[:min(len(fields), 4)] {
		lower := strings.ToLower(f)
		if strings.Contains(lower, "edge") || strings.Contains(lower, "level") || strings.Contains(lower, "fasteoi") {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	return strings.Join(fields[at+1:], " ")
}
