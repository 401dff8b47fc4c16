package texts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/topology"
)

// An lshwNode is one element of lshw -json.
type lshwNode struct {
	Class, Description, Product, Vendor, Businfo, Serial string

	LogicalName   any `json:"logicalname"` // a name or a list of them
	Size          json.Number
	Configuration map[string]any
	Children      []*lshwNode
}

// lshwClasses are descriptions of lshw, with the class of PCI that each is of.
var lshwClasses = map[string]topology.ID24{
	"VGA compatible controller": 0x030000, "3D controller": 0x030200, "Display controller": 0x038000,
	"Ethernet interface": 0x020000, "Ethernet controller": 0x020000, "Infiniband controller": 0x020700,
	"interface": 0x020700, "Network controller": 0x028000, "Non-Volatile memory controller": 0x010802,
	"NVMe device": 0x010802, "PCI bridge": 0x060400, "Processing accelerators": 0x120000, "Host bridge": 0x060000,
}

// lshw reads the machine as lshw -json prints it: one object, a list with one, or a list of the devices of a class.
func (r *reader) lshw() {
	text := strings.TrimSpace(r.Text.Text)
	var list []lshwNode
	if strings.HasPrefix(text, "{") {
		var one lshwNode
		if r.json(&one) {
			list = append(list, one)
		}
	} else if strings.HasPrefix(text, "[") {
		r.json(&list)
	} else {
		root := r.lshwText()
		// Of one class (-C) the machine and the way to the devices are left out.
		r.lshwNode(&root, nil, nil, root.Product != "" || strings.Contains(text, "*-core"), 0)
	}
	for i := range list {
		r.lshwNode(&list[i], nil, nil, list[i].Class == "system", 0)
	}
}

// lshwItem matches the first line of an element: "  *-display:0 UNCLAIMED".
var lshwItem = lazyregexp.New(`^( *)\*-([a-z0-9]+)(?::\d+)?(?: +[A-Z].*)?$`)

// lshwText makes the elements of the text of lshw, by their indentation. What stands above the first is the machine.
func (r *reader) lshwText() lshwNode {
	root := lshwNode{Class: "system"}
	type open struct {
		indent int
		n      *lshwNode
	}
	stack := []open{{-1, &root}}
	at := &root
	for line := range strings.SplitSeq(r.Text.Text, "\n") {
		if m := lshwItem.FindStringSubmatch(strings.TrimRight(line, " ")); m != nil {
			for stack[len(stack)-1].indent >= len(m[1]) {
				stack = stack[:len(stack)-1]
			}
			up := stack[len(stack)-1].n
			// Classes of elements are named by what they are, but for these.
			class := map[string]string{"cpu": "processor", "nvme": "storage", "pci": "bridge", "core": "bus"}[m[2]]
			up.Children = append(up.Children, &lshwNode{Class: cmp.Or(class, m[2]), Configuration: map[string]any{}})
			at = up.Children[len(up.Children)-1]
			stack = append(stack, open{len(m[1]), at})
			continue
		}
		key, value, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if text := map[string]*string{"description": &at.Description, "product": &at.Product, "vendor": &at.Vendor,
			"bus info": &at.Businfo, "serial": &at.Serial}[key]; text != nil {
			*text = value
		}
		switch key {
		case "logical name":
			names, _ := at.LogicalName.([]any)
			at.LogicalName = append(names, value)
		case "size":
			if v := size(value); v != nil {
				at.Size = json.Number(strconv.FormatUint(*v, 10))
			}
		case "configuration":
			// Values have no quotes. Of one with blanks, such as a version with a board's name, the first word is kept.
			for word := range strings.FieldsSeq(value) {
				if k, v, ok := strings.Cut(word, "="); ok && at.Configuration != nil {
					at.Configuration[k] = v
				}
			}
		}
	}
	return root
}

// lshwNode reads an element and what is in it. parent is the bridge above, and on the function that
// it is a part of; whole is set where the text is of a whole machine, so that what has no bridge
// above stands on a root bus.
func (r *reader) lshwNode(n *lshwNode, parent, on *topology.PCIAddr, whole bool, depth int) {
	// The nesting comes from outside, and each level is a call.
	if depth > 64 {
		return
	}
	name, isPCI := strings.CutPrefix(n.Businfo, "pci@")
	a := address(name)
	switch {
	case isPCI && a != nil:
		r.lshwPCI(n, *a, parent, whole)
		on = a
		if n.Description == "PCI bridge" {
			parent = a
		}
	case n.Class == "network" && on != nil: // below a virtio function
		r.lshwNetdevs(n, *on)
	case n.Class == "system" && depth == 0 && n.Product != "":
		// lshw writes the number of the product behind its name: "PowerEdge R740 (SKU=NotProvided)".
		r.h.System.Vendor, r.h.System.Product = n.Vendor, strings.TrimSpace(strings.Split(n.Product, " (")[0])
	case n.Class == "processor" && r.h.System.CPUModel == "":
		r.h.System.CPUModel = n.Product
	case n.Class == "memory" && strings.EqualFold(n.Description, "System memory"):
		if v, err := strconv.ParseUint(n.Size.String(), 10, 62); err == nil && r.h.Memory.TotalBytes == nil {
			r.h.Memory.TotalBytes = &v
		}
	}
	for i := range n.Children {
		r.lshwNode(n.Children[i], parent, on, whole, depth+1)
	}
}

// lshwPCI reads a PCI function. lshw tells the driver of each function, so a missing one means that there is none. It
// prints names of vendors and no IDs (but with -numeric): only vendors that checks look for get theirs back.
func (r *reader) lshwPCI(n *lshwNode, a topology.PCIAddr, parent *topology.PCIAddr, whole bool) {
	d := topology.PCIDevice{Address: a, Parent: parent, ParentUnknown: parent == nil && !whole, VendorName: n.Vendor,
		DeviceName: n.Product, Driver: n.config("driver"), DriverKnown: true}
	if parent == nil && whole {
		d.Root = fmt.Sprintf("pci%04x:%02x", a.Domain, a.Bus)
	}
	if class, ok := lshwClasses[n.Description]; ok {
		d.Class = &class
	} else if n.Class == "network" {
		// 0x80 stands for "other" in both classes: what kind of NIC or screen it is, is not told.
		d.Class = new(topology.ID24(0x028000))
	} else if n.Class == "display" {
		d.Class = new(topology.ID24(0x038000))
	}
	for vendor, id := range map[string]topology.ID16{"NVIDIA": topology.VendorNVIDIA,
		"Mellanox": topology.VendorMellanox,
		"Intel":    topology.VendorIntel, "Broadcom": topology.VendorBroadcom,
		"Advanced Micro Devices, Inc. [AMD/ATI]": topology.VendorAMD} {
		if strings.HasPrefix(n.Vendor, vendor) {
			d.Vendor = new(id)
		}
	}
	r.h.PCI = append(r.h.PCI, d)
	if n.Class == "network" {
		r.lshwNetdevs(n, a)
	}
}

// lshwBus reads the table of lshw -businfo. Its columns stand below their titles, and that of devices may be empty. It
// has neither makers nor drivers.
func (r *reader) lshwBus() {
	device, class, what := -1, 0, 0
	for line := range strings.SplitSeq(r.Text.Text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "Bus info ") {
			device, class = strings.Index(line, "Device"), strings.Index(line, "Class")
			what = strings.Index(line, "Desc")
		}
		if device < 0 || len(line) <= what || !strings.Contains(line[:device], "pci@") {
			continue
		}
		n := lshwNode{Class: strings.TrimSpace(line[class:what]), Product: strings.TrimSpace(line[what:])}
		a := address(strings.TrimPrefix(strings.TrimSpace(line[:device]), "pci@"))
		if a == nil {
			continue
		}
		if name := strings.TrimSpace(line[device:class]); name != "" {
			n.LogicalName = name
		}
		if len(r.h.PCI) == 0 || r.h.PCI[len(r.h.PCI)-1].Address != *a {
			r.lshwPCI(&n, *a, nil, false)
			r.h.PCI[len(r.h.PCI)-1].DriverKnown = false
		} else if n.Class == "network" { // a further network device of one function
			r.lshwNetdevs(&n, *a)
		}
	}
}

// config returns a value of the configuration, "" where there is none.
func (n *lshwNode) config(key string) string {
	if v, ok := n.Configuration[key]; ok {
		return strings.TrimSpace(fmt.Sprint(v))
	}
	return ""
}

// lshwNetdevs reads the network devices of an element into the NIC at a.
func (r *reader) lshwNetdevs(n *lshwNode, a topology.PCIAddr) {
	nic := r.nicAt(a)
	if firmware := word(n.config("firmware")); firmware != "N/A" && firmware != "" {
		nic.Firmware = firmware
	}
	var names []string
	switch v := n.LogicalName.(type) {
	case string:
		names = []string{v}
	case []any:
		names = lists.Map(v, func(s any) string { return fmt.Sprint(s) })
	}
	for _, name := range names {
		p := netdev(nic, name)
		p.MAC = n.Serial
		if link := n.config("link"); link != "" {
			p.Carrier = new(link == "yes")
		}
	}
}
