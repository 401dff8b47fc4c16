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

// Running is what runs on a machine at one moment, as far as it can disturb others. A nil part is
// one that could not be read; Unread says why.
type Running struct {
	Threads    []Thread    // all of the machine, by ID
	Interrupts []Interrupt // those with a number, in its order
	Cgroups    []Cgroup    // those of version 2 that have the cpuset controller, by path
	Workqueues *topology.CPUSet
	HugeMounts []HugeMount
	Unread     []string // "PATH: why"
}

// An Interrupt is an interrupt with a number.
type Interrupt struct {
	Number int
	CPUs   topology.CPUSet // that serve it; empty while nobody uses it, or where it is not known
	Counts map[int]uint64  // how often each CPU served it since boot; CPUs that never did are left out
	Action string          // what it is for, in the words of its handlers: "mlx5_comp0@pci:0000:41:00.0"
}

// A Cgroup is a control group of version 2.
type Cgroup struct {
	Path string          // below the root of the hierarchy: "system.slice"
	CPUs topology.CPUSet // those that it may use: cpuset.cpus.effective
	// cpuset.cpus.partition: "member", "root", "isolated", or with the reason "root invalid (...)"
	Partition string
	Populated bool // there are processes in it, or below it
}

// A HugeMount is a hugetlbfs.
type HugeMount struct {
	Path      string
	PageBytes uint64 // 0: not known
}

// ParseInterrupts reads the numbered lines of /proc/interrupts, in rising order. A line has a count for each CPU of the
// heading, then the interrupt chip, its own number and trigger in one or two columns, and the handlers:
//
//	           CPU0       CPU1
//	124:         12          3  IR-PCI-MSI 524288-edge      eth0-TxRx-0
//	126:          0          7  IR-PCI-MSIX-0000:3b:00.0    1-edge      mlx5_comp0@pci:0000:3b:00.0
//	  9:          0          4     GICv3  25 Level     vgic
//	LOC:      51234      48117  Local timer interrupts
//
// Lines with a name are interrupts of the CPU itself, and are passed over. What is wrong with a line leaves it out and
// is the error; the others are still good.
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

// served reads the counts of the CPUs that served an interrupt at all.
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

// Count returns how often all CPUs served the interrupt. Their counts have 32 or 64 bits and wrap around, as the sum
// may.
func (q *Interrupt) Count() uint64 {
	var sum uint64
	for _, n := range q.Counts {
		sum += n
	}
	return sum
}

// action returns the handlers of what follows the counts: all behind the column with the trigger,
// which is the last of the first four that says so.
func action(fields []string) string {
	// The chip may be two words, and its number and the trigger are one column ("524288-edge") or two ("25 Level"): so
	// the trigger is in the first four, and further right the same words may be a part of a device's name.
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

// ParseHugeMounts reads the hugetlbfs among the lines of /proc/mounts: "hugetlbfs /dev/hugepages
// hugetlbfs rw,relatime,pagesize=2M 0 0".
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
