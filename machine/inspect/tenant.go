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

// virsh queries libvirtURI, not package libvirt, because a snapshot keeps commands with their output.
const libvirtURI = "qemu:///system"

// libvirtSockets are of libvirtd, or of virtqemud.
var libvirtSockets = []string{"run/libvirt/libvirt-sock", "run/libvirt/virtqemud-sock"}

type domainState struct{ option, state string }

// A separate list for each state does not depend on the user's language.
var domainStates = []domainState{
	{"--state-running", "running"}, {"--state-paused", "paused"}, {"--state-shutoff", "shut off"},
	{"--state-other", ""},
}

// virshList asks for UUIDs, because names may contain white space.
func virshList(uri, option string) []string {
	return []string{"virsh", "--connect", uri, "--readonly", "list", "--all", "--uuid", option}
}

// listsAtOnce lists the domains of all states with one virsh, and answers for each other state from that. A virsh
// process costs half a second of an emulated CPU. If it fails, run is called for each state.
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

// listDomains returns lists by option, or nil if one is incomplete: virsh ends each with an empty line.
func listDomains(ctx context.Context, run runFunc, uri string) map[string]string {
	const end = ".\n" // in no list
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

// virshDumpXML gets a running domain's active configuration.
func virshDumpXML(uri, uuid string) []string {
	return []string{"virsh", "--connect", uri, "--readonly", "dumpxml", uuid}
}

// readTenants runs no command on a live machine unless libvirt's socket exists.
func (r *reader) readTenants() {
	if r.run == nil || r.live && !slices.ContainsFunc(libvirtSockets, r.exists) {
		return
	}
	r.readDomains(libvirtURI)
}

func (r *reader) readDomains(uri string) {
	for _, s := range domainStates {
		argv := virshList(uri, s.option)
		out, err := r.output(argv...)
		if err != nil {
			r.commandFailed(err, out, argv...)
			return
		}
		for uuid := range strings.FieldsSeq(string(out)) {
			if !uuidShape().MatchString(uuid) {
				r.commandFailed(fmt.Errorf("%q is not a UUID", where.Clip(uuid)), nil, argv...)
				continue
			}
			r.readDomain(uri, uuid, s.state)
		}
	}
}

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

// A Machine is a virtual machine with its text.
type Machine struct {
	File   string // a file, "standard input", or the domain
	Text   string
	Tenant topology.Tenant
	Unread []string // parts that Tenant lacks
}

// ReadMachine reads a virtual machine: a file with domain XML or a configuration of Proxmox VE, "-" for standard input,
// or a libvirt domain. The domain is on this machine if host is "", in its configuration for the next start; otherwise
// host is a snapshot.
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

// ParseMachine reads the only virtual machine in a text.
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
	// Text around the XML is left out, so that the rest can be edited.
	if len(o.texts) == 1 && o.texts[0].Kind == kindDomain {
		whole, _ := parseDomain([]byte(text))
		if whole == nil || !strings.HasPrefix(strings.TrimSpace(text), "<") {
			m.Text = o.texts[0].Text
		}
	}
	if m.Tenant.Name == texts.Nameless {
		m.Tenant.Name = strings.TrimSuffix(filepath.Base(file), ".conf") // the machine's ID
	}
	m.Unread = append(m.Unread, lists.Map(h.Unread, func(u topology.Unread) string { return u.Why })...)
	return m, nil
}

// A UUID is safe as a command's argument.
var uuidShape = lazyregexp.New(`^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// parseDomain returns nil without a domain. Elements that it does not understand are in problems, not in the tenant.
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

// A domainParser reads https://libvirt.org/formatdomain.html.
type domainParser struct {
	t        *topology.Tenant
	problems []error
}

func (p *domainParser) problem(element string, err error) {
	p.problems = append(p.problems, fmt.Errorf("%s: %w", element, err))
}

func (p *domainParser) cpus(d *libvirtxml.Domain) {
	if v := d.VCPU; v != nil {
		// "current" may be fewer, and the others can be hot-plugged.
		if v.Value > topology.MaxCPUs {
			p.problem("<vcpu>", fmt.Errorf("%d are more than %d CPUs", v.Value, topology.MaxCPUs))
		} else {
			p.t.VCPUs = int(v.Value)
		}
		if v.Placement != "auto" { // numad chooses at the start
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
	if d.VCPU == nil { // a fragment of a domain
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

// absent returns the virtual CPUs that a domain starts without: disabled in <vcpus>, or after the current number. It
// returns nil if all are present.
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

func (p *domainParser) memory(d *libvirtxml.Domain) {
	if d.Memory != nil {
		p.t.MemoryBytes = p.bytes("<memory>", d.Memory.Value, d.Memory.Unit)
	} else if d.CPU != nil && d.CPU.Numa != nil && len(d.CPU.Numa.Cell) > 0 {
		// Only a description that libvirt has not processed lacks the sum.
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
	// The guest numbers them by ID.
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

// pagesOf prefers an element that names the cell to one without a nodeset.
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

// hugepages uses the largest of different sizes, which is the hardest to provide; pages of 4 KiB do not count.
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

// devices finds functions assigned directly, as a network interface, or as an NVMe disk.
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

// set returns nil if s is empty. In libvirt's form "^4" removes 4 from the preceding members.
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

func union(a, b *topology.CPUSet) *topology.CPUSet {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	return new(a.Union(*b))
}

// The default unit is KiB.
var units = map[string]uint64{
	"": 1 << 10, "b": 1, "bytes": 1,
	"KB": 1e3, "k": 1 << 10, "K": 1 << 10, "KiB": 1 << 10,
	"MB": 1e6, "M": 1 << 20, "MiB": 1 << 20,
	"GB": 1e9, "G": 1 << 30, "GiB": 1 << 30,
	"TB": 1e12, "T": 1 << 40, "TiB": 1 << 40,
	"PB": 1e15, "P": 1 << 50, "PiB": 1 << 50,
	"EB": 1e18, "E": 1 << 60, "EiB": 1 << 60,
}

func (p *domainParser) bytes(element string, number uint, unit string) *uint64 {
	factor, ok := units[unit]
	high, low := bits.Mul64(uint64(number), factor)
	if !ok || high != 0 {
		p.problem(element, fmt.Errorf("%d %q is not an amount of memory", number, where.Clip(unit)))
		return nil
	}
	return &low
}

// pciAddressOf reads missing parts as 0.
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
