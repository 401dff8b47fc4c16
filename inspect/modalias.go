package inspect

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rackless/rackless/topology"
)

// readCandidates finds the drivers that could be bound to each function: those whose aliases, which
// depmod collects from the modules of the running kernel, match it. A driver that is built into the
// kernel is not listed there.
//
// The form of an alias is that of file2alias in the kernel: "pci:v000015B3d00001015sv*sd*bc*sc*i*".
func (r *reader) readCandidates() {
	if r.h.Kernel.Release == "" || len(r.h.PCI) == 0 || strings.Contains(r.h.Kernel.Release, "/") {
		return
	}
	b, ok := r.bytes(path.Join("lib/modules", r.h.Kernel.Release, "modules.alias"))
	if !ok {
		return
	}
	aliases := parseAliases(b, pciVendors(r.h))
	for i := range r.h.PCI {
		d := &r.h.PCI[i]
		if d.IsBridge() || d.Vendor == nil || d.Device == nil || d.Class == nil {
			continue
		}
		for _, a := range aliases {
			if a.matches(d) {
				d.Candidates = append(d.Candidates, a.module)
			}
		}
		slices.Sort(d.Candidates)
		d.Candidates = slices.Compact(d.Candidates)
	}
}

// A pciAlias is one alias of a module: the seven fields of a function that it wants, "*" for any.
type pciAlias struct {
	fields [7]string // vendor, device, subsystem's vendor and device, base class, subclass, interface: upper case
	module string
}

// pciAliasKeys are the letters before each field.
var pciAliasKeys = [7]string{"v", "d", "sv", "sd", "bc", "sc", "i"}

// matches reports whether the driver takes d.
func (a *pciAlias) matches(d *topology.PCIDevice) bool {
	var sv, sd topology.ID16
	if d.SubsystemVendor != nil {
		sv = *d.SubsystemVendor
	}
	if d.SubsystemDevice != nil {
		sd = *d.SubsystemDevice
	}
	class := uint32(*d.Class)
	for i, v := range [7]uint32{uint32(*d.Vendor), uint32(*d.Device), uint32(sv), uint32(sd), class >> 16,
		class >> 8 & 0xff, class & 0xff} {
		if a.fields[i] == "*" {
			continue
		}
		digits := 8
		if i >= 4 {
			digits = 2
		}
		if a.fields[i] != fmt.Sprintf("%0*X", digits, v) {
			return false
		}
	}
	return true
}

// parseAliases returns the aliases of PCI functions that are for one of the vendors or for any.
func parseAliases(b []byte, vendors map[string]bool) []pciAlias {
	var out []pciAlias
	for line := range bytes.Lines(b) {
		if !isPCIAlias(line, vendors) {
			continue
		}
		words := strings.Fields(string(line))
		if len(words) != 3 {
			continue
		}
		_, rest, _ := strings.Cut(words[1], ":")
		a := pciAlias{module: words[2]}
		if a.parse(rest) {
			out = append(out, a)
		}
	}
	return out
}

// parse takes "v...d...sv...sd...bc...sc...i...". The last field may end with the "*" that depmod adds to every alias.
func (a *pciAlias) parse(s string) bool {
	for i, key := range pciAliasKeys {
		var ok bool
		if s, ok = strings.CutPrefix(s, key); !ok {
			return false
		}
		end := len(s)
		if i < len(pciAliasKeys)-1 {
			// Fields are upper-case hexadecimal or "*"; the next key is lower case.
			if end = strings.Index(s, pciAliasKeys[i+1]); end < 0 {
				return false
			}
		}
		a.fields[i] = s[:end]
		s = s[end:]
	}
	last := &a.fields[6]
	if *last != "*" {
		*last = strings.TrimSuffix(*last, "*")
	}
	return true
}

// aliasStart begins the lines about PCI functions. "vfio_pci:" is another kind: those drivers take
// any function, by driver_override alone.
var aliasStart = []byte("alias pci:v")

// isPCIAlias reports whether a line is an alias for a function of one of the vendors, or of any.
func isPCIAlias(line []byte, vendors map[string]bool) bool {
	rest, ok := bytes.CutPrefix(line, aliasStart)
	if !ok || len(rest) == 0 {
		return false
	}
	return rest[0] == '*' || len(rest) > 8 && vendors[string(rest[:8])]
}

// pciVendors returns the vendors of the functions of h as aliases write them.
func pciVendors(h *topology.Host) map[string]bool {
	out := map[string]bool{}
	for i := range h.PCI {
		if v := h.PCI[i].Vendor; v != nil {
			out[fmt.Sprintf("%08X", uint16(*v))] = true
		}
	}
	return out
}

// isAliasFile reports whether a recorded file is depmod's list of aliases.
func isAliasFile(name string) bool {
	return path.Base(name) == "modules.alias"
}

// usedAliases returns the lines that readCandidates uses: a snapshot need not hold a list of
// everything that there is, of a megabyte or two.
func usedAliases(b []byte, h *topology.Host) []byte {
	vendors := pciVendors(h)
	var out []byte
	for line := range bytes.Lines(b) {
		if isPCIAlias(line, vendors) {
			out = append(out, line...)
		}
	}
	return out
}
