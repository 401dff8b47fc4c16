// Package hwlocxml reads the XML that hwloc and lstopo export into a topology.Host.
//
// In version 1, a topology element without a version, NUMA nodes are in the tree of CPUs, all caches have one type, and
// matrices are lists of floats. In version 2 NUMA nodes hang beside the tree, and matrices and kinds of CPUs follow the
// objects. Version 3 writes PCI classes, device types and sizes differently.
//
// Sources: hwloc's documentation, hwloc2.dtd and hwloc.dtd, and the exports of lstopo.
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

// A machine of 2048 CPUs makes 10 MB of version 1. hwloc's trees have some 30 levels, PCI bridges included.
const (
	maxNodes = 1 << 12 // kernel configurations have at most 1024
	maxPCI   = 1 << 14 // machines with 4096 virtual functions exist
)

var limits = xmltree.Limits{Bytes: 64 << 20, Elements: 1 << 20, Depth: 256}

// Sniff reports whether head, the beginning of a file, is hwloc's XML. It should have at least 4 KiB, because a
// declaration, comments and a DOCTYPE may come first.
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
			// A DOCTYPE with definitions ends with "]>".
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

// Parse reads an export of hwloc. name appears in messages and the provenance.
//
// CPUs and memory must be right, else Parse returns an *Error. Odd devices, or odd facts about a device, are left out
// and listed in Host.Unread.
func Parse(b []byte, name string) (*topology.Host, error) {
	root, err := xmltree.Read(b, limits)
	if err != nil {
		return where.Finish(nil, err, name)
	}
	p := &parser{name: name, h: &topology.Host{}, functions: map[*element]*topology.PCIAddr{}}
	p.h.Provenance = topology.Provenance{Kind: topology.SourceHwloc, Name: name, Tool: "hwloc"}
	return where.Finish(p.h, p.read(root), name)
}

type parser struct {
	name    string
	version int      // 1, 2 or 3
	top     *element // the topology element
	machine *element // Machine, System, or another type if these were filtered out
	h       *topology.Host
	err     error // the first failure

	pus    topology.CPUSet // of all PU objects or, without these, the machine's cpuset
	online topology.CPUSet
	nodes  []*node         // in hwloc's logical order
	hidden topology.CPUSet // nodes that the file does not describe

	inL3, inCore topology.CPUSet     // read so far
	byIndex      map[string]*element // built on first use

	functions map[*element]*topology.PCIAddr // of the OS devices of GPU libraries
}

// read reads CPUs before nodes, nodes before devices.
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

// readVersion accepts no version, as in hwloc 1.x.
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

// info returns a fact on the machine. Version 3 has these beside the objects, earlier versions inside the root.
func (p *parser) info(name string) string {
	if v := infoOf(p.machine, name); v != "" {
		return v
	}
	return infoOf(p.top, name)
}

// readSystem drops the host name and serial numbers.
func (p *parser) readSystem() {
	s := &p.h.System
	s.Vendor = p.info("DMISysVendor")
	s.Product = cmp.Or(p.info("DMIProductName"), p.info("PlatformModel"))
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

// wroteVersion1 is false if hwloc 2 wrote version 1, which has fewer attributes.
func (p *parser) wroteVersion1() bool {
	return p.version == 1 && strings.HasPrefix(strings.TrimPrefix(p.info("hwlocVersion"), "v"), "1.")
}

// fail records the first error. A step may continue after it, because its results are discarded.
func (p *parser) fail(e *element, format string, args ...any) {
	if p.err == nil {
		p.err = where.At(e.Line, "%s: "+format, append([]any{label(e)}, args...)...)
	}
}

func (p *parser) unread(e *element, format string, args ...any) {
	p.h.Unread = append(p.h.Unread, topology.Unread{
		Path: fmt.Sprintf("%s:%d: %s", p.name, e.Line, label(e)),
		Why:  fmt.Sprintf(format, args...),
	})
}
