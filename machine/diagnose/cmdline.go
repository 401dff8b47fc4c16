package diagnose

import (
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
)

type param struct {
	name, value string
	hasValue    bool // "name=value", even with an empty value
}

func (p param) String() string {
	if p.hasValue {
		return p.name + "=" + p.value
	}
	return p.name
}

// parameters returns h's kernel parameters or, if the command line is unknown, the ones that a reader has listed.
func parameters(h *topology.Host) []param {
	var out []param
	if h.Kernel.Cmdline == nil {
		for _, a := range h.Kernel.Asked {
			out = append(out, param{a.Name, a.Asked, a.Asked != ""})
		}
		return out
	}
	for _, w := range cmdline.Split(*h.Kernel.Cmdline) {
		name, value, hasValue := cmdline.Cut(w)
		out = append(out, param{name, value, hasValue})
	}
	return out
}

// asked returns the first parameter with that name. The kernel treats hyphens in names as underscores.
func (v *view) asked(name string) (param, bool) {
	return lists.Lookup(v.params, func(p param) bool { return cmdline.Key(p.name) == name })
}

func cmdlineIs(list ...param) string { return at("/proc/cmdline", words.Join(list, " ")) }

// isolcpusFlags are the flags that may precede the CPU list of isolcpus.
//
// Source: Documentation/admin-guide/kernel-parameters.txt, isolcpus=; io_queue is an older name of managed_irq.
var isolcpusFlags = map[string]bool{"nohz": true, "domain": true, "managed_irq": true, "io_queue": true}

// isolationList parses the value of isolcpus or nohz_full: flags, then a CPU list. known is false if the list cannot
// be parsed. "all" and "N" (the last CPU) are only accepted if the present CPUs are known.
func (v *view) isolationList(value string) (flags []string, cpus topology.CPUSet, known bool) {
	items := strings.Split(value, ",")
	// Flags come first; the kernel stops looking for them at the first other word.
	for len(items) > 0 && isolcpusFlags[items[0]] {
		flags, items = append(flags, items[0]), items[1:]
	}
	list := strings.Join(items, ",")
	// "all" and "N" depend on the CPUs that the kernel found.
	if present := v.CPUs.Present; present != nil && !present.IsEmpty() {
		if list == "all" {
			return flags, *present, true
		}
		last := present.Min()
		for c := range present.All() {
			last = c
		}
		list = strings.ReplaceAll(list, "N", strconv.Itoa(last))
	}
	set, err := topology.ParseCPUSet(list)
	return flags, set, err == nil
}

// A hugeAsk is a request for hugepages of one size on the command line.
type hugeAsk struct {
	size    uint64
	total   uint64
	byNode  map[int]uint64 // nil if the kernel spreads them
	written []param        // the parameters of the request
}

// hugeAsks parses hugepagesz, hugepages and default_hugepagesz. A hugepages= after a hugepagesz= has that size. One
// before any hugepagesz= has the default size: that of default_hugepagesz=, else the machine's.
//
// Source: Documentation/admin-guide/kernel-parameters.txt and mm/hugetlb.rst.
func (v *view) hugeAsks() []hugeAsk {
	// 2 MiB is the default of x86, and of arm64 with pages of 4 KiB.
	current := uint64(2 << 20)
	if v.Memory.DefaultHuge != nil {
		current = *v.Memory.DefaultHuge
	}
	var sizeParam []param
	if p, ok := v.asked("default_hugepagesz"); ok {
		if n := cmdline.Size(p.value); n > 0 {
			current, sizeParam = n, []param{p}
		}
	}
	var out []hugeAsk
	for _, p := range v.params {
		switch p.name {
		case "hugepagesz":
			n := cmdline.Size(p.value)
			if n == 0 {
				return out // the kernel ignores the pages of an invalid size, so later requests are uncertain
			}
			current, sizeParam = n, []param{p}
		case "hugepages":
			ask := hugeAsk{size: current, written: append(append([]param(nil), sizeParam...), p)}
			if strings.Contains(p.value, ":") {
				ask.byNode = map[int]uint64{}
				for item := range strings.SplitSeq(p.value, ",") {
					n, count, _ := strings.Cut(item, ":")
					id, errID := strconv.Atoi(n)
					pages, err := strconv.ParseUint(count, 10, 32)
					if errID != nil || err != nil {
						break // like the kernel, keep the part that was parsed
					}
					ask.byNode[id] += pages
					ask.total += pages
				}
			} else {
				ask.total, _ = strconv.ParseUint(p.value, 10, 32)
			}
			if ask.total > 0 {
				out = append(out, ask)
			}
		}
	}
	return out
}
