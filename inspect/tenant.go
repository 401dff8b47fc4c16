package inspect

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/topology"
)

// libvirtURI is the daemon that runs a machine's virtual machines.
const libvirtURI = "qemu:///system"

// libvirtSockets are where the daemon listens: libvirtd, or virtqemud where libvirt is several daemons.
var libvirtSockets = []string{"run/libvirt/libvirt-sock", "run/libvirt/virtqemud-sock"}

// domainStates are the options of virsh list by the state that they choose, in libvirt's words.
// Asked for one by one, they tell the state of a domain in a form that does not depend on the
// language of the user.
var domainStates = []struct{ option, state string }{
	{"--state-running", "running"}, {"--state-paused", "paused"}, {"--state-shutoff", "shut off"},
	{"--state-other", ""},
}

// virshList is the command that lists the domains in one state, by UUID: names may hold white space.
func virshList(uri, option string) []string {
	return []string{"virsh", "--connect", uri, "--readonly", "list", "--all", "--uuid", option}
}

// virshDumpXML is the command that describes a domain. Of one that runs it describes what is in force.
func virshDumpXML(uri, uuid string) []string {
	return []string{"virsh", "--connect", uri, "--readonly", "dumpxml", uuid}
}

// readTenants reads the virtual machines that libvirt manages. On a live machine nothing is run
// where no libvirt listens.
func (r *reader) readTenants() {
	if r.run == nil || r.live && !slices.ContainsFunc(libvirtSockets, r.exists) {
		return
	}
	r.readDomains(libvirtURI)
}

// readDomains reads the domains of the libvirt connection uri.
func (r *reader) readDomains(uri string) {
	for _, s := range domainStates {
		argv := virshList(uri, s.option)
		out, err := r.output(argv...)
		if err != nil {
			r.commandFailed(err, out, argv...)
			return
		}
		for uuid := range strings.FieldsSeq(string(out)) {
			if !isUUID(uuid) {
				r.commandFailed(fmt.Errorf("%q is not a UUID", where.Clip(uuid)), nil, argv...)
				continue
			}
			r.readDomain(uri, uuid, s.state)
		}
	}
}

// readDomain reads one domain.
func (r *reader) readDomain(uri, uuid, state string) {
	argv := virshDumpXML(uri, uuid)
	out, err := r.output(argv...)
	if err != nil {
		r.commandFailed(err, out, argv...)
		return
	}
	t, problems := parseDomain(out)
	for _, err := range problems {
		r.commandFailed(err, nil, argv...)
	}
	if t != nil {
		t.UUID, t.State = uuid, state
		r.h.Tenants = append(r.h.Tenants, *t)
	}
}

// isUUID reports whether s has the form of a UUID, so that it can be an argument of a command.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch dash := i == 8 || i == 13 || i == 18 || i == 23; {
		case dash != (s[i] == '-'):
			return false
		case !dash && !strings.ContainsRune("0123456789abcdefABCDEF", rune(s[i])):
			return false
		}
	}
	return true
}

// The parts of libvirt's domain XML that say what a virtual machine holds of its host.
//
// Source: https://libvirt.org/formatdomain.html.
type (
	domainXML struct {
		XMLName xml.Name   `xml:"domain"`
		Name    string     `xml:"name"`
		UUID    string     `xml:"uuid"`
		Memory  *scaledXML `xml:"memory"`
		VCPU    *struct {
			Placement string `xml:"placement,attr"`
			CPUSet    string `xml:"cpuset,attr"`
			Count     string `xml:",chardata"`
		} `xml:"vcpu"`
		VCPUPins     []pinXML `xml:"cputune>vcpupin"`
		EmulatorPins []pinXML `xml:"cputune>emulatorpin"`
		IOThreadPins []pinXML `xml:"cputune>iothreadpin"`
		Backing      struct {
			Hugepages *struct {
				Pages []scaledXML `xml:"page"`
			} `xml:"hugepages"`
		} `xml:"memoryBacking"`
		NUMAMemory []nodesetXML `xml:"numatune>memory"`
		MemNodes   []nodesetXML `xml:"numatune>memnode"`
		Cells      []scaledXML  `xml:"cpu>numa>cell"`
		HostDevs   []deviceXML  `xml:"devices>hostdev"`
		Interfaces []deviceXML  `xml:"devices>interface"`
		Disks      []deviceXML  `xml:"devices>disk"`
	}
	// scaledXML is an amount of memory with its unit: of <memory> as text, of <page> and <cell> in an attribute.
	scaledXML struct {
		Unit   string `xml:"unit,attr"`
		Size   string `xml:"size,attr"`
		Memory string `xml:"memory,attr"`
		Text   string `xml:",chardata"`
	}
	pinXML struct {
		VCPU   string `xml:"vcpu,attr"`
		CPUSet string `xml:"cpuset,attr"`
	}
	nodesetXML struct {
		Mode    string `xml:"mode,attr"`
		Nodeset string `xml:"nodeset,attr"`
	}
	deviceXML struct {
		Type    string `xml:"type,attr"`
		Managed string `xml:"managed,attr"`
		Source  struct {
			Managed string         `xml:"managed,attr"` // of an NVMe disk
			Address *pciAddressXML `xml:"address"`
		} `xml:"source"`
	}
	pciAddressXML struct {
		Domain   string `xml:"domain,attr"`
		Bus      string `xml:"bus,attr"`
		Slot     string `xml:"slot,attr"`
		Function string `xml:"function,attr"`
	}
)

// parseDomain reads the XML of a domain. It returns nil where there is none in b; what else could
// not be understood is in problems, and is not set in the tenant.
func parseDomain(b []byte) (t *topology.Tenant, problems []error) {
	var d domainXML
	if err := xml.Unmarshal(b, &d); err != nil {
		return nil, []error{fmt.Errorf("domain XML: %w", err)}
	}
	p := domainParser{t: &topology.Tenant{Name: strings.TrimSpace(d.Name), UUID: strings.TrimSpace(d.UUID)}}
	p.cpus(&d)
	p.memory(&d)
	p.devices(&d)
	return p.t, p.problems
}

// A domainParser turns the XML's texts into the values of a tenant.
type domainParser struct {
	t        *topology.Tenant
	problems []error
}

func (p *domainParser) problem(element string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", element, err))
}

// cpus reads how many virtual CPUs there are and where they may run.
func (p *domainParser) cpus(d *domainXML) {
	if v := d.VCPU; v != nil {
		// The text is the most that the domain may have; "current" may be fewer now, and the others
		// can be plugged in at any time.
		n, err := strconv.ParseUint(strings.TrimSpace(v.Count), 10, 16)
		if err != nil {
			p.problem("<vcpu>", fmt.Errorf("%q is not a number of CPUs", where.Clip(v.Count)))
		}
		p.t.VCPUs = int(n)
		if v.Placement != "auto" { // with auto, numad chooses at the start
			p.t.Floating = p.set("<vcpu cpuset>", v.CPUSet)
		}
	}
	for _, pin := range d.VCPUPins {
		n, err := strconv.ParseUint(pin.VCPU, 10, 16)
		if err != nil {
			p.problem("<vcpupin>", fmt.Errorf("vcpu %q is not the number of a CPU", where.Clip(pin.VCPU)))
			continue
		}
		if cpus := p.set("<vcpupin>", pin.CPUSet); cpus != nil {
			p.t.Pins = append(p.t.Pins, topology.Pin{VCPU: int(n), CPUs: *cpus})
		}
	}
	slices.SortStableFunc(p.t.Pins, func(a, b topology.Pin) int { return cmp.Compare(a.VCPU, b.VCPU) })
	for _, pin := range d.EmulatorPins {
		p.t.EmulatorCPUs = union(p.t.EmulatorCPUs, p.set("<emulatorpin>", pin.CPUSet))
	}
	for _, pin := range d.IOThreadPins {
		p.t.IOThreadCPUs = union(p.t.IOThreadCPUs, p.set("<iothreadpin>", pin.CPUSet))
	}
}

// memory reads how much memory there is, of which pages and on which nodes.
func (p *domainParser) memory(d *domainXML) {
	if d.Memory != nil {
		p.t.MemoryBytes = p.bytes("<memory>", d.Memory.Text, d.Memory.Unit)
	} else if len(d.Cells) > 0 {
		// libvirt sums up the cells itself; only a description that it has not seen lacks the sum.
		sum := uint64(0)
		for _, c := range d.Cells {
			n := p.bytes("<cell>", c.Memory, c.Unit)
			if n == nil || sum+*n < sum {
				return
			}
			sum += *n
		}
		p.t.MemoryBytes = &sum
	}
	if h := d.Backing.Hugepages; h != nil {
		p.hugepages(h.Pages)
	}
	for _, m := range slices.Concat(d.NUMAMemory, d.MemNodes) {
		p.t.MemoryMode = cmp.Or(p.t.MemoryMode, m.Mode)
		p.t.MemoryNodes = union(p.t.MemoryNodes, p.set("<numatune>", m.Nodeset))
	}
}

// hugepages reads the size of the pages. Guest nodes may have different ones: the largest is told,
// which is the hardest to find. A page of 4 KiB is no hugepage, though the element may name it.
func (p *domainParser) hugepages(pages []scaledXML) {
	if len(pages) == 0 {
		p.t.Hugepages = new(uint64(0))
		return
	}
	for _, page := range pages {
		n := p.bytes("<page>", page.Size, page.Unit)
		if n != nil && *n > 4096 && (p.t.Hugepages == nil || *n > *p.t.Hugepages) {
			p.t.Hugepages = n
		}
	}
}

// devices reads which PCI functions of the host the domain holds: handed over as such, as a network
// interface, or as an NVMe disk.
func (p *domainParser) devices(d *domainXML) {
	add := func(element, kind string, devices []deviceXML) {
		for _, dev := range devices {
			if dev.Type != kind || dev.Source.Address == nil {
				continue
			}
			a, err := dev.Source.Address.parse()
			if err != nil {
				p.problem(element, err)
				continue
			}
			managed := dev.Managed == "yes" || dev.Source.Managed == "yes"
			p.t.Devices = append(p.t.Devices, topology.TenantDevice{PCI: a, Managed: managed})
		}
	}
	add("<hostdev>", "pci", d.HostDevs)
	add("<interface>", "hostdev", d.Interfaces)
	add("<disk>", "nvme", d.Disks)
	slices.SortStableFunc(p.t.Devices, func(a, b topology.TenantDevice) int { return a.PCI.Compare(b.PCI) })
	p.t.Devices = slices.Compact(p.t.Devices)
}

// set parses libvirt's form of a CPU or node list: the kernel's, in which "^4" also takes 4 out of
// what stands before it. It is nil where s is empty.
func (p *domainParser) set(element, s string) *topology.CPUSet {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	var set topology.CPUSet
	for item := range strings.SplitSeq(s, ",") {
		digits, out := strings.CutPrefix(strings.TrimSpace(item), "^")
		part, err := topology.ParseCPUSet(digits)
		switch {
		case err != nil:
			p.problem(element, err)
			return nil
		case part.IsEmpty():
			p.problem(element, fmt.Errorf("CPU list %q: empty item between commas", where.Clip(s)))
			return nil
		case out:
			set = set.Difference(part)
		default:
			set = set.Union(part)
		}
	}
	return &set
}

// union returns the CPUs of both; nil where neither is known.
func union(a, b *topology.CPUSet) *topology.CPUSet {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(a.Union(*b))
}

// units are libvirt's units of memory. Its default is KiB.
var units = map[string]uint64{
	"": 1 << 10, "b": 1, "bytes": 1,
	"KB": 1e3, "k": 1 << 10, "K": 1 << 10, "KiB": 1 << 10,
	"MB": 1e6, "M": 1 << 20, "MiB": 1 << 20,
	"GB": 1e9, "G": 1 << 30, "GiB": 1 << 30,
	"TB": 1e12, "T": 1 << 40, "TiB": 1 << 40,
	"PB": 1e15, "P": 1 << 50, "PiB": 1 << 50,
	"EB": 1e18, "E": 1 << 60, "EiB": 1 << 60,
}

// bytes returns an amount of memory; nil where it is not one.
func (p *domainParser) bytes(element, number, unit string) *uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
	factor, ok := units[unit]
	high, low := bits.Mul64(n, factor)
	if err != nil || !ok || high != 0 {
		p.problem(element, fmt.Errorf("%q %q is not an amount of memory", where.Clip(number), where.Clip(unit)))
		return nil
	}
	return &low
}

// parse returns the address. Its parts are numbers as C writes them: libvirt prints "0x06", and
// takes "6" and "06" too. The domain may be left out.
func (x *pciAddressXML) parse() (topology.PCIAddr, error) {
	var parts [4]uint64
	for i, f := range []struct {
		name, text string
		limit      uint64
	}{{"domain", cmp.Or(x.Domain, "0"), 1<<32 - 1}, {"bus", x.Bus, 0xff}, {"slot", x.Slot, 0x1f},
		{"function", cmp.Or(x.Function, "0"), 7}} {
		v, err := strconv.ParseUint(f.text, 0, 64)
		if err != nil || v > f.limit || strings.Contains(f.text, "_") {
			return topology.PCIAddr{}, fmt.Errorf("%s %q is not a number from 0 to %d", f.name, where.Clip(f.text),
				f.limit)
		}
		parts[i] = v
	}
	return topology.PCIAddr{
		Domain: uint32(parts[0]), Bus: uint8(parts[1]), Device: uint8(parts[2]), Function: uint8(parts[3]),
	}, nil
}
