package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/topology"
)

// A Process is a snapshot. A nil field could not be read; Unread says why.
type Process struct {
	PID      int
	Threads  []Thread  // by ID
	Mappings []Mapping // by address
	// VFIO lists the open files below /dev/vfio, sorted: groups ("/dev/vfio/12") and devices
	// ("/dev/vfio/devices/vfio0").
	VFIO   []string
	Unread []string // "PATH: why"
}

// A Thread is a snapshot.
type Thread struct {
	PID, TID int
	Name     string // at most 15 bytes; the thread may choose it
	Kernel   bool   // a kernel thread
	Fixed    bool   // its CPUs cannot be changed, as with bound kernel threads
	Allowed  topology.CPUSet
	LastCPU  int // current or most recent
}

// Source: include/linux/sched.h.
const (
	flagKernelThread  = 0x00200000 // PF_KTHREAD
	flagNoSetAffinity = 0x04000000 // PF_NO_SETAFFINITY
)

// Counted from 0 after the name; proc(5) counts from 1, and the name is the second.
const (
	statFlags     = 9 - 3
	statProcessor = 39 - 3
)

// ParseThread parses stat and status of /proc/PID/task/TID; see proc_pid_stat(5), proc_pid_status(5).
func ParseThread(stat, status string) (Thread, error) {
	id, name, fields, err := splitStat(stat, statProcessor)
	t := Thread{Name: name}
	if err != nil {
		return t, err
	}
	if t.TID, err = strconv.Atoi(id); err != nil {
		return t, fmt.Errorf("stat of %q: ID of the thread: %w", clip(t.Name), err)
	}
	flags, err := strconv.ParseUint(fields[statFlags], 10, 32)
	if err != nil {
		return t, fmt.Errorf("stat of thread %d: flags: %w", t.TID, err)
	}
	t.Kernel, t.Fixed = flags&flagKernelThread != 0, flags&flagNoSetAffinity != 0
	if t.LastCPU, err = strconv.Atoi(fields[statProcessor]); err != nil {
		return t, fmt.Errorf("stat of thread %d: processor: %w", t.TID, err)
	}
	group, ok := statusValue(status, "Tgid")
	if t.PID, err = strconv.Atoi(group); !ok || err != nil {
		return t, fmt.Errorf("status of thread %d: Tgid %q: want a number", t.TID, clip(group))
	}
	list, ok := statusValue(status, "Cpus_allowed_list")
	if !ok {
		return t, fmt.Errorf("status of thread %d: no Cpus_allowed_list", t.TID)
	}
	if t.Allowed, err = topology.ParseCPUSet(list); err != nil {
		return t, fmt.Errorf("status of thread %d: %w", t.TID, err)
	}
	return t, nil
}

// splitStat requires a field with index last.
func splitStat(stat string, last int) (id, name string, fields []string, err error) {
	// The name may contain brackets and blanks, so the last bracket ends it.
	first, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if first < 0 || end < first {
		return "", "", nil, fmt.Errorf("stat %q: want a name in brackets", clip(stat))
	}
	name, fields = stat[first+1:end], strings.Fields(stat[end+1:])
	if len(fields) <= last {
		err = fmt.Errorf("stat of %q: %d fields behind the name, want at least %d", clip(name), len(fields), last+1)
	}
	return strings.TrimSpace(stat[:first]), name, fields, err
}

func statusValue(status, key string) (string, bool) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, key+":"); ok {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

func clip(s string) string { return words.Clip(s, 80) }

// A Mapping is a part of a process's memory.
type Mapping struct {
	Start  uint64
	Bytes  uint64 // 0 if unknown
	Policy string // "default", "bind:0", "interleave:0,2", "prefer (many):0"
	File   string // with octal escapes; empty for anonymous memory
	Huge   bool   // hugetlbfs
	Anon   bool   // in no file, or private copies
	// Pages counts the resident pages by the host's NUMA node.
	Pages     map[int]uint64
	PageBytes uint64 // in the kernel's count (a transparent huge page is many small pages); 0 if unknown
}

// Resident returns resident bytes.
func (m *Mapping) Resident() uint64 {
	var pages uint64
	for _, n := range m.Pages {
		pages += n
	}
	return pages * m.PageBytes
}

// ParseNUMAMaps parses /proc/PID/numa_maps, in address order:
//
//	7f2c00000000 bind:0 file=/dev/hugepages/vm00/ram huge anon=16 dirty=16 N0=16 kernelpagesize_kB=1048576
//	7f2bf8021000 default
//	7f2c3c000000 prefer (many):0,2 anon=3 dirty=3 N2=3 kernelpagesize_kB=4
//
// Source: numa(7), show_numa_map in fs/proc/task_mmu.c, mpol_to_str in mm/mempolicy.c.
func ParseNUMAMaps(text string) ([]Mapping, error) {
	var all []Mapping
	for line := range strings.Lines(text) {
		m, err := parseNUMAMap(strings.Fields(line))
		if err != nil {
			return nil, fmt.Errorf("numa_maps: %q: %w", clip(strings.TrimSpace(line)), err)
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b Mapping) int { return cmp.Compare(a.Start, b.Start) })
	return all, nil
}

func parseNUMAMap(fields []string) (Mapping, error) {
	m := Mapping{Pages: map[int]uint64{}}
	if len(fields) < 2 {
		return m, fmt.Errorf("want an address and a policy")
	}
	var err error
	if m.Start, err = strconv.ParseUint(fields[0], 16, 64); err != nil {
		return m, fmt.Errorf("address: %w", err)
	}
	m.Policy = fields[1]
	words := fields[2:]
	if len(words) > 0 && strings.HasPrefix(words[0], "(") { // "prefer (many):0"
		m.Policy += " " + words[0]
		words = words[1:]
	}
	for _, word := range words {
		key, value, hasValue := strings.Cut(word, "=")
		node, isNode := nodeWord(key)
		switch {
		case word == "huge":
			m.Huge = true
		case !hasValue: // stack, heap, active
		case key == "file":
			m.File = value
		case key == "anon":
			m.Anon = true
		case key == "kernelpagesize_kB":
			if m.PageBytes, err = strconv.ParseUint(value, 10, 40); err != nil {
				return m, fmt.Errorf("size of its pages: %w", err)
			}
			m.PageBytes <<= 10
		case isNode:
			n, err := strconv.ParseUint(value, 10, 48) // a terabyte takes 28 bits
			if err != nil {
				return m, fmt.Errorf("pages of node %d: %w", node, err)
			}
			m.Pages[node] = n
		}
	}
	return m, nil
}

// nodeWord parses N0 of "N0=16".
func nodeWord(key string) (int, bool) {
	digits, ok := strings.CutPrefix(key, "N")
	if !ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	node, err := strconv.Atoi(digits)
	return node, err == nil
}

// AddSizes sets sizes from /proc/PID/maps: "7f2c00000000-7f3000000000 rw-s 00000000 00:2f 4711 /path". A mapping made
// or removed meanwhile keeps an unknown size. See proc_pid_maps(5).
func AddSizes(all []Mapping, maps string) error {
	sizes := map[uint64]uint64{}
	for line := range strings.Lines(maps) {
		span, _, _ := strings.Cut(line, " ")
		from, to, ok := strings.Cut(strings.TrimSpace(span), "-")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if !ok || err1 != nil || err2 != nil || end < start {
			return fmt.Errorf("maps: %q: want two addresses in rising order", clip(strings.TrimSpace(line)))
		}
		sizes[start] = end - start
	}
	for i := range all {
		all[i].Bytes = sizes[all[i].Start]
	}
	return nil
}

// tick is USER_HZ in seconds, 100 on every architecture of Linux today (include/asm-generic/param.h).
const tick = 0.01

// CPUTime is of all CPUs since boot, in seconds.
type CPUTime struct {
	Busy  float64 // user (with guests), system and interrupts
	Steal float64 // by the hypervisor below
}

// ParseCPUTime reads /proc/stat.
//
// Source: proc_stat(5).
func ParseCPUTime(stat string) (CPUTime, error) {
	line, _, _ := strings.Cut(stat, "\n")
	fields := strings.Fields(line)
	// cpu user nice system idle iowait irq softirq steal guest guest_nice
	if len(fields) < 9 || fields[0] != "cpu" {
		return CPUTime{}, fmt.Errorf("/proc/stat begins with %q: want cpu and 8 numbers or more", clip(line))
	}
	var ticks [8]float64
	for i := range ticks {
		n, err := strconv.ParseUint(fields[i+1], 10, 64)
		if err != nil {
			return CPUTime{}, fmt.Errorf("/proc/stat: field %d: %w", i+2, err)
		}
		ticks[i] = float64(n)
	}
	// iowait is idle time. user and nice include guest and guest_nice.
	return CPUTime{
		Busy:  tick * (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]),
		Steal: tick * ticks[7],
	}, nil
}

// As in process.go.
const (
	statUserTime   = 14 - 3
	statSystemTime = 15 - 3
)

// ParseProcessTime returns the CPU time of all threads, in seconds, from /proc/PID/stat; see proc_pid_stat(5).
func ParseProcessTime(stat string) (float64, error) {
	_, _, fields, err := splitStat(stat, statSystemTime)
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, i := range []int{statUserTime, statSystemTime} {
		n, err := strconv.ParseUint(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat %q: CPU time: %w", clip(stat), err)
		}
		sum += tick * float64(n)
	}
	return sum, nil
}
