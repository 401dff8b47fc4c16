package hwlocxml

import (
	"encoding/xml"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/dump/xmltree"
	"github.com/rackless/rackless/machine/topology"
)

// ConsoleLine matches the first object of lstopo's text, without indentation: "Machine (504GB total)".
var ConsoleLine = lazyregexp.New(`^(?:Machine|System)(?: [LP]#\d+)? \((?:P#\d+ )?(?:\d|total=|local=)[^()]*`)

var (
	// consoleObject matches one of the objects that a line joins with " + ": type, details of the type, both numbers,
	// the address or ids of a PCI function, attributes, and the name of a device.
	consoleRoot = lazyregexp.New(`^(?:Machine|System)(?: [LP]#\d+)?(?: \(|$| \+ )`)
	// consoleMany matches functions that lstopo joins: "3 x { PCI 0b:00.1-3 (Ethernet) }".
	consoleMany   = lazyregexp.New(`^\d+ x \{ (PCI(?:Dev)?\b.*?\b[0-9a-f]{2}:[0-9a-f]{2}\.)([0-7])-([0-7])( .*) \}$`)
	consoleObject = lazyregexp.New(`^([A-Z][A-Za-z0-9-]*?)(?:\(([^()]*)\))?( L#\d+(?:-\d+)?)?(?: P#(\d+))?` +
		`( [0-9a-fA-F:]+(?:\.[0-7])?)?(?: \((.*)\))?(?: "(.*)")?$`)
	consoleSum    = lazyregexp.New(`(?:^| )(?:(\d+)(Ki?B|Mi?B|Gi?B|Ti?B) total|total=(\d+)(Ki?B|Mi?B|Gi?B|Ti?B))`)
	consoleMemory = lazyregexp.New(`(?:^| )(?:local=)?(\d+)(Ki?B|Mi?B|Gi?B|Ti?B)(?: |$)`)
	consoleSize   = lazyregexp.New(`(?:^| )(?:size=)?(\d+)(Ki?B|Mi?B|Gi?B|Ti?B)(?: |$)`)
	consoleNumber = lazyregexp.New(`^P#(\d+)(?: |$)`)
	consoleBus    = lazyregexp.New(`\bbusid=([0-9a-fA-F:]+\.[0-7])`)
	consoleBuses  = lazyregexp.New(`\bbuses=([0-9a-fA-F]{4}:\[[0-9a-fA-F]{2}-[0-9a-fA-F]{2}\])`)
	consoleClass  = lazyregexp.New(`\bclass=([0-9a-fA-F]{4})`)
	consoleIDs    = lazyregexp.New(`\bid=([0-9a-fA-F]{4}:[0-9a-fA-F]{4})`)
)

// consoleClasses has the PCI classes of the names that lstopo prints. Source: hwloc_pci_class_string in hwloc's
// traversal.c.
var consoleClasses = map[string]string{"3D": "0302", "VGA": "0300", "Display": "0380", "Ethernet": "0200",
	"InfiniBand": "0207", "Fabric": "0208", "Network": "0280", "SATA": "0106", "SAS": "0107", "NVMExp": "0108",
	"RAID": "0104", "SCSI": "0100", "IDE": "0101", "Storage": "0180", "Fibre": "0c04", "Co-Processor": "0b40"}

// consoleTypes has the types of hwloc's XML for the names in its text, if these differ.
var consoleTypes = map[string]string{"System": "Machine", "Socket": "Package", "L3": "L3Cache", "PCI": "PCIDev",
	"HostBridge": "Bridge", "PCIBridge": "Bridge"}

// osDevices has the numbers of version 2.
var osDevices = map[string]string{"Block": "0", "GPU": "1", "Net": "2", "Network": "2", "OpenFabrics": "3", "DMA": "4",
	"CoProc": "5", "Co-Processor": "5", "Memory": "6"}

const maxConsole = 16 << 20

// ParseConsole reads the text that lstopo prints on a terminal, also with -v or -p, or from hwloc 1.x.
//
// It has no bridges with addresses. The paths between GPUs and NICs follow from the levels of the tree, and are in
// Host.Reported.
func ParseConsole(b []byte, name string) (*topology.Host, error) {
	p := &parser{name: name, h: &topology.Host{}, functions: map[*element]*topology.PCIAddr{}, version: 2}
	p.h.Provenance = topology.Provenance{Kind: topology.SourceTexts, Name: name, Tool: "lstopo"}
	if len(b) > maxConsole {
		return where.Finish(nil, where.At(1, "%d bytes of lstopo; at most %d are read", len(b), maxConsole), name)
	}
	c := &console{parser: p}
	root, err := c.tree(string(b))
	if err == nil {
		err = p.read(root)
	}
	if err == nil {
		c.complete()
	}
	return where.Finish(p.h, err, name)
}

type console struct {
	*parser
	count int
	cut   bool
	total uint64 // bytes of the machine, rounded as lstopo does
}

// A level is an open object, its indentation and the number of objects above.
type level struct {
	e             *element
	indent, depth int
}

// tree builds the objects as version 2 of the XML has them.
func (c *console) tree(text string) (*element, error) {
	root := newElement("topology", 1)
	setAttr(root, "version", "2.0")
	open := []level{{root, -1, 0}}
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimRight(line, " \t\r")
		trimmed := strings.TrimLeft(line, " \t")
		if trimmed == "" {
			continue
		}
		indent := len(line) - len(trimmed)
		if len(open) == 1 && !consoleRoot().MatchString(trimmed) {
			continue // the command line above
		}
		for len(open) > 2 && indent <= open[len(open)-1].indent {
			open = open[:len(open)-1]
		}
		if len(open) > 1 && indent <= open[1].indent {
			break // text below the tree
		}
		above, depth := open[len(open)-1].e, open[len(open)-1].depth
		if m := consoleMany().FindStringSubmatch(trimmed); m != nil {
			for function := m[2][0]; function <= m[3][0]; function++ {
				e := c.object(m[1]+string(function)+m[4], n)
				if c.count++; e != nil && c.count <= limits.Elements {
					above.Kids = append(above.Kids, e)
				}
			}
			continue
		}
		for object := range strings.SplitSeq(trimmed, " + ") {
			e := c.object(object, n)
			if e == nil {
				c.cut = true
				c.unread(newElement("lstopo", n), "%q is no object: the text is cut off, or broken, here",
					where.Clip(object))
				break
			}
			depth++
			if c.count++; c.count > limits.Elements || depth > limits.Depth {
				return nil, where.At(n, "more than %d objects, or %d levels", limits.Elements, limits.Depth)
			}
			above.Kids = append(above.Kids, e)
			above = e
		}
		if c.cut {
			break
		}
		open = append(open, level{above, indent, depth})
	}
	if len(root.Kids) == 0 {
		return nil, where.At(1, "no object of lstopo; its text begins with Machine")
	}
	return root, c.sets(root.Kids[0])
}

// object returns nil if the text is not an object.
func (c *console) object(text string, line int) *element {
	m := consoleObject().FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	kind, detail, number, place, attributes, name := m[1], m[2], m[4], strings.TrimSpace(m[5]), m[6], m[7]
	if number == "" {
		number = group(consoleNumber, attributes)
	}
	e := newElement("object", line)
	base := strings.TrimRight(kind, "0123456789")
	switch osType, isOS := osDevices[kind]; {
	case isOS:
		setAttr(e, "type", "OSDev")
		setAttr(e, "osdev_type", osType)
		setAttr(e, "subtype", detail)
		setAttr(e, "name", name)
	case base == "Group":
		setAttr(e, "type", base)
	case consoleTypes[kind] != "":
		setAttr(e, "type", consoleTypes[kind])
	default:
		setAttr(e, "type", kind)
	}
	setAttr(e, "os_index", number)
	switch kind {
	case "Machine", "System":
		c.total = consoleBytes(consoleSum, attributes)
		for _, key := range []string{"DMISysVendor", "DMIProductName", "DMIBoardName", "Architecture", "OSName",
			"OSRelease"} {
			addInfo(e, key, verbose(attributes, key))
		}
	case "Package", "Socket":
		addInfo(e, "CPUModel", verbose(attributes, "CPUModel"))
	case "NUMANode":
		size := consoleBytes(consoleMemory, attributes)
		if size == 0 {
			size = consoleBytes(consoleSum, attributes)
		}
		if size > 0 {
			setAttr(e, "local_memory", strconv.FormatUint(size, 10))
		}
	case "L3", "L3Cache":
		if size := consoleBytes(consoleSize, attributes); size > 0 {
			setAttr(e, "cache_size", strconv.FormatUint(size, 10))
		}
	case "HostBridge", "PCIBridge", "PCI", "PCIDev":
		setAttr(e, "bridge_pci", group(consoleBuses, attributes))
		if address := group(consoleBus, attributes); address != "" {
			place = address
		}
		switch {
		case kind == "HostBridge":
			setAttr(e, "bridge_type", typeHostBridge)
		case strings.Contains(place, "."):
			setAttr(e, "pci_busid", place)
		case kind != "PCIBridge": // hwloc before 2.1 has the ids here
			setAttr(e, "ids", place)
			setAttr(e, unplaced, "1")
		}
		class := group(consoleClass, attributes)
		if class == "" {
			class = consoleClasses[attributes]
		}
		setAttr(e, "class", class)
		setAttr(e, "ids", group(consoleIDs, attributes))
	}
	return e
}

// sets gives each object of the tree its CPUs, which lstopo's text has at the PUs only.
func (c *console) sets(machine *element) error {
	var unnumbered *element
	var fill func(e *element) topology.CPUSet
	fill = func(e *element) topology.CPUSet {
		var cpus topology.CPUSet
		if e.Attr("type") == "PU" {
			n, err := strconv.Atoi(e.Attr("os_index"))
			if err != nil || n >= topology.MaxCPUs {
				unnumbered = e
				return cpus
			}
			cpus = topology.CPUs(n)
		}
		var memory []*element
		for _, k := range e.Kids {
			of := fill(k)
			cpus = cpus.Union(of)
			if of.IsEmpty() {
				memory = append(memory, memoryOf(k)...)
			}
		}
		switch e.Attr("type") {
		case "Bridge", "PCIDev", "OSDev", "Misc", "MemCache":
			return topology.CPUSet{}
		}
		if !cpus.IsEmpty() {
			setAttr(e, "cpuset", cpus.Mask())
		}
		for _, k := range memory {
			setAttr(k, "cpuset", cpus.Mask())
		}
		return cpus
	}
	cpus := fill(machine)
	if unnumbered != nil {
		return where.At(unnumbered.Line, "a PU without the number of its CPU, as lstopo -l prints it: lstopo "+
			"without -l prints both numbers")
	}
	if cpus.IsEmpty() {
		return where.At(machine.Line, "no PU with the number of its CPU: the text is cut off, or was made without CPUs")
	}
	return nil
}

// memoryOf returns a NUMA node beside the CPUs, which may be behind caches of memory.
func memoryOf(e *element) []*element {
	var out []*element
	switch e.Attr("type") {
	case "NUMANode":
		out = append(out, e)
	case "MemCache":
		for _, k := range e.Kids {
			out = append(out, memoryOf(k)...)
		}
	}
	return out
}

// complete adds what the text tells beside the objects of the XML.
func (c *console) complete() {
	h := c.h
	var sum uint64
	for i := range h.NUMANodes {
		if size := h.NUMANodes[i].MemoryBytes; size != nil {
			sum += *size
		}
	}
	// Each node is rounded, and the total is, too.
	if sum > 0 && c.total > sum && float64(c.total-sum) > 0.05*float64(c.total) {
		c.cut = true
		c.unread(c.machine, "the machine has %d GiB, and the NUMA nodes of the text have %d: the rest is cut off",
			c.total>>30, sum>>30)
	}
	if c.cut {
		h.CPUs = topology.CPUStates{Cut: true}
		h.Memory.TotalBytes = nil
		if c.total > 0 {
			h.Memory.TotalBytes = &c.total
		}
	}
	h.Reported = c.paths()
}

// paths returns the paths between functions that the levels of the tree tell.
func (c *console) paths() []topology.Path {
	type place struct {
		id    string
		at    topology.PCIAddr
		above []*element // bridges, the nearest first; the last is the host bridge
		node  *int
	}
	var places []place
	nodes, seen := map[topology.PCIAddr]*int{}, map[topology.PCIAddr]int{}
	for i := range c.h.PCI {
		nodes[c.h.PCI[i].Address] = c.h.PCI[i].NUMANode
	}
	var walk func(e *element, bridges []*element)
	walk = func(e *element, bridges []*element) {
		switch e.Attr("type") {
		case "Bridge":
			bridges = append([]*element{e}, bridges...)
		case "PCIDev":
			a, err := topology.ParsePCIAddr(e.Attr("pci_busid"))
			if seen[a]++; err == nil && isEndpoint(e) {
				places = append(places, place{a.String(), a, bridges, nodes[a]})
			}
		}
		for _, k := range e.Kids {
			walk(k, bridges)
		}
	}
	walk(c.machine, nil)
	// Of two functions with one address, it is unknown which is meant.
	places = slices.DeleteFunc(places, func(p place) bool { return seen[p.at] > 1 })
	const most = 256 // functions, of which each pair has a path
	if len(places) > most {
		return nil
	}
	var out []topology.Path
	for i, a := range places {
		for _, b := range places[i+1:] {
			class := topology.PathUnknown
			up, down := meeting(a.above, b.above)
			switch {
			case a.at.SameDevice(b.at):
				class = topology.PathPIX
			case up >= 0 && a.above[up].Attr("bridge_type") == typeHostBridge:
				class = topology.PathPHB
			case up > 1 || down > 1:
				class = topology.PathPXB
			case up >= 0:
				class = topology.PathPIX
			case a.node != nil && b.node != nil && *a.node != *b.node:
				class = topology.PathSYS
			case len(a.above) > 0 && len(b.above) > 0 && (a.node != nil && b.node != nil || len(c.h.NUMANodes) == 1):
				class = topology.PathNODE
			}
			if class != topology.PathUnknown {
				out = append(out, topology.Path{A: a.id, B: b.id, Class: class})
			}
		}
	}
	return out
}

// isEndpoint reports whether a function may be a GPU or a NIC.
func isEndpoint(e *element) bool {
	for _, k := range e.Kids {
		switch k.Attr("osdev_type") {
		case osDevices["GPU"], osDevices["Net"], osDevices["OpenFabrics"], osDevices["CoProc"]:
			return true
		}
	}
	class := e.Attr("class")
	return strings.HasPrefix(class, "03") || strings.HasPrefix(class, "02")
}

// meeting returns the numbers of bridges below the nearest bridge above both, or -1 if there is none.
func meeting(a, b []*element) (i, j int) {
	i, j = len(a), len(b)
	for i > 0 && j > 0 && a[i-1] == b[j-1] {
		i, j = i-1, j-1
	}
	if i == len(a) {
		return -1, -1
	}
	return i, j
}

const (
	typeHostBridge = "0-1"
	unplaced       = "unplaced" // attribute of a function whose address the text does not have
)

func newElement(name string, line int) *element { return &xmltree.Element{Name: name, Line: line} }

// set leaves out empty values.
func setAttr(e *element, name, value string) {
	if value != "" {
		e.Attrs = append(e.Attrs, xml.Attr{Name: xml.Name{Local: name}, Value: value})
	}
}

func addInfo(e *element, name, value string) {
	if value == "" {
		return
	}
	k := newElement("info", e.Line)
	setAttr(k, "name", name)
	setAttr(k, "value", value)
	e.Kids = append(e.Kids, k)
}

// group returns the first group of a form in a text, or "".
func group(form func() *regexp.Regexp, text string) string {
	if m := form().FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// verbose returns the value of key="value" or key=value, as -v prints it.
func verbose(attributes, key string) string {
	_, rest, ok := strings.Cut(" "+attributes, " "+key+"=")
	if !ok {
		return ""
	}
	if quoted, ok := strings.CutPrefix(rest, `"`); ok {
		value, _, _ := strings.Cut(quoted, `"`)
		return value
	}
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// consoleBytes returns 0 if the form is not in the text. hwloc's KB are 1,024 bytes.
func consoleBytes(form func() *regexp.Regexp, text string) uint64 {
	m := form().FindStringSubmatch(text)
	for i := 1; i+1 < len(m); i += 2 {
		if n, err := strconv.ParseUint(m[i], 10, 64); err == nil {
			shift := map[byte]uint{'K': 10, 'M': 20, 'G': 30, 'T': 40}[m[i+1][0]]
			if n < math.MaxInt64>>shift {
				return n << shift
			}
		}
	}
	return 0
}
