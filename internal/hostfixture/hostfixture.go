// Package hostfixture makes /sys and /proc trees of machines that are described in a few lines, for
// tests: the files that a kernel would show, with links, in the kernel's own formats. Real
// machines' dumps are better where there are any; this is for those known by their description
// alone, and for changing one fact at a time.
package hostfixture

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/inspect/tree"
	"github.com/rackless/rackless/topology"
)

// A Tree is files and links by their path from the root, without a slash in front.
type Tree struct {
	files map[string]string
	links map[string]string
	dirs  map[string]bool // empty ones
}

// New returns an empty tree.
func New() *Tree {
	return &Tree{files: map[string]string{}, links: map[string]string{}, dirs: map[string]bool{}}
}

// File writes a file, as the kernel does with a newline at its end.
func (t *Tree) File(p, content string) { t.files[p] = content + "\n" }

// Raw writes a file as it is.
func (t *Tree) Raw(p, content string) { t.files[p] = content }

// EmptyDir makes a directory with nothing in it.
func (t *Tree) EmptyDir(p string) { t.dirs[p] = true }

// RemoveAll removes every file and link of this name, wherever it is.
func (t *Tree) RemoveAll(name string) {
	named := func(p, _ string) bool { return path.Base(p) == name }
	maps.DeleteFunc(t.files, named)
	maps.DeleteFunc(t.links, named)
}

// Remove removes a file, a link, or all below a directory.
func (t *Tree) Remove(p string) {
	gone := func(name, _ string) bool { return name == p || strings.HasPrefix(name, p+"/") }
	maps.DeleteFunc(t.files, gone)
	maps.DeleteFunc(t.links, gone)
}

// Text returns the content of a file without its newline. It panics where there is none: the
// fixture and its test are out of step.
func (t *Tree) Text(p string) string {
	content, ok := t.files[p]
	if !ok {
		panic("no fixture file " + p)
	}
	return strings.TrimSuffix(content, "\n")
}

// Link makes p a link to target, a path from the root; the link is written relative, as sysfs does.
func (t *Tree) Link(p, target string) {
	up := strings.Repeat("../", strings.Count(p, "/"))
	t.links[p] = up + target
}

// FS returns the tree as a file system.
func (t *Tree) FS() *tree.Mem {
	var b tree.Builder
	for _, p := range slices.Sorted(maps.Keys(t.files)) {
		must(b.File(p, []byte(t.files[p])))
	}
	for _, p := range slices.Sorted(maps.Keys(t.links)) {
		must(b.Link(p, t.links[p]))
	}
	for _, p := range slices.Sorted(maps.Keys(t.dirs)) {
		must(b.Dir(p))
	}
	return b.Mem()
}

// must ends a test program whose fixture is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// filesIn writes several files below dir.
func (t *Tree) filesIn(dir string, files map[string]string) {
	for name, content := range files {
		t.File(path.Join(dir, name), content)
	}
}

// A CPU is one logical CPU.
type CPU struct {
	ID, Package, Core, Node int
	Siblings                topology.CPUSet // its core's threads
	L3                      topology.CPUSet // those that share its level-3 cache
	Governor                string          // empty: no frequency scaling
}

// AddCPU writes /sys/devices/system/cpu/cpuN.
func (t *Tree) AddCPU(c CPU) {
	dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", c.ID)
	t.filesIn(dir, map[string]string{
		"topology/physical_package_id":  fmt.Sprint(c.Package),
		"topology/core_id":              fmt.Sprint(c.Core),
		"topology/thread_siblings_list": c.Siblings.String(),
		"topology/core_cpus_list":       c.Siblings.String(),
	})
	if !c.L3.IsEmpty() {
		t.filesIn(dir+"/cache/index3", map[string]string{
			"level": "3", "type": "Unified", "size": "8192K", "shared_cpu_list": c.L3.String(),
		})
	}
	if c.Governor != "" {
		t.filesIn(dir+"/cpufreq", map[string]string{"scaling_governor": c.Governor, "cpuinfo_max_freq": "2000000"})
	}
	t.Link(fmt.Sprintf("%s/node%d", dir, c.Node), fmt.Sprintf("sys/devices/system/node/node%d", c.Node))
}

// A Node is one NUMA node.
type Node struct {
	ID        int
	CPUs      topology.CPUSet
	KiB       uint64 // of memory
	Distances []int
	Huge      map[uint64][2]int // by page size in KiB: total and free
}

// AddNode writes /sys/devices/system/node/nodeN.
func (t *Tree) AddNode(n Node) {
	dir := fmt.Sprintf("sys/devices/system/node/node%d", n.ID)
	t.filesIn(dir, map[string]string{
		"cpulist":  n.CPUs.String(),
		"distance": strings.Trim(fmt.Sprint(n.Distances), "[]"),
		"meminfo": fmt.Sprintf("Node %d MemTotal: %15d kB\nNode %d MemFree:  %15d kB",
			n.ID, n.KiB, n.ID, n.KiB/2),
	})
	for size, pages := range n.Huge {
		t.filesIn(fmt.Sprintf("%s/hugepages/hugepages-%dkB", dir, size), map[string]string{
			"nr_hugepages": fmt.Sprint(pages[0]), "free_hugepages": fmt.Sprint(pages[1]), "surplus_hugepages": "0",
		})
	}
}

// A Function is one PCI function.
type Function struct {
	Addr   string   // "0000:41:00.0"
	Above  []string // bridges above it, from the root bus down
	Root   string   // "pci0000:40"
	Class  string   // "0x020000"
	ID     string   // vendor and device: "15b3:1015"
	Sub    string   // subsystem, as ID
	Node   int      // -1: the firmware does not say
	Group  int      // IOMMU group; -1: none
	Driver string
	Speed  string // "8.0 GT/s PCIe", now and at most
	Max    string
	Width  int // now and at most
	MaxW   int
	Port   string            // of a bridge: "root port", "upstream port", "downstream port", "pci bridge"
	Buses  [2]uint8          // of a bridge: secondary and subordinate
	ACS    *uint16           // its ACS control register; nil: it has none
	BARs   []string          // lines of resource
	Files  map[string]string // more files
}

// Dir returns where sysfs has the function.
func (f *Function) Dir() string {
	return path.Join(append(append([]string{"sys/devices", f.Root}, f.Above...), f.Addr)...)
}

// AddFunction writes the function's directory and the links to it. It returns the directory.
func (t *Tree) AddFunction(f Function) string {
	dir := f.Dir()
	vendor, device, _ := strings.Cut(f.ID, ":")
	t.filesIn(dir, map[string]string{
		"class": f.Class, "vendor": "0x" + vendor, "device": "0x" + device, "revision": "0xa1",
		"numa_node": fmt.Sprint(f.Node), "enable": "1", "driver_override": "(null)",
	})
	if vendor, device, ok := strings.Cut(f.Sub, ":"); ok {
		t.filesIn(dir, map[string]string{"subsystem_vendor": "0x" + vendor, "subsystem_device": "0x" + device})
	}
	if f.Width > 0 {
		t.filesIn(dir, map[string]string{
			"current_link_speed": f.Speed, "max_link_speed": f.Max,
			"current_link_width": fmt.Sprint(f.Width), "max_link_width": fmt.Sprint(f.MaxW),
		})
	}
	if len(f.BARs) > 0 {
		t.File(dir+"/resource", strings.Join(f.BARs, "\n"))
	}
	t.filesIn(dir, f.Files)
	t.files[dir+"/config"] = string(config(&f))
	t.Link("sys/bus/pci/devices/"+f.Addr, dir)
	if f.Driver != "" {
		t.Link(dir+"/driver", "sys/bus/pci/drivers/"+f.Driver)
		t.Link("sys/bus/pci/drivers/"+f.Driver+"/"+f.Addr, dir)
	}
	if f.Group >= 0 {
		group := fmt.Sprintf("sys/kernel/iommu_groups/%d", f.Group)
		t.Link(dir+"/iommu_group", group)
		t.Link(group+"/devices/"+f.Addr, dir)
		t.File(group+"/type", "identity") // iommu=pt
		t.File(group+"/reserved_regions", "0x00000000fee00000 0x00000000feefffff msi")
	}
	return dir
}

// rootPort writes a root port that can do 8 GT/s, as those of both machines here, with the kernel's
// driver for ports. What f does not say of its link is as at best.
func (t *Tree) rootPort(f Function) {
	f.Class, f.Driver, f.Port, f.Max = "0x060400", "pcieport", "root port", "8.0 GT/s PCIe"
	f.Speed, f.MaxW = cmp.Or(f.Speed, f.Max), cmp.Or(f.MaxW, f.Width)
	t.AddFunction(f)
}

// portTypes are the device/port types of the PCI Express capability.
var portTypes = map[string]uint16{"": 0, "root port": 4, "upstream port": 5, "downstream port": 6, "pci bridge": 7}

// config makes the configuration space: identity, header type, a PCI Express capability that names
// the port's type, and ACS where there is some.
func config(f *Function) []byte {
	b := make([]byte, 256)
	var vendor, device uint16
	_, err := fmt.Sscanf(f.ID, "%04x:%04x", &vendor, &device)
	must(err)
	le := binary.LittleEndian
	le.PutUint16(b[0:], vendor)
	le.PutUint16(b[2:], device)
	le.PutUint16(b[6:], 1<<4) // status: there is a list of capabilities
	var class uint32
	_, err = fmt.Sscanf(f.Class, "0x%06x", &class)
	must(err)
	le.PutUint32(b[8:], class<<8|0xa1)
	b[0x34] = 0x60
	if f.Port != "" {
		b[0x0e] = 1
		b[0x19], b[0x1a] = f.Buses[0], f.Buses[1]
	}
	b[0x60], b[0x61] = 0x10, 0
	le.PutUint16(b[0x62:], 2|portTypes[f.Port]<<4)
	if f.ACS != nil {
		// The extended configuration space begins at 0x100 with its first capability: ID, version 1, no next one.
		const acs = 0x000d
		b = append(b, make([]byte, 4096-len(b))...)
		le.PutUint32(b[0x100:], 1<<16|acs)
		le.PutUint16(b[0x104:], 0x005f) // what the port can do: all but egress control
		le.PutUint16(b[0x106:], *f.ACS)
	}
	return b
}

// A Port is an RDMA port of a network function, with its network device.
type Port struct {
	Netdev, MAC string
	MTU, Mbps   int
	RDMA        string // "mlx5_0"; empty: none
	Rate        string // "25 Gb/sec (1X EDR)"
	IPv4        string // in the GID table's form: "0a00:0001"; empty: link-local GIDs alone
	RoCEv1Only  bool
}

// AddPort writes the network device and the RDMA device below the function's directory.
func (t *Tree) AddPort(dir string, p Port) {
	net := dir + "/net/" + p.Netdev
	t.filesIn(net, map[string]string{
		"address": p.MAC, "mtu": fmt.Sprint(p.MTU), "speed": fmt.Sprint(p.Mbps), "operstate": "up", "carrier": "1",
		"dev_port": "0", "type": "1",
	})
	t.Link(net+"/device", dir)
	t.Link("sys/class/net/"+p.Netdev, net)
	if p.RDMA == "" {
		return
	}
	rdma := dir + "/infiniband/" + p.RDMA
	t.filesIn(rdma, map[string]string{"node_type": "1: CA", "fw_ver": "14.32.1010", "board_id": "MT_2420110034"})
	t.Link(rdma+"/device", dir)
	t.Link("sys/class/infiniband/"+p.RDMA, rdma)
	port := rdma + "/ports/1"
	t.filesIn(port, map[string]string{
		"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": p.Rate, "lid": "0x0",
	})
	gids := []string{"fe80:0000:0000:0000:5054:00ff:fe00:0001"}
	if p.IPv4 != "" {
		gids = append(gids, "0000:0000:0000:0000:0000:ffff:"+p.IPv4)
	}
	types := []string{"IB/RoCE v1", "RoCE v2"}
	if p.RoCEv1Only {
		types = types[:1]
	}
	// mlx5 lists each address once for each type: with an IPv4 address its RoCE v2 GID is at index 3.
	for i, gid := range gids {
		for j, kind := range types {
			n := fmt.Sprint(i*len(types) + j)
			t.File(port+"/gids/"+n, gid)
			t.File(port+"/gid_attrs/types/"+n, kind)
			t.File(port+"/gid_attrs/ndevs/"+n, p.Netdev)
		}
	}
}
