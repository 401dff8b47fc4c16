package texts

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

const lscpuSure = `^Architecture:|^NUMA node\d+ CPU\(s\):`

var nodeCPUs = lazyregexp.New(`^NUMA node(\d+) CPU\(s\)$`)

// lscpu does not tell the numbering of threads, so cores are only known if each has one thread, nor the CPUs that share
// a cache.
func (r *reader) lscpu() {
	read := map[string]string{}
	take := func(line int, key, value string) {
		if key == "CPU socket(s)" { // before util-linux 2.23
			key = "Socket(s)"
		}
		if m := nodeCPUs().FindStringSubmatch(key); m != nil {
			id := count(m[1])
			if set := r.cpus(line, value); set != nil && id != nil {
				r.node(*id).CPUs = *set
			}
		} else if _, twice := read[key]; !twice {
			read[key] = value
		}
	}
	if head := strings.TrimSpace(r.Text.Text); strings.HasPrefix(head, "{") {
		// Newer releases of util-linux group fields in children.
		type field struct {
			Field, Data string
			Children    []field
		}
		var doc struct{ Lscpu []field }
		r.json(&doc)
		var walk func([]field)
		walk = func(list []field) {
			for _, f := range list {
				take(0, strings.TrimSuffix(f.Field, ":"), f.Data)
				walk(f.Children)
			}
		}
		walk(doc.Lscpu)
	} else {
		for p := range r.pairs() {
			take(p.line, p.key, p.value)
		}
	}
	r.nodeCount(count(read["NUMA node(s)"]))
	s := &r.h.System
	s.Arch, s.CPUModel = read["Architecture"], read["Model name"]
	r.virtual(read)
	online, n := read["On-line CPU(s) list"], count(read["CPU(s)"])
	switch {
	case online != "":
		r.h.CPUs.Online = topology.CPUSet{}
		if cpus := r.cpus(0, online); cpus != nil {
			r.h.CPUs.Online = *cpus
		}
	case n != nil && *n > 0 && *n <= topology.MaxCPUs:
		r.h.CPUs.Online = topology.CPURange(0, *n-1)
	}
	if r.h.CPUs.Online.IsEmpty() { // a part of the text
		all := topology.UnionOf(r.h.NUMANodes, func(n topology.NUMANode) topology.CPUSet { return n.CPUs })
		r.online(all, r.h.NodeCount == nil)
	}
	if off := read["Off-line CPU(s) list"]; off != "" {
		r.h.CPUs.Offline = r.cpus(0, off)
	}
	threads := count(read["Thread(s) per core"])
	if each, sockets := count(read["Core(s) per socket"]), count(read["Socket(s)"]); r.h.CPUs.Online.IsEmpty() &&
		threads != nil && each != nil && sockets != nil {
		if n := *threads * *each * *sockets; n > 0 && *threads <= 8 && *sockets <= 64 && n <= topology.MaxCPUs {
			r.h.CPUs.Online = topology.CPURange(0, n-1)
		}
	}
	if threads != nil && *threads > 1 {
		r.h.CPUs.SMT = "on"
	}
	r.packages(count(read["Socket(s)"]))
	if threads != nil && *threads == 1 && r.h.CPUs.Online.Len() <= maxCores {
		for cpu := range r.h.CPUs.Online.All() {
			r.h.Cores = append(r.h.Cores, topology.Core{CPUs: topology.CPUs(cpu)})
		}
	}
}

func (r *reader) online(cpus topology.CPUSet, whole bool) {
	if whole || cpus.IsEmpty() {
		r.h.CPUs.Online = cpus
		return
	}
	r.h.CPUs.Online, r.h.CPUs.Cut = topology.CPUSet{}, true
}

func (r *reader) nodeCount(n *int) {
	listed := len(r.h.NUMANodes)
	if n == nil || listed == 0 || *n <= listed || *n > topology.MaxCPUs {
		return
	}
	r.h.NodeCount = n
	r.note(0, "%s counts %d NUMA nodes and lists %d: the others were cut off, and are not known",
		r.Kind.Name, *n, listed)
}

var hypervisors = map[string]string{"microsoft": "hyper-v", "ibm": "z/vm"}

// virtual needs x86 for a flag that distinguishes a virtual machine. Elsewhere the firmware's name may reveal QEMU, but
// nothing proves a real machine.
func (r *reader) virtual(read map[string]string) {
	s := &r.h.System
	vendor, kind := strings.ToLower(read["Hypervisor vendor"]), read["Virtualization type"]
	x86 := strings.HasSuffix(s.Arch, "86") || s.Arch == "x86_64"
	switch {
	case vendor == "xen" && kind == "none": // dom0 sees the real machine
	case vendor != "":
		s.Hypervisor, s.InVM = cmp.Or(hypervisors[vendor], vendor), new(true)
	case x86 && read["Flags"] != "":
		s.InVM = new(slices.Contains(strings.Fields(read["Flags"]), "hypervisor"))
	case read["BIOS Vendor ID"] == "QEMU":
		s.Hypervisor, s.InVM = "qemu", new(true)
	case kind == "full", kind == "para":
		s.InVM = new(true)
	}
}

const maxCores = 4096

// packages adds lscpu's packages. Their CPUs are only known if there is one package, or one NUMA node per package.
func (r *reader) packages(n *int) {
	// No machine has more than 64 sockets.
	if n == nil || *n > 64 || r.h.CPUs.Online.IsEmpty() {
		return
	}
	for id := range *n {
		p := topology.Package{ID: id, Model: r.h.System.CPUModel}
		switch {
		case *n == 1:
			p.CPUs = r.h.CPUs.Online
		case len(r.h.NUMANodes) == *n:
			p.CPUs = r.h.NUMANodes[id].CPUs
		}
		r.h.Packages = append(r.h.Packages, p)
	}
}

// A cpuTable has lists, because adding CPUs one by one to sets would copy them each time.
type cpuTable struct {
	online, offline []int
	// by number
	nodes, sockets map[int][]int
	// by "socket/core", and by the number in the column
	cores, caches map[string][]int
	mhz           map[int]float64 // highest clock of a CPU
	cut           bool            // the last rows, or a part of the last, are missing
}

func newCPUTable() *cpuTable {
	return &cpuTable{nodes: map[int][]int{}, sockets: map[int][]int{}, cores: map[string][]int{},
		caches: map[string][]int{}, mhz: map[int]float64{}}
}

func (t *cpuTable) fill(r *reader) {
	if cpu := t.lonely(); cpu >= 0 {
		t.cut = true
		r.note(0, "the second thread of the core of CPU %d would follow the last row: the text is cut off, or those "+
			"CPUs are offline", cpu)
	}
	if !t.cut && (uneven(t.sockets, 2) || uneven(t.nodes, 3) || uneven(t.caches, 3)) && t.offline == nil {
		t.cut = true
		r.note(0, "the last socket, node or cache has fewer CPUs than the others: the text is cut off, or CPUs are "+
			"offline")
	}
	r.online(topology.CPUs(t.online...), !t.cut)
	if t.offline != nil && !t.cut {
		r.h.CPUs.Offline = new(topology.CPUs(t.offline...))
	}
	for id, cpus := range t.nodes {
		r.node(id).CPUs = topology.CPUs(cpus...)
	}
	for id, cpus := range t.sockets {
		r.h.Packages = append(r.h.Packages, topology.Package{ID: id, CPUs: topology.CPUs(cpus...)})
	}
	kind := t.kinds()
	for _, cpus := range t.cores {
		if len(cpus) > 1 || !t.cut { // the other thread may be in a missing row
			r.h.Cores = append(r.h.Cores, topology.Core{CPUs: topology.CPUs(cpus...), Kind: kind(cpus)})
		}
	}
	for _, cpus := range t.caches {
		r.h.L3 = append(r.h.L3, topology.L3{CPUs: topology.CPUs(cpus...)})
	}
}

// lonely returns the first CPU whose core lacks a thread that would follow the last row, or -1. Most machines number
// the first threads of all cores before the second ones, at a constant distance. Machines that mix cores with one and
// two threads number the threads of a core in a row.
func (t *cpuTable) lonely() int {
	distance, second := 0, 0
	var alone []int
	for _, cpus := range t.cores {
		switch len(cpus) {
		case 1:
			alone = append(alone, cpus[0])
			continue
		case 2:
		default:
			return -1
		}
		if d := cpus[1] - cpus[0]; d < 2 || distance != 0 && d != distance {
			return -1
		}
		distance, second = cpus[1]-cpus[0], max(second, cpus[1])
	}
	if distance == 0 || len(alone) == 0 || second != max(slices.Max(t.online), slices.Max(append(t.offline, 0))) {
		return -1
	}
	slices.Sort(alone)
	for i, cpu := range alone {
		if cpu+distance != second+1+i {
			return -1
		}
	}
	return alone[0]
}

// uneven reports whether the list with the highest CPU is shorter than the others, which are equally long.
func uneven[K comparable](lists map[K][]int, least int) bool {
	if len(lists) < least {
		return false
	}
	var last K
	highest := -1
	for k, cpus := range lists {
		if top := slices.Max(cpus); top > highest {
			last, highest = k, top
		}
	}
	size := 0
	for k, cpus := range lists {
		switch {
		case k == last:
		case size != 0 && len(cpus) != size:
			return false
		default:
			size = len(cpus)
		}
	}
	return len(lists[last]) < size
}

// kinds tells the kind of a hybrid machine's core by its CPUs. Cores with one thread must have a clearly lower clock
// than all with two.
func (t *cpuTable) kinds() func(cpus []int) string {
	least, most := math.Inf(1), 0.0 // clocks of cores with two threads, and with one
	for _, cpus := range t.cores {
		if clock := t.mhz[cpus[0]]; len(cpus) > 1 {
			least = min(least, clock)
		} else {
			most = max(most, clock)
		}
	}
	hybrid := most > 0 && !math.IsInf(least, 1) && most < 0.9*least
	return func(cpus []int) string {
		switch {
		case !hybrid:
			return ""
		case len(cpus) > 1:
			return topology.KindPerformance
		}
		return topology.KindEfficiency
	}
}

func (t *cpuTable) add(cpu int, value map[string]string) {
	if value["ONLINE"] == "no" {
		t.offline = append(t.offline, cpu)
		return
	}
	t.online = append(t.online, cpu)
	if mhz, err := strconv.ParseFloat(value["MAXMHZ"], 64); err == nil {
		t.mhz[cpu] = mhz
	}
	if id := count(value["NODE"]); id != nil {
		t.nodes[*id] = append(t.nodes[*id], cpu)
	}
	if socket := count(value["SOCKET"]); socket != nil {
		t.sockets[*socket] = append(t.sockets[*socket], cpu)
	}
	// Some releases number cores throughout the machine, others within a socket.
	if core := value["CORE"]; count(core) != nil {
		t.cores[value["SOCKET"]+"/"+core] = append(t.cores[value["SOCKET"]+"/"+core], cpu)
	}
	// lscpu -e has one column "L1d:L1i:L2:L3" with four numbers, lscpu -p a column for each cache.
	for name, ids := range value {
		if id := ids[strings.LastIndexByte(ids, ':')+1:]; strings.HasSuffix(name, "L3") && count(id) != nil {
			t.caches[id] = append(t.caches[id], cpu)
		}
	}
}

// lscpuTable reads one line per CPU: lscpu -e in columns, lscpu -p with commas and titles in a comment. Columns may be
// missing: -e=CPU,NODE prints two.
func (r *reader) lscpuTable() {
	var columns []string
	width := 0 // lscpu -p may have fewer than titles
	table := newCPUTable()
	for n, line := range r.lines() {
		words := strings.Fields(strings.TrimPrefix(line, "# "))
		if strings.Contains(line, ",") {
			words = strings.Split(strings.ReplaceAll(strings.TrimPrefix(line, "# "), " ", ""), ",")
		}
		if len(words) > 1 && words[0] == "CPU" {
			if columns != nil {
				break // another table, which may number cores differently
			}
			columns = words
			continue
		}
		if len(words) == 0 || count(words[0]) == nil || columns == nil {
			continue
		}
		if width == 0 {
			width = len(columns)
			if strings.Contains(line, ",") {
				width = min(width, len(words))
			}
		}
		cpu := *count(words[0])
		table.cut = len(words) < width
		if cpu >= topology.MaxCPUs || table.cut {
			r.note(n, "%q is not a line of CPU %d with %d columns", line, cpu, width)
		} else {
			value := map[string]string{}
			for i, name := range columns[:min(len(columns), len(words))] {
				value[strings.ToUpper(name)] = words[i]
			}
			table.add(cpu, value)
		}
	}
	table.fill(r)
}

var (
	// numactl -H prints "node 0 cpus: 0 1 2", "node 0 size: 64214 MB", and "0: 10 21".
	nodeLine     = lazyregexp.New(`^node (\d+) (cpus|size|free)$`)
	distanceLine = lazyregexp.New(`^(\d+):((?: +\d+)+)$`)
)

// numactl notes missing parts of a truncated text, because a node with unread CPUs would look like one without.
func (r *reader) numactl() {
	rows, listed, available := map[int][]int{}, map[int]bool{}, 0
	for n, line := range r.lines() {
		key, value, _ := strings.Cut(line, ":")
		if nodes := strings.Fields(value); key == "available" && len(nodes) > 0 { // "available: 2 nodes (0-1)"
			available = 0
			if c := count(nodes[0]); c != nil {
				available = *c
			}
		}
		if m := nodeLine().FindStringSubmatch(key); m != nil {
			id := count(m[1])
			if id == nil {
				continue
			}
			node, value := r.node(*id), strings.TrimSpace(value)
			switch m[2] {
			case "cpus":
				listed[*id] = true
				if set := r.cpus(n, strings.Join(strings.Fields(value), ",")); set != nil {
					node.CPUs = *set
					r.h.CPUs.Online = r.h.CPUs.Online.Union(*set)
				}
			case "size":
				node.MemoryBytes = size(value)
			case "free":
				node.FreeBytes = size(value)
			}
		} else if m := distanceLine().FindStringSubmatch(line); m != nil {
			id, _ := strconv.Atoi(m[1])
			for word := range strings.FieldsSeq(m[2]) {
				if d := count(word); d != nil {
					rows[id] = append(rows[id], *d)
				}
			}
		}
	}
	whole := true
	for i := range r.h.NUMANodes {
		node := &r.h.NUMANodes[i]
		if !listed[node.ID] {
			r.note(0, "the CPUs of node %d are missing", node.ID)
			whole = false
		}
	}
	if len(r.h.NUMANodes) == 0 && len(rows) <= topology.MaxCPUs { // only the matrix
		for id := range rows {
			r.node(id)
		}
	}
	if available > len(r.h.NUMANodes) && len(r.h.NUMANodes) > 0 && available <= topology.MaxCPUs {
		r.h.NodeCount = &available
		r.note(0, "%d nodes are available, and the text has %d", available, len(r.h.NUMANodes))
		whole = false
	}
	r.online(r.h.CPUs.Online, whole)
	// The columns are the nodes in numerical order, possibly with gaps.
	for i := range r.h.NUMANodes {
		node := &r.h.NUMANodes[i]
		if row := rows[node.ID]; len(row) == len(r.h.NUMANodes) {
			node.Distances = row
		} else if len(row) > 0 {
			r.note(0, "node %d has %d distances, and there are %d nodes", node.ID, len(row), len(r.h.NUMANodes))
		}
	}
}
