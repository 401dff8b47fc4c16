package texts

import (
	"cmp"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// dmidecode reads the make of a machine, its processor and its memory modules.
//
// Source: SMBIOS specification (DSP0134), types 0, 1, 2, 4 and 17.
func (r *reader) dmidecode() {
	title, kind := "", ""
	var module *uint64
	var total uint64
	known := true
	next := func(to string) {
		if title == "Memory Device" && kind != "Flash" && !strings.Contains(kind, "non-volatile") {
			known = known && module != nil
			total += words.Value(module)
		}
		title, kind, module = to, "", nil
	}
	for line := range strings.SplitSeq(r.Text.Text, "\n") {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		if !ok {
			if heading := strings.TrimSpace(line); dmiTitles[heading] || strings.HasPrefix(heading, "Handle 0x") {
				next(heading)
			}
			continue
		}
		if value == "Not Specified" || value == "To Be Filled By O.E.M." {
			continue
		}
		s := &r.h.System
		switch title + ": " + key {
		case "BIOS Information: Version":
			s.BIOS = value
		case "BIOS Information: Release Date":
			s.BIOS = strings.TrimSpace(s.BIOS + " " + value)
		case "System Information: Manufacturer":
			s.Vendor = cmp.Or(s.Vendor, value)
		case "System Information: Product Name":
			s.Product = cmp.Or(s.Product, value)
		case "Base Board Information: Product Name":
			s.Board = cmp.Or(s.Board, value)
		case "Processor Information: Version":
			s.CPUModel = cmp.Or(s.CPUModel, value)
		case "Memory Device: Type":
			kind = value
		case "Memory Device: Size":
			if module = size(value); value == "No Module Installed" {
				module = new(uint64(0))
			}
		}
	}
	next("")
	if known && total > 0 {
		r.h.Memory.TotalBytes = &total
	}
}

// dmiTitles are the parts of dmidecode that are read.
var dmiTitles = map[string]bool{"BIOS Information": true, "System Information": true, "Base Board Information": true,
	"Processor Information": true, "Memory Device": true}

// lsmodForm matches the head of lsmod, which a whole list has, and modules for GPUs, RDMA and virtual machines.
const lsmodForm = `^Module\s+Size\s+Used by|^(` + modules + `)\s+\d{4,}\s+\d+(?:\s+[\w,]+)?$`

const modules = `nvidia\w*|nv_peer_mem|gdrdrv|nouveau|amdgpu|kvm\w*|vfio\w*|mlx[45]_\w+|ib_\w+|rdma_\w+|irdma|` +
	`bnxt_\w+|efa`

var lsmodLine = lazyregexp.New(lsmodForm)

// lsmod reads which modules are loaded. Without the head of the table others may have been left out.
func (r *reader) lsmod() {
	k := &r.h.Kernel
	for _, line := range r.lines() {
		switch m := lsmodLine.FindStringSubmatch(line); {
		case m == nil:
		case m[1] == "":
			k.ModulesKnown = true
		default:
			k.Modules = append(k.Modules, m[1])
		}
	}
	k.Modules = lists.Distinct(k.Modules)
}
