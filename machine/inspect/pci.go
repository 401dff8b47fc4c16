package inspect

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

// Source of this file: Documentation/ABI/testing/sysfs-bus-pci and drivers/pci/pci-sysfs.c of Linux.
const pciDevices = "sys/bus/pci/devices"

// readPCI reads the PCI functions and their tree.
//
// The tree comes from directories: /sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0 is below the bridge 40:01.1, on
// the root bus pci0000:40. In dumps without links it comes from the bridges' bus numbers.
func (r *reader) readPCI() {
	places := r.pciPlaces()
	b := pciBus{
		reader: r,
		slots:  r.pciSlots(),
		vfio:   len(places) > 0 && r.exists("sys/bus/pci/drivers/vfio-pci"),
	}
	for _, p := range places {
		if r.ctx.Err() != nil {
			return
		}
		b.readFunction(p)
	}
	slices.SortStableFunc(b.found, func(x, y topology.PCIDevice) int { return x.Address.Compare(y.Address) })
	placeByBusNumbers(b.found)
	namePorts(b.found)
	numberVFs(b.found)
	b.markAbsent()
	if b.headOnly > 0 {
		functions := "a bridge, GPU or NIC"
		if b.headOnly > 1 {
			functions = fmt.Sprintf("%d bridges, GPUs and NICs", b.headOnly)
		}
		r.unread("sys/bus/pci/devices/*/config", fmt.Sprintf("that of %s ends at byte 64, as for everybody but "+
			"root: ACS, ATS and kinds of ports are not known", functions))
	}
	r.h.PCI = append(r.h.PCI, b.found...)
}

// pciSlots returns slots by domain, bus and device, or domain and bus if the slot has the whole bus.
func (r *reader) pciSlots() map[string]string {
	const dir = "sys/bus/pci/slots"
	slots := map[string]string{}
	for _, name := range r.dir(dir) {
		address := r.word(dir + "/" + name + "/address")
		if _, taken := slots[address]; address != "" && !taken {
			slots[address] = name
		}
	}
	return slots
}

type pciBus struct {
	*reader
	slots map[string]string
	vfio  bool // vfio-pci is loaded
	found []topology.PCIDevice

	anyDriver, anyReset bool // some function has them
	// bridges, GPUs and NICs with only the header readable
	headOnly int
}

func (b *pciBus) readFunction(p pciPlace) {
	d := topology.PCIDevice{Address: p.addr, Parent: p.parent, Root: p.root}
	f := functionDir{reader: b.reader, dir: p.dir, names: b.dir(p.dir)}
	f.identity(&d)
	f.place(&d)
	if slot, ok := b.slots[p.addr.String()[:strings.LastIndexByte(p.addr.String(), '.')]]; ok {
		d.Slot = slot
	} else if slot, ok := b.slots[fmt.Sprintf("%04x:%02x", p.addr.Domain, p.addr.Bus)]; ok {
		d.Slot = slot
	} else {
		d.Slot = f.word("label")
	}
	f.binding(&d)
	f.link(&d)
	if isPlumbing(&d) {
		if d.IsBridge() {
			f.power(&d)
		}
	} else {
		f.power(&d)
		f.passthrough(&d)
		if b.vfio && d.Driver != "vfio-pci" && (d.IsGPU() || d.IsNIC()) {
			d.Candidates = []string{"vfio-pci"}
		}
	}
	f.virtualFunctions(&d)
	f.config(&d)
	if f.headOnly {
		b.headOnly++
	}
	pci.Name(&d)
	b.anyDriver = b.anyDriver || f.has("driver")
	b.anyReset = b.anyReset || f.has("reset_method")
	b.found = append(b.found, d)
}

// markAbsent marks drivers and reset methods as absent, if other functions of the tree show them.
func (b *pciBus) markAbsent() {
	for i := range b.found {
		d := &b.found[i]
		d.DriverKnown = d.DriverKnown || b.anyDriver
		// Since 5.15 only functions that the kernel can reset have reset_method.
		if b.anyReset && !d.ResetKnown && !isPlumbing(d) {
			d.ResetKnown = true
		}
	}
}

// isPlumbing reports whether the function is never assigned: bridges, memory and interrupt controllers, and the
// hundreds in the uncore of Intel's processors. Fewer of their files are read.
func isPlumbing(d *topology.PCIDevice) bool {
	if d.Class == nil {
		return false
	}
	switch d.Class.Base() {
	case 0x05, 0x06, 0x08, 0x11: // memory, bridge, system peripheral, signal processing (performance counters)
		return true
	}
	return d.Class.Sub() == 0x0c05 // SMBus
}

// A functionDir opens only listed files, because a failed open costs as much as a read.
type functionDir struct {
	*reader
	dir      string
	names    []string
	headOnly bool // capabilities are not readable
}

func (f *functionDir) has(name string) bool {
	_, ok := slices.BinarySearch(f.names, name)
	return ok
}

func (f *functionDir) path(name string) string { return f.dir + "/" + name }

func (f *functionDir) word(name string) string     { return ifThere(f, name, f.reader.word) }
func (f *functionDir) count(name string) *int      { return ifThere(f, name, f.reader.count) }
func (f *functionDir) flag(name string) *bool      { return ifThere(f, name, f.reader.flag) }
func (f *functionDir) linkBase(name string) string { return ifThere(f, name, f.reader.linkBase) }

func ifThere[T any](f *functionDir, name string, read func(p string) T) (v T) {
	if f.has(name) {
		v = read(f.path(name))
	}
	return v
}

// hexID parses at most bits bits.
func hexID[T ~uint8 | ~uint16 | ~uint32](f *functionDir, name string, bits int) *T {
	return ifThere(f, name, func(p string) *T {
		return parsed(f.reader, p, func(s string) (T, error) {
			v, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, bits)
			switch {
			case s == "":
				return 0, errNotKnown
			case err != nil:
				return 0, notA(s, fmt.Sprintf("a number of %d bits in hexadecimal", bits))
			}
			return T(v), nil
		})
	})
}

// identity reads single files, or uevent. On a live machine the two always agree.
func (f *functionDir) identity(d *topology.PCIDevice) {
	if f.live {
		f.uevent(d)
	}
	if d.Class == nil {
		d.Class = hexID[topology.ID24](f, "class", 24)
	}
	for _, id := range []struct {
		name  string
		field **topology.ID16
	}{
		{"vendor", &d.Vendor}, {"device", &d.Device}, {"subsystem_vendor", &d.SubsystemVendor},
		{"subsystem_device", &d.SubsystemDevice},
	} {
		if *id.field == nil {
			*id.field = hexID[topology.ID16](f, id.name, 16)
		}
	}
	if !f.live && (d.Class == nil || d.Vendor == nil) {
		f.uevent(d)
	}
	if d.SubsystemVendor != nil && *d.SubsystemVendor == 0 {
		d.SubsystemVendor, d.SubsystemDevice = nil, nil // bridges have no subsystem
	}
	d.Revision = hexID[topology.ID8](f, "revision", 8)
}

// uevent reads "PCI_CLASS=20000" and "PCI_ID=15B3:1017".
//
// Source: drivers/pci/pci-driver.c, pci_uevent.
func (f *functionDir) uevent(d *topology.PCIDevice) {
	for line := range strings.Lines(f.word("uevent")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		a, b, _ := strings.Cut(value, ":")
		first, err1 := strconv.ParseUint(a, 16, 24)
		second, err2 := strconv.ParseUint(b, 16, 16)
		switch pair := err1 == nil && err2 == nil && first <= 0xffff; {
		case key == "PCI_CLASS" && err1 == nil:
			d.Class = cmp.Or(d.Class, new(topology.ID24(first)))
		case key == "PCI_ID" && pair:
			d.Vendor, d.Device = cmp.Or(d.Vendor, new(topology.ID16(first))),
				cmp.Or(d.Device, new(topology.ID16(second)))
		case key == "PCI_SUBSYS_ID" && pair:
			d.SubsystemVendor = cmp.Or(d.SubsystemVendor, new(topology.ID16(first)))
			d.SubsystemDevice = cmp.Or(d.SubsystemDevice, new(topology.ID16(second)))
		}
	}
}

// place reads a node of -1 as unknown.
func (f *functionDir) place(d *topology.PCIDevice) {
	d.NUMANode = f.count("numa_node")
	d.LocalCPUs = f.cpus(f.dir, "local_cpulist", "local_cpus")
}

func (f *functionDir) binding(d *topology.PCIDevice) {
	d.Driver = f.linkBase("driver")
	// A dump with uevent would also have the link.
	d.DriverKnown = f.has("driver") || f.has("uevent") || f.live && len(f.names) > 0
	if group := f.linkBase("iommu_group"); group != "" {
		if id, err := strconv.Atoi(group); err == nil && id >= 0 {
			d.IOMMUGroup = &id
		} else {
			f.unread(f.path("iommu_group"), fmt.Sprintf("%q is not the number of a group", where.Clip(group)))
		}
	}
}

// link ignores a speed of "Unknown", a width of 0, and a maximum width of 255, which mean no or an unknown link.
func (f *functionDir) link(d *topology.PCIDevice) {
	width := func(name string) *int {
		w := f.count(name)
		if w == nil || *w == 0 || *w > 32 {
			return nil
		}
		return w
	}
	l := topology.Link{MaxWidth: width("max_link_width"), Width: width("current_link_width")}
	// Functions inside the processor also have these files, without a width.
	if l.MaxWidth == nil && l.Width == nil {
		return
	}
	l.MaxSpeedGTs = f.speed("max_link_speed")
	if l.Width != nil {
		l.SpeedGTs = f.speed("current_link_speed")
	}
	d.Link = &l
}

// speed parses "16.0 GT/s PCIe", or "8 GT/s" before 5.10. It returns nil for "Unknown" and for speeds of conventional
// PCI.
func (f *functionDir) speed(name string) *float64 {
	s := f.word(name)
	number, rest, _ := strings.Cut(s, " ")
	switch {
	case s == "", strings.HasPrefix(s, "Unknown"), strings.HasPrefix(rest, "MHz"):
		return nil
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !strings.HasPrefix(rest, "GT/s") || v <= 0 || v > 1024 {
		f.unread(f.path(name), fmt.Sprintf("%q is not a link speed", where.Clip(s)))
		return nil
	}
	return &v
}

// passthrough is for assigning the function.
func (f *functionDir) passthrough(d *topology.PCIDevice) {
	if override := f.word("driver_override"); override != "(null)" {
		d.Override = override
	}
	if f.has("reset_method") {
		d.ResetMethods, d.ResetKnown = strings.Fields(f.word("reset_method")), true
	}
	d.D3Cold = f.flag("d3cold_allowed")
	d.BootVGA = f.flag("boot_vga")
	if n := f.count("enable"); n != nil { // a usage count
		d.Enabled = new(*n > 0)
	}
	if f.has("resource") {
		if text, ok := f.text(f.path("resource")); ok {
			bars, err := parseBARs(text, d.IsBridge())
			if err != nil {
				f.unread(f.path("resource"), err.Error())
			}
			d.BARs = bars
		}
	}
}

func (f *functionDir) virtualFunctions(d *topology.PCIDevice) {
	if pf := f.linkBase("physfn"); pf != "" {
		if addr, err := topology.ParsePCIAddr(pf); err == nil {
			d.PF = &addr
		} else {
			f.unread(f.path("physfn"), err.Error())
		}
	}
	if !f.has("sriov_totalvfs") {
		return
	}
	d.SRIOV = &topology.SRIOV{
		Total: f.count("sriov_totalvfs"), Enabled: f.count("sriov_numvfs"),
		Offset: f.count("sriov_offset"), Stride: f.count("sriov_stride"), Autoprobe: f.flag("sriov_drivers_autoprobe"),
		VFs: []topology.VF{},
	}
	for _, name := range f.names {
		digits, ok := strings.CutPrefix(name, "virtfn")
		index, err := strconv.ParseUint(digits, 10, 16)
		if !ok || err != nil {
			continue
		}
		vf := topology.VF{Index: int(index)}
		if addr, err := topology.ParsePCIAddr(f.linkBase(name)); err == nil {
			vf.Address = &addr
		}
		d.SRIOV.VFs = append(d.SRIOV.VFs, vf)
	}
	slices.SortFunc(d.SRIOV.VFs, func(a, b topology.VF) int { return cmp.Compare(a.Index, b.Index) })
}

// config reads a bridge's buses and port, ACS, ATS, and facts without files on old kernels. It skips functions in
// D3cold, because the kernel would wake them.
func (f *functionDir) config(d *topology.PCIDevice) {
	if !f.has("config") || f.isAsleep(d) {
		return
	}
	parts := pci.Identity | pci.Buses | pci.LinkState | pci.Capabilities
	if f.live { // reading a dump is free
		parts = f.configNeeds(d)
	}
	if parts == 0 {
		return
	}
	c := f.readPCIConfig(f.path("config"), parts)
	if c.HeadOnly && (d.IsBridge() || c.Bridge != nil || d.IsGPU() || d.IsNIC()) {
		f.headOnly = true
	}
	d.Dead, d.Bridge, d.ACS, d.ATS, d.NoAtomics = c.Dead, c.Bridge, c.ACS, c.ATS, c.NoAtomics
	d.Class, d.Vendor, d.Device = cmp.Or(d.Class, c.Class), cmp.Or(d.Vendor, c.Vendor), cmp.Or(d.Device, c.Device)
	d.Revision = cmp.Or(d.Revision, c.Revision)
	d.Link = cmp.Or(d.Link, c.Link)
	if d.SRIOV != nil && c.SRIOV != nil {
		d.SRIOV.Offset, d.SRIOV.Stride = cmp.Or(d.SRIOV.Offset, c.SRIOV.Offset), cmp.Or(d.SRIOV.Stride, c.SRIOV.Stride)
	}
	d.SRIOV = cmp.Or(d.SRIOV, c.SRIOV)
}

// configNeeds returns the parts that are worth an access to the device. Only bridges, GPUs and NICs need any, and
// functions without identifiers.
func (f *functionDir) configNeeds(d *topology.PCIDevice) pci.Part {
	var parts pci.Part
	bridge := d.IsBridge()
	switch {
	case d.Class == nil || d.Vendor == nil || d.Device == nil:
		parts = pci.Identity | pci.Buses
	case bridge:
		parts = pci.Buses
	case !d.IsGPU() && !d.IsNIC():
		return 0
	}
	// Kernels with power_state (5.12) have link files (4.13) for every PCI Express function.
	if bridge || f.has("max_link_width") || !f.has("power_state") {
		parts |= pci.Capabilities
		if d.Link == nil {
			parts |= pci.LinkState
		}
	}
	if parts == 0 || d.Revision == nil { // the identity shows whether the function is alive
		parts |= pci.Identity
	}
	return parts
}

func (f *functionDir) power(d *topology.PCIDevice) {
	if state := f.word("power_state"); state != "unknown" && state != "error" {
		d.PowerState = state
	}
}

// isAsleep also reports functions that may be in D3cold, before 5.12.
func (f *functionDir) isAsleep(d *topology.PCIDevice) bool {
	if d.PowerState != "" || !f.has("power") {
		return d.PowerState == "D3cold"
	}
	return f.reader.word(f.path("power/runtime_status")) == "suspended"
}

// readPCIConfig reads a file without random access as a whole.
func (r *reader) readPCIConfig(p string, parts pci.Part) pci.Config {
	f, err := r.fs.Open(p)
	if err != nil {
		r.failed(p, err)
		return pci.Config{}
	}
	defer f.Close()
	src, ok := f.(io.ReaderAt)
	if !ok {
		b, err := io.ReadAll(io.LimitReader(f, pci.ExtendedSize))
		if err != nil {
			r.failed(p, err)
			return pci.Config{}
		}
		src = bytes.NewReader(b)
	}
	c, err := pci.Parse(src, parts)
	if err != nil {
		r.failed(p, err)
	}
	return c
}

// Source: include/linux/ioport.h.
const (
	resourceIO       = 0x00000100
	resourceMemory   = 0x00000200
	resourcePrefetch = 0x00002000
	resource64       = 0x00100000
)

// parseBARs parses lines of first address, last address and flags. Lines 0 to 5 are the BARs, 6 is the expansion ROM,
// and 7 to 12 are the BARs of all virtual functions together. A bridge's windows follow; they start at 7 in kernels
// without SR-IOV. Absent resources are zeros.
//
// Source: drivers/pci/pci-sysfs.c, resource_show; include/linux/pci.h, "PCI resource numbers".
func parseBARs(text string, bridge bool) ([]topology.BAR, error) {
	last := 12
	if bridge {
		last = 6
	}
	var bars []topology.BAR
	index := -1
	for line := range strings.Lines(text) {
		if index++; index > last {
			break
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return bars, fmt.Errorf("line %d: %q: want a first address, a last address and flags", index+1,
				where.Clip(strings.TrimSpace(line)))
		}
		var v [3]uint64
		for i, field := range fields {
			var err error
			if v[i], err = strconv.ParseUint(strings.TrimPrefix(field, "0x"), 16, 64); err != nil {
				return bars, fmt.Errorf("line %d: %q is not a number in hexadecimal", index+1, where.Clip(field))
			}
		}
		start, end, flags := v[0], v[1], v[2]
		if flags&(resourceIO|resourceMemory) == 0 || end <= start || end-start == math.MaxUint64 {
			continue
		}
		bars = append(bars, topology.BAR{
			Index: index, SizeBytes: end - start + 1,
			Unassigned:   start == 0 && flags&resourceMemory != 0 && index < 6,
			Prefetchable: flags&resourcePrefetch != 0, Bits64: flags&resource64 != 0, IO: flags&resourceIO != 0,
		})
	}
	return bars, nil
}
