// Package hwlocxml reads the XML that hwloc and lstopo export into a topology.Host.
//
// Three versions of the format are read. Version 1 is a topology element without a version: NUMA
// nodes stand in the tree of CPUs, caches are one type, and matrices of distances are lists of
// floats. In version 2 NUMA nodes hang beside the tree, and matrices, kinds of CPUs and more follow
// the objects. Version 3 changes how PCI classes, types of devices and sizes are written.
//
// # What is not taken as it stands
//
// hwloc gives a NUMA node without CPUs the CPUs of its neighbours, so that several nodes have the
// same CPUs; the kernel says that it has none, and so does hwloc where it writes version 1. Here
// each CPU belongs to one node (see ownCPUs). A speed of a PCI link is one number for rate and
// width: it is kept only where a single pair gives it (see linkOf). CPUs that are known and not
// shown may be offline or merely not allowed to whoever made the dump: where the file does not
// tell, Host.Unread says so.
//
// Sources: hwloc's documentation (interoperability with older releases; object attributes),
// hwloc2.dtd and hwloc.dtd, and the exports of lstopo.
package hwlocxml

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/dump/xmltree"
	"github.com/rackless/rackless/machine/topology"
)

// Limits of a file. A machine of 2048 CPUs makes 10 MB of version 1; hwloc's trees are at most some
// 30 levels deep, PCI bridges included.
const (
	maxNodes = 1 << 12 // the largest kernels are built for 1024
	maxPCI   = 1 << 14 // functions; 4096 virtual ones have been seen
)

var limits = xmltree.Limits{Bytes: 64 << 20, Elements: 1 << 20, Depth: 256}

// Sniff reports whether head, the beginning of a file, is that of hwloc's XML. It looks past a byte
// order mark, the XML declaration, comments and the DOCTYPE for the first element, so head should
// hold 4 KiB where the file is that long.
func Sniff(head []byte) bool {
	rest := bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	for {
		rest = bytes.TrimLeft(rest, " \t\r\n")
		var end string
		switch {
		case bytes.HasPrefix(rest, []byte("<?")):
			end = "?>"
		case bytes.HasPrefix(rest, []byte("<!--")):
			end = "-->"
		case bytes.HasPrefix(rest, []byte("<!")):
			end = ">"
			// A DOCTYPE that defines things itself goes on to "]>". Parse refuses it, by name.
			if open, closed := bytes.IndexByte(rest, '['), bytes.IndexByte(rest, '>'); open >= 0 && open < closed {
				end = "]>"
			}
		default:
			after, ok := bytes.CutPrefix(rest, []byte("<topology"))
			return ok && len(after) > 0 && strings.IndexByte(" \t\r\n/>", after[0]) >= 0
		}
		_, after, ok := bytes.Cut(rest, []byte(end))
		if !ok {
			return false
		}
		rest = after
	}
}

// Parse reads an export of hwloc. The name is what messages and the provenance call it.
//
// What describes CPUs and memory must be right: an error, of type *Error, names file, line and
// element. A device that is described oddly is left out, or a fact of it is, and Host.Unread says
// which.
func Parse(b []byte, name string) (*topology.Host, error) {
	root, err := xmltree.Read(b, limits)
	if err != nil {
		return where.Finish(nil, err, name)
	}
	p := &parser{name: name, h: &topology.Host{}, functions: map[*element]*topology.PCIAddr{}}
	p.h.Provenance = topology.Provenance{Kind: topology.SourceHwloc, Name: name, Tool: "hwloc"}
	return where.Finish(p.h, p.read(root), name)
}

// A parser turns the elements of one file into a Host.
type parser struct {
	name    string
	version int      // 1, 2 or 3
	top     *element // topology
	machine *element // the root object: Machine, System, or whatever was left when others were filtered out
	h       *topology.Host
	err     error // the first failure

	pus    topology.CPUSet // numbers of all PU objects, or the machine's cpuset where the file has none
	online topology.CPUSet
	nodes  []*node         // in the order of the file, which is hwloc's logical order
	hidden topology.CPUSet // nodes that the machine has and the file does not describe

	inL3, inCore topology.CPUSet     // CPUs of the L3 caches and cores so far
	byIndex      map[string]*element // objects by gpIndex; made when first asked for

	functions map[*element]*topology.PCIAddr // of the devices of the operating system that libraries for GPUs made
}

// read takes the parts in the order in which they need each other: CPUs, nodes that have CPUs, devices near nodes.
func (p *parser) read(root *element) error {
	p.top = root
	if root.Name != "topology" {
		p.fail(root, "root element %q; hwloc's XML begins with topology", root.Name)
	}
	p.readVersion()
	for k := range root.All("object") {
		if p.machine != nil {
			p.fail(k, "second root object; the first is at line %d", p.machine.Line)
		}
		p.machine = k
	}
	if p.machine == nil {
		p.fail(root, "no object in it")
	}
	if p.err != nil {
		return p.err
	}
	for _, step := range []func(){
		p.readSystem, p.readCPUStates, p.readNodes, p.readCPUs, p.readKinds, p.readDistances, p.readDevices,
		p.readNVLinks,
	} {
		if step(); p.err != nil {
			return p.err
		}
	}
	return nil
}

// readVersion sets the version. Files of hwloc 1.x have none.
func (p *parser) readVersion() {
	v, ok := p.top.Lookup("version")
	major, _, _ := strings.Cut(v, ".")
	switch {
	case !ok, major == "1":
		p.version = 1
	case major == "2":
		p.version = 2
	case major == "3":
		p.version = 3
	default:
		p.fail(p.top, "version %q; versions 1 to 3 are known", v)
	}
}

// info returns what the machine is said to be called, made by, run by. Version 3 has these beside
// the objects, earlier ones inside the root.
func (p *parser) info(name string) string {
	if v := infoOf(p.machine, name); v != "" {
		return v
	}
	return infoOf(p.top, name)
}

// readSystem takes what describes the machine as a whole. The host name and serial numbers are not kept.
func (p *parser) readSystem() {
	s := &p.h.System
	s.Vendor = p.info("DMISysVendor")
	s.Product = cmp.Or(p.info("DMIProductName"), p.info("PlatformModel")) // of DMI, or of a device tree
	s.Board = p.info("DMIBoardName")
	s.BIOS = strings.TrimSpace(p.info("DMIBIOSVersion") + " " + p.info("DMIBIOSDate"))
	s.Arch = p.info("Architecture")
	if p.info("OSName") == "Linux" {
		p.h.Kernel.Release = p.info("OSRelease")
	}
	if v := strings.TrimPrefix(p.info("hwlocVersion"), "v"); v != "" {
		p.h.Provenance.Tool = "hwloc " + v
	}
}

// wroteVersion1 reports whether hwloc 1 is known to have written the file. hwloc 2 can write
// version 1 too, and fills in less.
func (p *parser) wroteVersion1() bool {
	return p.version == 1 && strings.HasPrefix(strings.TrimPrefix(p.info("hwlocVersion"), "v"), "1.")
}

// fail makes the file an error at an element. The first stays; what is read after it is thrown
// away, so a step may go on to its end.
func (p *parser) fail(e *element, format string, args ...any) {
	if p.err == nil {
		p.err = where.At(e.Line, "%s: "+format, append([]any{label(e)}, args...)...)
	}
}

// unread notes a fact at an element that is there and cannot be used. The file is read without it.
func (p *parser) unread(e *element, format string, args ...any) {
	p.h.Unread = append(p.h.Unread, topology.Unread{
		Path: fmt.Sprintf("%s:%d: %s", p.name, e.Line, label(e)),
		Why:  fmt.Sprintf(format, args...),
	})
}
