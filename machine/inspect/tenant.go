package inspect

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/machine/dump/texts"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// libvirtURI is the daemon that runs a machine's virtual machines. It is asked by virsh, not by package libvirt: a
// snapshot keeps commands with their output, as users send them too, and reads them again on any machine.
const libvirtURI = "qemu:///system"

// libvirtSockets are where the daemon listens: libvirtd, or virtqemud where libvirt is several daemons.
var libvirtSockets = []string{"run/libvirt/libvirt-sock", "run/libvirt/virtqemud-sock"}

type domainState struct{ option, state string }

// domainStates are the options of virsh list by the state that they choose, in libvirt's words.
// Asked for one by one, they tell the state of a domain in a form that does not depend on the
// language of the user.
var domainStates = []domainState{
	{"--state-running", "running"}, {"--state-paused", "paused"}, {"--state-shutoff", "shut off"},
	{"--state-other", ""},
}

// virshList is the command that lists the domains in one state, by UUID: names may hold white space.
func virshList(uri, option string) []string {
	return []string{"virsh", "--connect", uri, "--readonly", "list", "--all", "--uuid", option}
}

// listsAtOnce returns a Run that asks virsh once for the domains in every state, where run is asked for those in the
// first one, and then answers for each of the other states once. A process of virsh costs more than its list does:
// half a second of a CPU where that is emulated. If virsh fails or prints anything else, run is asked state by state.
func listsAtOnce(run runFunc) runFunc {
	var mu sync.Mutex
	var left map[string]string
	return func(ctx context.Context, argv ...string) ([]byte, error) {
		i := slices.IndexFunc(domainStates, func(s domainState) bool {
			return len(argv) > 2 && slices.Equal(argv, virshList(argv[2], s.option))
		})
		if i < 0 {
			return run(ctx, argv...)
		}
		mu.Lock()
		defer mu.Unlock()
		if i == 0 {
			left = listDomains(ctx, run, argv[2])
		}
		list, ok := left[domainStates[i].option]
		if !ok {
			return run(ctx, argv...)
		}
		delete(left, domainStates[i].option)
		return []byte(list), nil
	}
}

// listDomains returns what virsh lists, by the option of the state, or nil if one list is not complete: virsh ends each
// one with an empty line.
func listDomains(ctx context.Context, run runFunc, uri string) map[string]string {
	const end = ".\n" // which no list has
	script := lists.Map(domainStates, func(s domainState) string {
		return "list --all --uuid " + s.option + "; echo ."
	})
	out, err := run(ctx, "virsh", "--connect", uri, "--readonly", strings.Join(script, "; "))
	found := strings.SplitAfter(string(out), end)
	if err != nil || len(found) != len(domainStates)+1 || found[len(domainStates)] != "" {
		return nil
	}
	byOption := map[string]string{}
	for i, s := range domainStates {
		list := strings.TrimSuffix(found[i], end)
		if list != "\n" && !strings.HasSuffix(list, "\n\n") {
			return nil
		}
		byOption[s.option] = list
	}
	return byOption
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
			if !uuidShape.MatchString(uuid) {
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

// A Machine is a virtual machine with the text that describes it.
type Machine struct {
	File   string // where the text is from: a file, "standard input", or the domain
	Text   string
	Tenant topology.Tenant
	Unread []string // what of the text could not be understood, so that Tenant lacks it
}

// ReadMachine reads the virtual machine that a name stands for: a file with domain XML or a configuration of Proxmox
// VE, "-" for standard input, or a domain of libvirt on a host: as it will be at its next start where host is "", which
// is this machine, and as it was where host is a snapshot.
func ReadMachine(ctx context.Context, name, host string, stdin io.Reader) (*Machine, error) {
	file := name
	var text []byte
	var err error
	switch _, statErr := os.Stat(name); {
	case name == "-":
		file = "standard input"
		text, err = userfile.ReadFrom(stdin, file, userfile.Text)
	case statErr == nil || strings.ContainsAny(name, "/."):
		text, err = userfile.Read(name, userfile.Text)
	default:
		file = name + ".xml"
		if text, err = domainText(ctx, name, host); err != nil {
			err = fmt.Errorf("%s is neither a file here nor a domain of the host (%w): name a file with domain XML "+
				"or qm config, or a domain that virsh list --all has", name, err)
		}
	}
	if err != nil {
		return nil, err
	}
	return ParseMachine(ctx, string(text), file)
}

// domainText returns the description of a domain of this machine, or of a snapshot.
func domainText(ctx context.Context, name, host string) ([]byte, error) {
	if host == "" {
		return runCommand(ctx, "virsh", "--connect", libvirtURI, "--readonly", "dumpxml", "--inactive", "--domain",
			name)
	}
	o, err := Open(host)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	if o.Source.Run == nil {
		return nil, fmt.Errorf("%s has no output of virsh", host)
	}
	for _, s := range domainStates {
		list, err := o.Source.Run(ctx, virshList(libvirtURI, s.option)...)
		if err != nil {
			return nil, fmt.Errorf("virsh list in %s: %w", host, err)
		}
		for uuid := range strings.FieldsSeq(string(list)) {
			text, err := o.Source.Run(ctx, virshDumpXML(libvirtURI, uuid)...)
			if t, _ := parseDomain(text); err == nil && t != nil && (t.Name == name || uuid == name) {
				return text, nil
			}
		}
	}
	return nil, fmt.Errorf("%s has no domain of this name", host)
}

// ParseMachine reads the one virtual machine that a text describes.
func ParseMachine(ctx context.Context, text, file string) (*Machine, error) {
	o, err := openStdin(strings.NewReader(text), file)
	if err != nil {
		return nil, err
	}
	h, err := o.Read(ctx)
	if err != nil {
		return nil, err
	}
	if len(h.Tenants) != 1 {
		return nil, fmt.Errorf("%s describes %d virtual machines: want one, as domain XML or qm config", file,
			len(h.Tenants))
	}
	m := &Machine{File: file, Text: text, Tenant: h.Tenants[0]}
	// What a shell, a mail or a page has put around XML is left out, so that the rest can be mended.
	if len(o.texts) == 1 && o.texts[0].Kind == kindDomain {
		whole, _ := parseDomain([]byte(text))
		if whole == nil || !strings.HasPrefix(strings.TrimSpace(text), "<") {
			m.Text = o.texts[0].Text
		}
	}
	if m.Tenant.Name == texts.Nameless {
		m.Tenant.Name = strings.TrimSuffix(filepath.Base(file), ".conf") // the file is called by the machine's ID
	}
	m.Unread = append(m.Unread, lists.Map(h.Unread, func(u topology.Unread) string { return u.Why })...)
	return m, nil
}

// uuidShape is the form of a UUID, so that one can be an argument of a command.
var uuidShape = lazyregexp.New(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// parseDomain reads the XML of a domain. It returns nil where there is none in b; what else could
// not be understood is in problems, and is not set in the tenant.
func parseDomain(b []byte) (t *topology.Tenant, problems []error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(string(b)); err != nil {
		return nil, []error{fmt.Errorf("domain XML: %w", err)}
	}
	p := domainParser{t: &topology.Tenant{Name: strings.TrimSpace(d.Name), UUID: strings.TrimSpace(d.UUID)}}
	p.cpus(&d)
	p.memory(&d)
	p.devices(&d)
	return p.t, p.problems
}

// A domainParser turns libvirt's description (https://libvirt.org/formatdomain.html) into the values of a tenant.
type domainParser struct {
	t        *topology.Tenant
	problems []error
}

func (p *domainParser) problem(element string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", element, err))
}

// cpus reads how many virtual CPUs there are and where they may run.
func (p *domainParser) cpus(d *libvirtxml.Domain) {
	if v := d.VCPU; v != nil {
		// The text is the most that the domain may have; "current" may be fewer now, and the others
		// can be plugged in at any time.
		if v.Value > topology.MaxCPUs {
			p.problem("<vcpu>", fmt.Errorf("%d are more than %d CPUs", v.Value, topology.MaxCPUs))
		} else {
			p.t.VCPUs = int(v.Value)
		}
		if v.Placement != "auto" { // with auto, numad chooses at the start
			p.t.Floating = p.set("<vcpu cpuset>", v.CPUSet)
		}
		p.t.Absent = absent(d, p.t.VCPUs)
	}
	p.t.GuestNodes = new(0)
	if c := d.CPU; c != nil {
		if c.Topology != nil && c.Topology.Threads > 0 && c.Topology.Threads < topology.MaxCPUs {
			p.t.GuestThreads = c.Topology.Threads
		}
		if c.Numa != nil {
			p.t.GuestNodes = new(len(c.Numa.Cell))
		}
	}
	if d.CPUTune == nil {
		return
	}
	for _, pin := range d.CPUTune.VCPUPin {
		if pin.VCPU >= topology.MaxCPUs {
			p.problem("<vcpupin>", fmt.Errorf("vcpu %d is not the number of a CPU", pin.VCPU))
			continue
		}
		if cpus := p.set("<vcpupin>", pin.CPUSet); cpus != nil {
			p.t.Pins = append(p.t.Pins, topology.Pin{VCPU: int(pin.VCPU), CPUs: *cpus})
		}
	}
	if d.VCPU == nil { // a piece of a domain
		for _, pin := range p.t.Pins {
			p.t.VCPUs = max(p.t.VCPUs, pin.VCPU+1)
		}
	}
	slices.SortStableFunc(p.t.Pins, func(a, b topology.Pin) int { return cmp.Compare(a.VCPU, b.VCPU) })
	if pin := d.CPUTune.EmulatorPin; pin != nil {
		p.t.EmulatorCPUs = p.set("<emulatorpin>", pin.CPUSet)
	}
	for _, pin := range d.CPUTune.IOThreadPin {
		p.t.IOThreadCPUs = union(p.t.IOThreadCPUs, p.set("<iothreadpin>", pin.CPUSet))
	}
	p.t.FreeIOThreads = int(min(d.IOThreads, topology.MaxCPUs)) - len(d.CPUTune.IOThreadPin)
	p.t.FreeIOThreads = max(p.t.FreeIOThreads, 0)
}

// absent returns the virtual CPUs that a domain starts without: those that <vcpus> says are not enabled, or without it
// those behind the number that is present. It is nil where all are there.
func absent(d *libvirtxml.Domain, all int) *topology.CPUSet {
	var out []int
	if d.VCPUs != nil {
		for _, v := range d.VCPUs.VCPU {
			if v.Enabled == "no" && v.Id != nil && *v.Id < topology.MaxCPUs {
				out = append(out, int(*v.Id))
			}
		}
	} else if now := d.VCPU.Current; now > 0 {
		for v := int(min(now, topology.MaxCPUs)); v < all; v++ {
			out = append(out, v)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return new(topology.CPUs(out...))
}

// memory reads how much memory there is, of which pages and on which nodes.
func (p *domainParser) memory(d *libvirtxml.Domain) {
	if d.Memory != nil {
		p.t.MemoryBytes = p.bytes("<memory>", d.Memory.Value, d.Memory.Unit)
	} else if d.CPU != nil && d.CPU.Numa != nil && len(d.CPU.Numa.Cell) > 0 {
		// libvirt sums up the cells itself; only a description that it has not seen lacks the sum.
		sum := uint64(0)
		for _, c := range d.CPU.Numa.Cell {
			n := p.bytes("<cell>", c.Memory, c.Unit)
			if n == nil || sum+*n < sum {
				return
			}
			sum += *n
		}
		p.t.MemoryBytes = &sum
	}
	if b := d.MemoryBacking; b != nil && b.MemoryHugePages != nil {
		p.hugepages(b.MemoryHugePages.Hugepages)
	}
	p.cells(d)
	if d.NUMATune == nil {
		return
	}
	place := func(mode, nodes string) {
		p.t.MemoryMode = cmp.Or(p.t.MemoryMode, mode)
		p.t.MemoryNodes = union(p.t.MemoryNodes, p.set("<numatune>", nodes))
	}
	if m := d.NUMATune.Memory; m != nil {
		place(m.Mode, m.Nodeset)
	}
	for _, m := range d.NUMATune.MemNodes {
		if !hasCell(d, m.CellID) {
			p.problem("<memnode>", fmt.Errorf("the guest has no NUMA cell %d: libvirt refuses this", m.CellID))
		}
		place(m.Mode, m.Nodeset)
	}
}

// cells reads the NUMA nodes of the guest, with the memory of each.
func (p *domainParser) cells(d *libvirtxml.Domain) {
	if d.CPU == nil || d.CPU.Numa == nil {
		return
	}
	tune := cmp.Or(d.NUMATune, &libvirtxml.DomainNUMATune{})
	var nodes *topology.CPUSet
	mode := ""
	if m := tune.Memory; m != nil {
		nodes, mode = p.set("<numatune>", m.Nodeset), m.Mode
	}
	list := slices.Clone(d.CPU.Numa.Cell)
	for i := range list {
		list[i].ID = cmp.Or(list[i].ID, new(uint(i)))
	}
	// The guest has them in the order of their numbers, whatever the order in the text is.
	slices.SortStableFunc(list, func(a, b libvirtxml.DomainCell) int { return cmp.Compare(*a.ID, *b.ID) })
	for _, c := range list {
		id := *c.ID
		cell := topology.TenantCell{MemoryNodes: nodes, MemoryMode: mode}
		if cpus := p.set("<cell cpus>", c.CPUs); cpus != nil {
			cell.VCPUs = *cpus
		}
		if c.Memory > 0 {
			cell.MemoryBytes = p.bytes("<cell>", c.Memory, c.Unit)
		}
		if b := d.MemoryBacking; b != nil && b.MemoryHugePages != nil {
			cell.Hugepages = p.pagesOf(b.MemoryHugePages.Hugepages, id)
		}
		for _, m := range tune.MemNodes {
			if m.CellID == id {
				cell.MemoryNodes, cell.MemoryMode = p.set("<memnode>", m.Nodeset), m.Mode
			}
		}
		p.t.Cells = append(p.t.Cells, cell)
	}
}

// pagesOf returns the size of the hugepages of a cell: those that name it, else those that name none.
func (p *domainParser) pagesOf(pages []libvirtxml.DomainMemoryHugepage, cell uint) *uint64 {
	if len(pages) == 0 {
		return new(uint64(0))
	}
	var size *uint64
	for _, page := range pages {
		if cells := p.set("<page nodeset>", page.Nodeset); cells != nil && cells.Contains(int(cell)) {
			size = p.bytes("<page>", page.Size, page.Unit)
			break
		} else if cells == nil {
			size = p.bytes("<page>", page.Size, page.Unit)
		}
	}
	if size != nil && *size <= 4096 {
		return nil
	}
	return size
}

// hasCell reports whether the guest of a domain has a NUMA cell.
func hasCell(d *libvirtxml.Domain, id uint) bool {
	if d.CPU == nil || d.CPU.Numa == nil {
		return false
	}
	for i, c := range d.CPU.Numa.Cell {
		if c.ID == nil && i == int(id) || c.ID != nil && *c.ID == id {
			return true
		}
	}
	return false
}

// hugepages reads the size of the pages. Guest nodes may have different ones: the largest is told,
// which is the hardest to find. A page of 4 KiB is no hugepage, though the element may name it.
func (p *domainParser) hugepages(pages []libvirtxml.DomainMemoryHugepage) {
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
func (p *domainParser) devices(d *libvirtxml.Domain) {
	if d.Devices == nil {
		return
	}
	add := func(element, managed string, address *libvirtxml.DomainAddressPCI) {
		if address == nil {
			return
		}
		a, err := pciAddressOf(address)
		if err != nil {
			p.problem(element, err)
			return
		}
		p.t.Devices = append(p.t.Devices, topology.TenantDevice{PCI: a, Managed: managed == "yes"})
	}
	p.t.GuestSwitches = new(0)
	*p.t.GuestSwitches += lists.Count(d.Devices.Controllers,
		func(c libvirtxml.DomainController) bool { return c.Model == "pcie-switch-upstream-port" })
	p.t.GuestExpanders = new(lists.Count(d.Devices.Controllers, func(c libvirtxml.DomainController) bool {
		return strings.HasSuffix(c.Model, "-expander-bus") && c.PCI != nil && c.PCI.Target != nil &&
			c.PCI.Target.NUMANode != nil
	}))
	for _, h := range d.Devices.Hostdevs {
		if h.SubsysPCI != nil && h.SubsysPCI.Source != nil {
			add("<hostdev>", h.Managed, h.SubsysPCI.Source.Address)
		}
	}
	for _, i := range d.Devices.Interfaces {
		if i.Source != nil && i.Source.Hostdev != nil && i.Source.Hostdev.PCI != nil {
			add("<interface>", i.Managed, i.Source.Hostdev.PCI.Address)
		}
	}
	for _, k := range d.Devices.Disks {
		if k.Source != nil && k.Source.NVME != nil && k.Source.NVME.PCI != nil {
			add("<disk>", k.Source.NVME.PCI.Managed, k.Source.NVME.PCI.Address)
		}
	}
	if c := d.QEMUCommandline; c != nil {
		args := lists.Map(c.Args, func(a libvirtxml.DomainQEMUCommandlineArg) string { return a.Value })
		p.t.Devices = append(p.t.Devices, texts.HandedOver(strings.Join(args, " "))...)
	}
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
func (p *domainParser) bytes(element string, number uint, unit string) *uint64 {
	factor, ok := units[unit]
	high, low := bits.Mul64(uint64(number), factor)
	if !ok || high != 0 {
		p.problem(element, fmt.Errorf("%d %q is not an amount of memory", number, where.Clip(unit)))
		return nil
	}
	return &low
}

// pciAddressOf returns the address of a PCI function of the host; its parts are 0 where they are left out.
func pciAddressOf(x *libvirtxml.DomainAddressPCI) (topology.PCIAddr, error) {
	var parts [4]uint
	for i, f := range []struct {
		name  string
		value *uint
		limit uint
	}{{"domain", x.Domain, 1<<32 - 1}, {"bus", x.Bus, 0xff}, {"slot", x.Slot, 0x1f}, {"function", x.Function, 7}} {
		if f.value == nil {
			continue
		}
		if parts[i] = *f.value; parts[i] > f.limit {
			return topology.PCIAddr{}, fmt.Errorf("%s %#x is not a number from 0 to %d", f.name, parts[i], f.limit)
		}
	}
	return topology.PCIAddr{
		Domain: uint32(parts[0]), Bus: uint8(parts[1]), Device: uint8(parts[2]), Function: uint8(parts[3]),
	}, nil
}
