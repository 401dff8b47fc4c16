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
	hasValue    bool // even with an empty value
}

func (p param) String() string {
	if p.hasValue {
		return p.name + "=" + p.value
	}
	return p.name
}

// parameters returns a reader's list if the command line is unknown.
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

// asked treats hyphens as underscores, like the kernel.
func (v *view) asked(name string) (param, bool) {
	return lists.Lookup(v.params, func(p param) bool { return cmdline.Key(p.name) == name })
}

func cmdlineIs(list ...param) string { return at("/proc/cmdline", words.Join(list, " ")) }

// Source: Documentation/admin-guide/kernel-parameters.txt, isolcpus=; io_queue is an older name of managed_irq.
var isolcpusFlags = map[string]bool{"nohz": true, "domain": true, "managed_irq": true, "io_queue": true}

// isolationList parses flags, then a CPU list. known is false if that fails; "all" and "N" (the last CPU) need the
// present CPUs.
func (v *view) isolationList(value string) (flags []string, cpus topology.CPUSet, known bool) {
	items := strings.Split(value, ",")
	// The kernel stops looking for flags at the first other word.
	for len(items) > 0 && isolcpusFlags[items[0]] {
		flags, items = append(flags, items[0]), items[1:]
	}
	list := strings.Join(items, ",")
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

// A hugeAsk is for hugepages of one size.
type hugeAsk struct {
	size    uint64
	total   uint64
	byNode  map[int]uint64 // nil if spread by the kernel
	written []param        // the parameters of the request
}

// hugeAsks parses requests. A hugepages= after a hugepagesz= has that size; before any it has the size of
// default_hugepagesz=, else the machine's default.
//
// Source: Documentation/admin-guide/kernel-parameters.txt and mm/hugetlb.rst.
func (v *view) hugeAsks() []hugeAsk {
	// The default of x86, and of arm64 with pages of 4 KiB.
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
				return out // the kernel ignores the pages of an invalid size
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
						break // like the kernel, keep the parsed part
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
