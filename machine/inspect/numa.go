package inspect

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// Kernels without NUMA lack nodeDir: see readMemory.
const nodeDir = "sys/devices/system/node"

// readNUMANodes includes offline CPUs, which placeNodes removes.
//
// Source: Documentation/ABI/stable/sysfs-devices-node.
func (r *reader) readNUMANodes() {
	ids, columns := r.onlineNodes()
	var taken topology.CPUSet
	for _, id := range ids {
		dir := nodeDir + "/node" + strconv.Itoa(id)
		cpus := r.nodeCPUs(dir)
		switch {
		case cpus == nil && len(ids) > 1:
			r.unread(dir+"/cpumap", "missing: the node is left out")
			continue
		case cpus == nil:
			cpus = &topology.CPUSet{}
		case cpus.Overlaps(taken) && !r.fakeNUMA():
			// A CPU is on one node. If firmware lists all CPUs in every node, only the first node is informative.
			r.unread(dir+"/cpumap", "CPUs "+cpus.Intersect(taken).String()+
				" are on another node already: the node is left out")
			continue
		}
		taken = taken.Union(*cpus)
		memory := r.meminfo(dir + "/meminfo") // "Node 0 MemTotal: 65536000 kB"
		r.h.NUMANodes = append(r.h.NUMANodes, topology.NUMANode{ID: id, CPUs: *cpus,
			Hugepages:   r.hugepages(dir + "/hugepages"),
			MemoryBytes: memory.bytes("MemTotal"), FreeBytes: memory.bytes("MemFree")})
	}
	r.readDistances(columns)
	r.readNodeKinds()
}

// onlineNodes returns the nodes to read, and the columns of the distances. The kernel has a list of online nodes since
// 2.6.24. A snapshot may lack directories; an unlisted one was made by hand.
func (r *reader) onlineNodes() (ids, columns []int) {
	const p = nodeDir + "/online"
	ids = r.numbered(nodeDir, "node")
	online := r.list(p)
	if online == nil || !online.Overlaps(topology.CPUs(ids...)) {
		return ids, ids
	}
	if extra := topology.CPUs(ids...).Difference(*online); !extra.IsEmpty() {
		r.unread(p, "does not have nodes "+extra.String()+": they are left out")
	}
	return slices.DeleteFunc(ids, func(id int) bool { return !online.Contains(id) }), slices.Collect(online.All())
}

// nodeCPUs may be nil. Lists exist since 2.6.26, and a snapshot may have only the links to the CPUs.
func (r *reader) nodeCPUs(dir string) *topology.CPUSet {
	if set := r.cpus(dir, "cpumap", "cpulist"); set != nil {
		return set
	}
	if cpus := r.numbered(dir, "cpu"); len(cpus) > 0 {
		return new(topology.CPUs(cpus...))
	}
	return nil
}

// fakeNUMA reports whether a parameter requested fake nodes. Every CPU is then in all fake nodes of its real node.
func (r *reader) fakeNUMA() bool {
	return slices.ContainsFunc(cmdline.Split(r.word("proc/cmdline")), func(word string) bool {
		name, value, _ := cmdline.Cut(word)
		return name == "numa" && strings.HasPrefix(value, "fake=")
	})
}

// readDistances reads the SLIT. A row has a number for every online node, in ascending order; the matrix need not be
// symmetric.
func (r *reader) readDistances(columns []int) {
	// Nodes left out above still have a column.
	picked := make([]int, 0, len(r.h.NUMANodes))
	for i := range r.h.NUMANodes {
		at, _ := slices.BinarySearch(columns, r.h.NUMANodes[i].ID)
		picked = append(picked, at)
	}
	for i := range r.h.NUMANodes {
		n := &r.h.NUMANodes[i]
		p := nodeDir + "/node" + strconv.Itoa(n.ID) + "/distance"
		row := parsed(r, p, func(s string) ([]int, error) { return parseDistances(s, len(columns)) })
		if row == nil {
			continue
		}
		n.Distances = make([]int, 0, len(picked))
		n.Distances = append(n.Distances, lists.Map(picked, func(at int) int { return (*row)[at] })...)
	}
}

// parseDistances parses a row of want numbers: 10 for the node itself and 255 for an unreachable node; 0 is invalid.
//
// Source: ACPI specification, System Locality Information Table (SLIT).
func parseDistances(text string, want int) ([]int, error) {
	fields := strings.Fields(text)
	switch len(fields) {
	case want:
	case 0:
		return nil, errNotKnown
	default:
		return nil, fmt.Errorf("%d distances for %d nodes", len(fields), want)
	}
	row := make([]int, want)
	for i, f := range fields {
		v, err := strconv.Atoi(f)
		if err != nil || v < 1 || v > 255 {
			return nil, fmt.Errorf("%q is not a distance from 1 to 255", where.Clip(f))
		}
		row[i] = v
	}
	return row, nil
}

// placeNodes gives a single node without CPUs all of them.
func (r *reader) placeNodes() {
	online := r.h.CPUs.Online
	for i := range r.h.NUMANodes {
		n := &r.h.NUMANodes[i]
		if n.CPUs.IsEmpty() && len(r.h.NUMANodes) == 1 {
			n.CPUs = online
		}
		n.CPUs = n.CPUs.Intersect(online)
	}
}

const (
	kindDRAM   = "dram"
	kindHBM    = "hbm"
	kindCXL    = "cxl"
	kindNVDIMM = "nvdimm"
	kindGPU    = topology.KindGPUMemory
)

func (r *reader) readNodeKinds() {
	nodes := r.h.NUMANodes
	r.readGPUNodes()
	special := r.readDAXNodes()
	cpuless := slices.ContainsFunc(nodes, func(n topology.NUMANode) bool { return n.CPUs.IsEmpty() })
	if len(nodes) > 1 && (cpuless || len(special) > 0) {
		r.readHBM(special)
		r.readMCDRAM()
	}
	told := slices.ContainsFunc(nodes, func(n topology.NUMANode) bool { return n.Kind != "" })
	for i := range nodes {
		n := &nodes[i]
		dir := nodeDir + "/node" + strconv.Itoa(n.ID)
		// If other kinds were found, the remaining nodes are DRAM.
		if n.Kind == "" && told && !n.CPUs.IsEmpty() && !special[n.ID] {
			n.Kind = kindDRAM
		}
		// Faster memory is a cache, not a node: KNL's cache mode, Optane's memory mode.
		if len(r.numbered(dir+"/memory_side_cache", "index")) > 0 {
			n.MemoryMode = "cache"
		}
	}
}

// readGPUNodes finds memory of NVIDIA GPUs on a coherent link: POWER9, Grace.
//
// Source: numa_status of NVIDIA's driver, "Node: 255", "Status: online".
func (r *reader) readGPUNodes() {
	const dir = "proc/driver/nvidia/gpus"
	for _, name := range r.dir(dir) {
		node, ok := parseNUMAStatus(r.word(dir + "/" + name + "/numa_status"))
		if n := r.h.NUMANode(node); ok && n != nil {
			n.Kind, n.GPU = kindGPU, nil
			if a, err := topology.ParsePCIAddr(name); err == nil {
				n.GPU = &a
			}
		}
	}
}

// parseNUMAStatus returns -1 if the GPU's memory is not a node.
func parseNUMAStatus(text string) (int, bool) {
	value, _ := lineAfter(text, "Node:")
	v, err := strconv.Atoi(value)
	return v, err == nil && v >= 0
}

// readDAXNodes finds nodes of reserved memory that driver kmem returned to the kernel; the device's path tells their
// kind. It returns the nodes of "specific purpose" memory, HBM or CXL, whose kind depends on their bandwidth.
//
// Source: Documentation/ABI/testing/sysfs-bus-dax; links such as .../LNXSYBUS:00/ACPI0012:00/ndbus0/region2/dax2.0
// (NVDIMM), .../hmem.0/dax0.0, .../ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0 (CXL).
func (r *reader) readDAXNodes() (special map[int]bool) {
	const dir = "sys/bus/dax/devices"
	special = map[int]bool{}
	for _, name := range r.dir(dir) {
		if r.linkBase(dir+"/"+name+"/driver") != "kmem" && !r.exists("sys/bus/dax/drivers/kmem/"+name) {
			continue
		}
		id := topology.NoID
		if node := r.count(dir + "/" + name + "/target_node"); node != nil {
			id = *node
		}
		n := r.h.NUMANode(id)
		if n == nil {
			continue
		}
		target, _ := r.link(dir + "/" + name)
		within := func(part string) bool { return strings.Contains(target, part) }
		switch {
		case within("/ndbus"):
			n.Kind = kindNVDIMM
		case within("/ACPI0017"), within("cxl"), within("/dax_region"):
			n.Kind = kindCXL
		default:
			special[n.ID] = true
		}
	}
	return special
}

// hbmFactor is the least ratio of bandwidths: one stack of HBM has several times the bandwidth of all DRAM channels of
// a socket.
const hbmFactor = 2

// readHBM finds much faster nodes by the firmware's bandwidth for the nearest CPUs. The slowest node with CPUs and
// without a known kind is assumed to be ordinary.
//
// Source: Documentation/admin-guide/mm/numaperf.rst. access1 excludes initiators that are not CPUs (5.10).
func (r *reader) readHBM(special map[int]bool) {
	bandwidth := map[int]uint64{}
	ordinary := uint64(math.MaxUint64)
	for i := range r.h.NUMANodes {
		n := &r.h.NUMANodes[i]
		dir := nodeDir + "/node" + strconv.Itoa(n.ID)
		v := r.size(dir + "/access1/initiators/read_bandwidth")
		if v == nil {
			v = r.size(dir + "/access0/initiators/read_bandwidth")
		}
		if v == nil || *v == 0 {
			continue
		}
		bandwidth[n.ID] = *v
		if n.Kind == "" && !special[n.ID] && !n.CPUs.IsEmpty() {
			ordinary = min(ordinary, *v)
		}
	}
	for i := range r.h.NUMANodes {
		n := &r.h.NUMANodes[i]
		if n.Kind == "" && (n.CPUs.IsEmpty() || special[n.ID]) && ordinary < math.MaxUint64 &&
			bandwidth[n.ID]/hbmFactor > ordinary {
			n.Kind = kindHBM
		}
	}
}

// readMCDRAM is for Knights Landing and Knights Mill, whose firmware could not yet state a bandwidth. In flat and
// hybrid mode the nodes of MCDRAM are the ones without CPUs.
func (r *reader) readMCDRAM() {
	info := r.readCPUInfo(false)
	if info.get("vendor_id") != "GenuineIntel" || info.get("cpu family") != "6" || info.get("model") != "87" &&
		info.get("model") != "133" {
		return
	}
	for i := range r.h.NUMANodes {
		if n := &r.h.NUMANodes[i]; n.Kind == "" && n.CPUs.IsEmpty() {
			n.Kind = kindHBM
		}
	}
}

var errMeminfo = errors.New("not a number of kB")

// A meminfo has bytes for lines in kB, otherwise counts.
type meminfo map[string]uint64

func (m meminfo) bytes(name string) *uint64 {
	if v, ok := m[name]; ok {
		return &v
	}
	return nil
}

func (r *reader) meminfo(p string) meminfo {
	text, _ := r.text(p)
	values, err := parseMeminfo(text)
	if err != nil {
		r.unread(p, err.Error())
	}
	return values
}

// parseMeminfo parses "MemTotal: 65536000 kB" and "Node 0 MemTotal: 65536000 kB", and skips other lines (2.4 kernels
// began with a table). With an error it still returns the other lines.
func parseMeminfo(text string) (meminfo, error) {
	m := meminfo{}
	var bad error
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(name, "Node "); ok {
			_, name, _ = strings.Cut(rest, " ")
		}
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		unit = strings.TrimSpace(unit)
		if unit != "" && unit != "kB" || name == "" {
			continue
		}
		v, err := strconv.ParseUint(number, 10, 64)
		if err != nil || unit == "kB" && v > math.MaxUint64>>10 {
			bad = fmt.Errorf("line %s: %q is %w", strconv.Quote(where.Clip(name)), where.Clip(number), errMeminfo)
			continue
		}
		if unit == "kB" {
			v <<= 10
		}
		m[name] = v
	}
	return m, bad
}
