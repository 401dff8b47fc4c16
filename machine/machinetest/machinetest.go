// Package machinetest makes /sys and /proc trees for tests. Files and links have the kernel's own formats, but dumps of
// real machines are better if available.
package machinetest

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/inspect/tree"
)

// A Tree maps paths without a leading slash to entries. Directories above exist implicitly.
type Tree struct {
	entries map[string]tree.Entry
}

// New returns an empty tree.
func New() *Tree { return &Tree{entries: map[string]tree.Entry{}} }

// Load returns the tree in a text file.
func Load(file string) *Tree {
	text, err := os.ReadFile(file)
	must(err)
	from, err := tree.ParseText(text)
	must(err)
	t := New()
	must(fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
		e := tree.Entry{Name: name, Mode: d.Type()}
		switch {
		case err != nil || d.IsDir():
			return err
		case e.Mode == fs.ModeSymlink:
			e.Target, err = from.ReadLink(name)
		default:
			e.Data, err = from.Bytes(name)
		}
		t.entries[name] = e
		return err
	}))
	return t
}

// File adds a newline, as the kernel does.
func (t *Tree) File(p, content string) { t.Raw(p, content+"\n") }

// Raw writes a file unchanged.
func (t *Tree) Raw(p, content string) { t.entries[p] = tree.Entry{Name: p, Data: []byte(content)} }

// EmptyDir makes an empty directory.
func (t *Tree) EmptyDir(p string) { t.entries[p] = tree.Entry{Name: p, Mode: fs.ModeDir} }

// RemoveAll removes a name in all directories.
func (t *Tree) RemoveAll(name string) {
	maps.DeleteFunc(t.entries, func(p string, _ tree.Entry) bool { return path.Base(p) == name })
}

// Remove removes an entry and everything below.
func (t *Tree) Remove(p string) {
	maps.DeleteFunc(t.entries, func(name string, _ tree.Entry) bool {
		return name == p || strings.HasPrefix(name, p+"/")
	})
}

// Text returns a content without newline. It panics if the file does not exist.
func (t *Tree) Text(p string) string {
	e, ok := t.entries[p]
	if !ok {
		panic("no fixture file " + p)
	}
	return strings.TrimSuffix(string(e.Data), "\n")
}

// Link makes a relative link to target, a path from the root.
func (t *Tree) Link(p, target string) {
	up := strings.Repeat("../", strings.Count(p, "/"))
	t.entries[p] = tree.Entry{Name: p, Mode: fs.ModeSymlink, Target: up + target}
}

// FS returns a file system.
func (t *Tree) FS() *tree.Mem {
	var b tree.Builder
	for _, p := range slices.Sorted(maps.Keys(t.entries)) {
		must(b.Add(t.entries[p]))
	}
	return b.Mem()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (t *Tree) filesIn(dir string, files map[string]string) {
	for name, content := range files {
		t.File(path.Join(dir, name), content)
	}
}

// A Function is of PCI.
type Function struct {
	Addr   string   // "0000:41:00.0"
	Above  []string // bridges, from the root bus down
	Root   string   // "pci0000:40"
	Class  string   // "0x020000"
	ID     string   // vendor and device: "15b3:1015"
	Node   int      // -1: the firmware reports none
	Group  int      // IOMMU group, or -1
	Driver string
	Speed  string // "8.0 GT/s PCIe"
	Max    string
	Width  int // current and maximum
	MaxW   int
	Port   string            // "root port", "upstream port", "downstream port", "pci bridge"
	Buses  [2]uint8          // secondary and subordinate
	ACS    *uint16           // ACS control register, or nil
	Files  map[string]string // additional files
}

// Dir returns sysfs's directory.
func (f *Function) Dir() string {
	return path.Join(append(append([]string{"sys/devices", f.Root}, f.Above...), f.Addr)...)
}

// AddFunction writes a directory, which it returns, and its links.
func (t *Tree) AddFunction(f Function) string {
	dir := f.Dir()
	vendor, device, _ := strings.Cut(f.ID, ":")
	t.filesIn(dir, map[string]string{
		"class": f.Class, "vendor": "0x" + vendor, "device": "0x" + device, "revision": "0xa1",
		"numa_node": fmt.Sprint(f.Node), "enable": "1", "driver_override": "(null)",
	})
	if f.Width > 0 {
		t.filesIn(dir, map[string]string{
			"current_link_speed": f.Speed, "max_link_speed": f.Max,
			"current_link_width": fmt.Sprint(f.Width), "max_link_width": fmt.Sprint(f.MaxW),
		})
	}
	t.filesIn(dir, f.Files)
	t.Raw(dir+"/config", string(config(&f)))
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

var portTypes = map[string]uint16{"": 0, "root port": 4, "upstream port": 5, "downstream port": 6, "pci bridge": 7}

func config(f *Function) []byte {
	b := make([]byte, 256)
	var vendor, device uint16
	_, err := fmt.Sscanf(f.ID, "%04x:%04x", &vendor, &device)
	must(err)
	le := binary.LittleEndian
	le.PutUint16(b[0:], vendor)
	le.PutUint16(b[2:], device)
	le.PutUint16(b[6:], 1<<4) // status: capabilities list
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
		// ID, version 1, no next capability.
		const acs = 0x000d
		b = append(b, make([]byte, 4096-len(b))...)
		le.PutUint32(b[0x100:], 1<<16|acs)
		le.PutUint16(b[0x104:], 0x005f) // all but egress control
		le.PutUint16(b[0x106:], *f.ACS)
	}
	return b
}

// A Port is a network device.
type Port struct {
	Netdev, MAC string
	MTU, Mbps   int
}

// AddPort writes the network device.
func (t *Tree) AddPort(dir string, p Port) {
	net := dir + "/net/" + p.Netdev
	t.filesIn(net, map[string]string{
		"address": p.MAC, "mtu": fmt.Sprint(p.MTU), "speed": fmt.Sprint(p.Mbps), "operstate": "up", "carrier": "1",
		"dev_port": "0", "type": "1",
	})
	t.Link(net+"/device", dir)
	t.Link("sys/class/net/"+p.Netdev, net)
}
