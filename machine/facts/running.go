package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
)

// Running is activity that can disturb other work. A nil field could not be read; Unread says why.
type Running struct {
	Threads    []Thread
	Interrupts []Interrupt // in numeric order
	Cgroups    []Cgroup    // version 2 with the cpuset controller, by path
	Workqueues *topology.CPUSet
	HugeMounts []HugeMount
	Unread     []string // "PATH: why"
}

// An Interrupt has a number.
type Interrupt struct {
	Number int
	CPUs   topology.CPUSet // empty if unused or unknown
	Counts map[int]uint64  // since boot, by CPU, without zeros
	Action string          // handlers: "mlx5_comp0@pci:0000:41:00.0"
}

// A Cgroup is of version 2.
type Cgroup struct {
	Path string          // below the root: "system.slice"
	CPUs topology.CPUSet // that it may use: cpuset.cpus.effective
	// Partition is "member", "root", "isolated", or an error, "root invalid (...)".
	Partition string
	Populated bool // it or a descendant has processes
}

// A HugeMount is of hugetlbfs.
type HugeMount struct {
	Path      string
	PageBytes uint64 // 0 if unknown
}

// ParseInterrupts parses the numbered lines of /proc/interrupts and sorts them by number. A line has a count for each
// CPU, then the interrupt chip, its own number and trigger in one or two columns, and the handlers:
//
//	           CPU0       CPU1
//	124:         12          3  IR-PCI-MSI 524288-edge      eth0-TxRx-0
//	126:          0          7  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0
//	  9:          0          4     GICv3  25 Level     vgic
//	LOC:      51234      48117  Local timer interrupts
//
// Named lines are the CPUs' own interrupts. Malformed lines are the error; the other interrupts are still valid.
func ParseInterrupts(text string) ([]Interrupt, error) {
	heading, rest, _ := strings.Cut(text, "\n")
	var columns []int
	for _, c := range strings.Fields(heading) {
		digits, ok := strings.CutPrefix(c, "CPU")
		cpu, err := strconv.Atoi(digits)
		if !ok || err != nil || cpu < 0 || cpu >= topology.MaxCPUs {
			return nil, fmt.Errorf("first line %q does not name CPUs", clip(heading))
		}
		columns = append(columns, cpu)
	}
	all := []Interrupt{}
	var bad error
	for line := range strings.Lines(rest) {
		name, after, ok := strings.Cut(line, ":")
		number, err := strconv.Atoi(strings.TrimSpace(name))
		if !ok || err != nil || number < 0 {
			continue
		}
		fields := strings.Fields(after)
		if len(fields) < len(columns) {
			bad = fmt.Errorf("interrupt %d has %d counts for %d CPUs", number, len(fields), len(columns))
			continue
		}
		counts, err := served(columns, fields)
		if err != nil {
			bad = fmt.Errorf("interrupt %d: %w", number, err)
			continue
		}
		all = append(all, Interrupt{Number: number, Counts: counts, Action: action(fields[len(columns):])})
	}
	slices.SortFunc(all, func(a, b Interrupt) int { return cmp.Compare(a.Number, b.Number) })
	return all, bad
}

func served(cpus []int, fields []string) (map[int]uint64, error) {
	counts := map[int]uint64{}
	for i, cpu := range cpus {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a count", clip(fields[i]))
		}
		if n > 0 {
			counts[cpu] = n
		}
	}
	return counts, nil
}

// Count returns the total. The kernel's counts have 32 or 64 bits and wrap around, and so may the sum.
func (q *Interrupt) Count() uint64 {
	var sum uint64
	for _, n := range q.Counts {
		sum += n
	}
	return sum
}

// action returns all fields after the trigger.
func action(fields []string) string {
	// The chip may be two words, and its number and trigger one column ("524288-edge") or two ("25 Level"). Further
	// right the same words may be part of a device's name.
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

// ParseHugeMounts parses "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0" of /proc/mounts.
//
// Source: proc_pid_mounts(5); hugetlbfs_show_options in fs/hugetlbfs/inode.c.
func ParseHugeMounts(text string) []HugeMount {
	all := []HugeMount{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "hugetlbfs" {
			continue
		}
		m := HugeMount{Path: f[1]}
		for option := range strings.SplitSeq(f[3], ",") {
			if size, ok := strings.CutPrefix(option, "pagesize="); ok {
				m.PageBytes = cmdline.Size(size)
			}
		}
		all = append(all, m)
	}
	return all
}
