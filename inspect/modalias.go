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
		name := modalias(d)
		for _, a := range aliases {
			if a.matches(name) {
				d.Candidates = append(d.Candidates, a.module)
			}
		}
		slices.Sort(d.Candidates)
		d.Candidates = slices.Compact(d.Candidates)
	}
}

// modalias returns what the kernel asks for a module with, for a function whose vendor, device and
// class are known: their numbers, and those of the subsystem.
//
// Source: pci_uevent in drivers/pci/pci-driver.c.
func modalias(d *topology.PCIDevice) string {
	var subVendor, subDevice topology.ID16
	if d.SubsystemVendor != nil && d.SubsystemDevice != nil {
		subVendor, subDevice = *d.SubsystemVendor, *d.SubsystemDevice
	}
	class := uint32(*d.Class)
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X", uint16(*d.Vendor), uint16(*d.Device),
		uint16(subVendor), uint16(subDevice), class>>16, class>>8&0xff, class&0xff)
}

// A pciAlias is one alias of a module: a pattern for what modalias returns.
type pciAlias struct{ pattern, module string }

// matches reports whether the module takes the function with that modalias. modprobe compares with
// fnmatch(3), whose patterns are those of path.Match where no slash is in the name.
func (a pciAlias) matches(modalias string) bool {
	ok, err := path.Match(a.pattern, modalias)
	return ok && err == nil
}

// parseAliases returns the aliases of PCI functions that are for one of the vendors or for any.
func parseAliases(b []byte, vendors map[string]bool) []pciAlias {
	var out []pciAlias
	for line := range bytes.Lines(b) {
		if !isPCIAlias(line, vendors) {
			continue
		}
		if words := strings.Fields(string(line)); len(words) == 3 {
			out = append(out, pciAlias{words[1], words[2]})
		}
	}
	return out
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
func isAliasFile(name string) bool { return path.Base(name) == "modules.alias" }

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
