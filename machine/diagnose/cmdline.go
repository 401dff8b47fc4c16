package diagnose

import (
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
)

// A param is one parameter of the kernel command line.
type param struct {
	name, value string
	hasValue    bool // "name=value", also with an empty value
}

func (p param) String() string {
	if p.hasValue {
		return p.name + "=" + p.value
	}
	return p.name
}

// parameters returns the parameters of the command line of h. Where the line itself is not known,
// those that a reader has listed stand in.
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

// asked returns the first parameter of that name. The kernel takes hyphens in names for underscores.
func (v *view) asked(name string) (param, bool) {
	return lists.Lookup(v.params, func(p param) bool { return cmdline.Key(p.name) == name })
}

// cmdlineIs is the evidence that parameters were asked for.
func cmdlineIs(list ...param) string { return at("/proc/cmdline", words.Join(list, " ")) }

// isolcpusFlags are the words that may stand before the list of isolcpus.
//
// Source: Documentation/admin-guide/kernel-parameters.txt, isolcpus=; io_queue is an older name of managed_irq.
var isolcpusFlags = map[string]bool{"nohz": true, "domain": true, "managed_irq": true, "io_queue": true}

// isolationList takes apart the value of isolcpus or nohz_full: flags, then a CPU list. known is
// false where the list cannot be understood. "all" and "N" (the last CPU) are taken when the CPUs
// that are present are known.
func (v *view) isolationList(value string) (flags []string, cpus topology.CPUSet, known bool) {
	items := strings.Split(value, ",")
	// Flags stand first, and the kernel stops looking for them at the first word that is none.
	for len(items) > 0 && isolcpusFlags[items[0]] {
		flags, items = append(flags, items[0]), items[1:]
	}
	list := strings.Join(items, ",")
	// Only a kernel knows what "all" and "N" stand for: without its list of CPUs they are not understood
	// here.
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

// A hugeAsk is how many hugepages of one size the command line asks for.
type hugeAsk struct {
	size    uint64
	total   uint64
	byNode  map[int]uint64 // nil where the kernel was to spread them
	written []param        // what asked for them
}

// hugeAsks reads hugepagesz, hugepages and default_hugepagesz. A hugepages= after a hugepagesz= is
// of that size; one before any is of the default size, which is what default_hugepagesz= says, else
// what the machine has.
//
// Source: Documentation/admin-guide/kernel-parameters.txt and mm/hugetlb.rst.
func (v *view) hugeAsks() []hugeAsk {
	// 2 MiB is the default of x86 and of arm64 with pages of 4 KiB.
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
				return out // the kernel ignores what follows up to the next size; what it meant is not known
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
						break // as the kernel does: what it understood so far holds
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
