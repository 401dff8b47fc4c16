package inspect

import (
	"encoding/xml"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

type found struct {
	online    topology.CPUSet
	nodes     map[int]foundNode
	distances map[[2]int]int
	packages  []foundSet
	cores, l3 []foundSet
	pci       map[topology.PCIAddr]topology.CPUSet // nearby CPUs
	// not only functions that hwloc considers interesting
	wholeIO bool
}

// A foundSet has no number if hwloc did not know it.
type foundSet struct {
	id   *int
	cpus topology.CPUSet
}

// A foundNode has memory rounded to unit bytes.
type foundNode struct {
	kind         string // HBM, MCDRAM, NVM, DRAM, GPUMemory
	cpus         topology.CPUSet
	memory, unit uint64
}

type foundObject struct {
	kind, subtype string
	id            *int
	cpus          topology.CPUSet
	hasCPUs       bool // else the union of the children's
	memory, unit  uint64
	address       string
	children      []*foundObject
}

func (o *foundObject) complete() topology.CPUSet {
	for _, c := range o.children {
		set := c.complete()
		if !o.hasCPUs {
			o.cpus = o.cpus.Union(set)
		}
	}
	if o.kind == "PU" && o.id != nil && !o.hasCPUs {
		o.cpus = topology.CPUs(*o.id)
	}
	return o.cpus
}

// collect takes as near the CPUs of the closest object that is neither memory nor a device.
func (f *found) collect(o *foundObject, near topology.CPUSet) error {
	switch o.kind {
	case "NUMANode":
		if o.id == nil {
			return fmt.Errorf("NUMA node without a number")
		}
		cpus := near
		if o.hasCPUs {
			cpus = o.cpus
		}
		f.nodes[*o.id] = foundNode{o.subtype, cpus, o.memory, o.unit}
	case "Package", "Socket":
		f.packages = append(f.packages, foundSet{o.id, o.cpus})
	case "Core":
		f.cores = append(f.cores, foundSet{o.id, o.cpus})
	case "L3Cache", "L3":
		// hwloc shows KNL's fast memory in cache mode as a cache.
		if o.subtype != "MemorySideCache" {
			f.l3 = append(f.l3, foundSet{cpus: o.cpus})
		}
	case "PU":
		f.online = f.online.Union(o.cpus)
	}
	if o.address != "" {
		a, err := topology.ParsePCIAddr(o.address)
		if err != nil {
			return err
		}
		f.pci[a] = near
	}
	switch o.kind {
	case "NUMANode", "MemCache", "Bridge", "HostBridge", "PCIBridge", "PCI", "PCIDev", "OSDev", "Misc":
	default:
		near = o.cpus
	}
	for _, c := range o.children {
		if err := f.collect(c, near); err != nil {
			return err
		}
	}
	return nil
}

func newFound() *found {
	return &found{nodes: map[int]foundNode{}, distances: map[[2]int]int{}, pci: map[topology.PCIAddr]topology.CPUSet{}}
}

// consoleLine matches " NUMANode(HBM) L#3 (P#4 local=512MiB ...)".
var consoleLine = regexp.MustCompile(
	`^( *)([A-Z][A-Za-z0-9]*)(?:\(([^)]*)\))?(?:\[[^]]*\])?(?:\(([^)]*)\))?(?: L#\d+)?(?: P#(\d+))?` +
		`(?: \((.*?)\))?(?: \(disallowed\))?(?: ".*")?$`)

func parseConsole(text string) (*found, error) {
	f := newFound()
	type open struct {
		indent int
		object *foundObject
	}
	root := &foundObject{kind: "root"}
	stack := []open{{-1, root}}
	numbers := []int{} // by logical number
	var columns []int
	inMatrix := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "Relative latency matrix") {
			inMatrix, columns = true, nil
			continue
		}
		if inMatrix {
			fields := strings.Fields(line)
			if len(fields) > 1 && fields[0] == "index" {
				for _, c := range fields[1:] {
					n, err := strconv.Atoi(c)
					if err != nil || n >= len(numbers) {
						return nil, fmt.Errorf("matrix: column %q", c)
					}
					columns = append(columns, numbers[n])
				}
				continue
			}
			row, err := atois(fields)
			if err == nil && columns != nil && len(row) == len(columns)+1 {
				for i, v := range row[1:] {
					f.distances[[2]int{numbers[row[0]], columns[i]}] = v
				}
				continue
			}
			inMatrix = false
		}
		m := consoleLine.FindStringSubmatch(line)
		if m == nil || !strings.Contains(line, "#") && !strings.HasPrefix(line, "Machine") && !strings.HasPrefix(line,
			"System") {
			continue
		}
		indent := len(m[1])
		o := &foundObject{kind: m[2], subtype: m[3]}
		if m[5] != "" {
			o.id = atoi(m[5])
		}
		for _, attribute := range strings.Fields(m[6]) {
			switch key, value, _ := strings.Cut(attribute, "="); {
			case strings.HasPrefix(attribute, "P#"):
				o.id = atoi(attribute[2:])
			case key == "local":
				o.memory, o.unit = parseMemory(value)
			case key == attribute && o.kind == "NUMANode": // not verbose: "NUMANode P#0 (3958MiB)"
				o.memory, o.unit = parseMemory(attribute)
			case key == "busid":
				o.address = value
			}
		}
		if o.kind == "NUMANode" && o.id != nil {
			numbers = append(numbers, *o.id)
		}
		for stack[len(stack)-1].indent >= indent {
			stack = stack[:len(stack)-1]
		}
		parent := stack[len(stack)-1].object
		parent.children = append(parent.children, o)
		stack = append(stack, open{indent, o})
	}
	root.complete()
	return f, f.collect(root, topology.CPUSet{})
}

func atoi(s string) *int {
	v, err := strconv.Atoi(s)
	if err != nil {
		return nil
	}
	return &v
}

func atois(fields []string) ([]int, error) {
	out := make([]int, len(fields))
	for i, f := range fields {
		v, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// parseMemory also parses the "8299024KB" of old versions.
func parseMemory(s string) (bytes, unit uint64) {
	for _, u := range []struct {
		suffix string
		shift  int
	}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"KB", 10}, {"MB", 20}, {"GB", 30}} {
		if digits, ok := strings.CutSuffix(s, u.suffix); ok {
			v, _ := strconv.ParseUint(digits, 10, 32)
			return v << u.shift, 1 << u.shift
		}
	}
	return 0, 0
}

func parseHwlocXML(text string) (*found, error) {
	f := newFound()
	d := xml.NewDecoder(strings.NewReader(text))
	root := &foundObject{kind: "root"}
	stack := []*foundObject{root}
	var indexes, values []int
	name := ""
	var into *[]int
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			into = nil
			switch t.Name.Local {
			case "object":
				o, err := xmlObject(t)
				if err != nil {
					return nil, err
				}
				parent := stack[len(stack)-1]
				parent.children = append(parent.children, o)
				stack = append(stack, o)
			case "distances2":
				name, indexes, values = xmlAttribute(t, "name"), nil, nil
			case "indexes":
				into = &indexes
			case "u64values":
				into = &values
			}
		case xml.CharData:
			if into != nil {
				row, err := atois(strings.Fields(string(t)))
				if err != nil {
					return nil, err
				}
				*into = append(*into, row...)
			}
		case xml.EndElement:
			into = nil
			switch t.Name.Local {
			case "object":
				stack = stack[:len(stack)-1]
			case "distances2":
				if name == "NUMALatency" && len(values) == len(indexes)*len(indexes) {
					for i, v := range values {
						f.distances[[2]int{indexes[i/len(indexes)], indexes[i%len(indexes)]}] = v
					}
				}
			}
		}
	}
	root.complete()
	return f, f.collect(root, topology.CPUSet{})
}

func xmlAttribute(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func xmlObject(t xml.StartElement) (*foundObject, error) {
	o := &foundObject{
		kind: xmlAttribute(t, "type"), subtype: xmlAttribute(t, "subtype"), id: atoi(xmlAttribute(t, "os_index")),
		address: xmlAttribute(t, "pci_busid"),
	}
	if s := xmlAttribute(t, "local_memory"); s != "" {
		v, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			return nil, err
		}
		o.memory, o.unit = v, 1
	}
	if s := xmlAttribute(t, "cpuset"); s != "" {
		set, err := topology.ParseCPUMask(s)
		if err != nil {
			return nil, err
		}
		o.cpus, o.hasCPUs = set, true
	}
	return o, nil
}
