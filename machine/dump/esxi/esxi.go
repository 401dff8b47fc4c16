// Package esxi reads a vSphere host into a topology.Host, from the properties of a HostSystem.
//
// The API lists the CPUs of each socket and NUMA node, but not the cores. ESXi numbers the threads of a core
// consecutively, so cores are derived from that order. The API has no caches, distances of NUMA nodes, PCI Express
// links, IOMMU groups, or sizes of BARs.
package esxi

import (
	"bytes"
	stdxml "encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// Properties returns the properties that Host reads.
func Properties() []string { return []string{"name", "hardware", "config", "network"} }

// vSphere 8 has at most 960 logical CPUs and 32 NUMA nodes per host. The host of vCenter's simulator has 250 KiB, and
// its deepest element is at level 9.
const (
	maxBytes      = 16 << 20
	maxDepth      = 64
	maxNodes      = 1 << 8
	maxDevices    = 1 << 14
	maxNotes      = 100
	maxTenants    = 1 << 10 // limit of vSphere 8 per host
	maxPortGroups = 1 << 12
)

var objectType = lazyregexp.New(`<obj(?:\s[^>]*)?\stype="(\w+)"`)

// Type returns the type of object in a file of govc object.save, from its beginning, or "".
func Type(head []byte) string {
	head = head[:min(len(head), 4<<10)]
	if !bytes.Contains(head, []byte("<ObjectContent")) {
		return ""
	}
	m := objectType().FindStringSubmatch(string(head))
	if m == nil {
		return ""
	}
	return m[1]
}

// Sniff reports whether head is the beginning of a saved HostSystem.
func Sniff(head []byte) bool { return Type(head) == "HostSystem" }

// An Object returns the file of another object, by type and identifier: VirtualMachine, vm-53. If there is no such
// file, its error is [fs.ErrNotExist].
type Object func(kind, id string) ([]byte, error)

// Parse reads a saved host, without its virtual machines. name appears in messages and the provenance.
func Parse(b []byte, name string) (*topology.Host, error) { return Saved(b, name, nil) }

// Saved reads a saved host and, if object is not nil, its virtual machines.
func Saved(b []byte, name string, object Object) (*topology.Host, error) {
	o, err := decode(b)
	if err != nil {
		return nil, &where.Error{File: name, Err: err}
	}
	var objects Objects
	if object != nil {
		objects = object.saved
	}
	return read(o.PropSet, name, objects, func(r *reader) {
		if object != nil {
			r.tenants(references(o.PropSet, "vm"), object)
		}
	})
}

func references(props []types.DynamicProperty, name string) []types.ManagedObjectReference {
	for _, p := range props {
		if refs, ok := p.Val.(types.ArrayOfManagedObjectReference); ok && p.Name == name {
			return refs.ManagedObjectReference
		}
	}
	return nil
}

func (o Object) saved(refs []types.ManagedObjectReference) (all []types.ObjectContent, err error) {
	for _, ref := range refs {
		text, err := o(ref.Type, ref.Value)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var content *types.ObjectContent
		if err == nil {
			content, err = decode(text)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", ref.Value, err)
		}
		all = append(all, *content)
	}
	return all, nil
}

func decode(b []byte) (*types.ObjectContent, error) {
	if err := bounded(b); err != nil {
		return nil, err
	}
	d := xml.NewDecoder(bytes.NewReader(b))
	d.TypeFunc = types.TypeFunc()
	var o types.ObjectContent
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("not as govc object.save writes it: %w", err)
	}
	return &o, nil
}

// bounded returns an error if decoding would need much memory or a deep stack.
func bounded(b []byte) error {
	if len(b) > maxBytes {
		return fmt.Errorf("larger than %d MiB: not an object of vSphere", maxBytes>>20)
	}
	d := stdxml.NewDecoder(bytes.NewReader(b))
	for depth := 0; ; {
		switch t, err := d.RawToken(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		default:
			switch t.(type) {
			case stdxml.StartElement:
				depth++
			case stdxml.EndElement:
				depth--
			}
			if depth > maxDepth {
				return fmt.Errorf("elements are nested more than %d deep: not an object of vSphere", maxDepth)
			}
		}
	}
}

// Host reads the properties of a HostSystem; tenants are its virtual machines. name appears in messages and the
// provenance.
func Host(props []types.DynamicProperty, tenants []topology.Tenant, objects Objects, name string) (*topology.Host,
	error) {
	return read(props, name, objects, func(r *reader) { r.h.Tenants = tenants })
}

func read(props []types.DynamicProperty, name string, objects Objects, addTenants func(*reader)) (*topology.Host,
	error) {
	r := &reader{h: &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceVSphere, Name: name}}}
	for _, p := range props {
		switch v := p.Val.(type) {
		case types.HostHardwareInfo:
			r.hardware = &v
		case types.HostConfigInfo:
			r.config = &v
		}
	}
	if r.hardware == nil {
		return nil, &where.Error{File: name, Err: errors.New("it has no property hardware: the host is disconnected, " +
			"or the user may not see it")}
	}
	if err := r.read(); err != nil {
		return nil, &where.Error{File: name, Err: err}
	}
	r.switches(references(props, "network"), objects)
	addTenants(r)
	return where.Finish(r.h, nil, name)
}

type reader struct {
	hardware *types.HostHardwareInfo
	config   *types.HostConfigInfo // nil if the host is disconnected
	h        *topology.Host
}

func (r *reader) read() error {
	hw, h := r.hardware, r.h
	h.System = topology.System{Vendor: hw.SystemInfo.Vendor, Product: hw.SystemInfo.Model, Arch: "x86_64"}
	if b := hw.BiosInfo; b != nil {
		h.System.BIOS = b.BiosVersion
	}
	h.Memory.TotalBytes = new(uint64(max(hw.MemorySize, 0)))
	if r.config != nil {
		h.Provenance.Tool = r.config.Product.FullName
	}
	if err := errors.Join(r.cpus(), r.nodes()); err != nil {
		return err
	}
	r.devices()
	if r.config != nil {
		r.passthrough()
		r.nics()
	}
	return nil
}

// cpuSet returns a list's CPUs, which the API has as 16-bit numbers.
func cpuSet(what string, list []int16) (set topology.CPUSet, err error) {
	for _, c := range list {
		if c < 0 || int(c) >= topology.MaxCPUs {
			return set, fmt.Errorf("%s has CPU %d", what, c)
		}
	}
	return topology.UnionOf(list, func(c int16) topology.CPUSet { return topology.CPUs(int(c)) }), nil
}

func (r *reader) cpus() error {
	info, h := r.hardware.CpuInfo, r.h
	threads := 1
	if info.NumCpuCores > 0 && info.NumCpuThreads%info.NumCpuCores == 0 {
		threads = max(1, int(info.NumCpuThreads/info.NumCpuCores))
	}
	var all topology.CPUSet
	for _, p := range r.hardware.CpuPkg {
		set, err := cpuSet(fmt.Sprintf("socket %d", p.Index), p.ThreadId)
		if err != nil {
			return err
		}
		if set.Overlaps(all) || set.Len()%threads != 0 {
			return fmt.Errorf("socket %d has CPUs %v, of %d threads a core", p.Index, set, threads)
		}
		all = all.Union(set)
		h.System.CPUModel = strings.Join(strings.Fields(p.Description), " ")
		h.Packages = append(h.Packages, topology.Package{ID: int(p.Index), CPUs: set, Model: h.System.CPUModel})
		for core := range slices.Chunk(slices.Collect(set.All()), threads) {
			h.Cores = append(h.Cores, topology.Core{CPUs: topology.CPUs(core...), MaxKHz: new(p.Hz / 1000)})
		}
	}
	h.CPUs.Online = all
	if threads > 1 {
		h.CPUs.SMT = "on"
		h.Inferred = append(h.Inferred, fmt.Sprintf("%d CPUs in a row are one core: ESXi numbers them so, and its API "+
			"does not tell", threads))
	}
	return nil
}

func (r *reader) nodes() error {
	info := r.hardware.NumaInfo
	if info == nil {
		return nil
	}
	if len(info.NumaNode) > maxNodes {
		return fmt.Errorf("%d NUMA nodes: at most %d are read", len(info.NumaNode), maxNodes)
	}
	for _, n := range info.NumaNode {
		set, err := cpuSet(fmt.Sprintf("NUMA node %d", n.TypeId), n.CpuID)
		if err != nil {
			return err
		}
		r.h.NUMANodes = append(r.h.NUMANodes, topology.NUMANode{ID: int(n.TypeId), CPUs: set,
			MemoryBytes: new(uint64(max(n.MemorySize, n.MemoryRangeLength, 0)))})
	}
	return nil
}

// note adds a remark, of which a hostile dump could cause one per line.
func (r *reader) note(path, why string) {
	if len(r.h.Unread) < maxNotes {
		r.h.Unread = append(r.h.Unread, topology.Unread{Path: path, Why: why})
	}
}

// address parses segment, bus, slot and function, which ESXi writes in hexadecimal.
func (r *reader) address(what, id string) (topology.PCIAddr, bool) {
	a, err := topology.ParsePCIAddr(id)
	if err != nil {
		r.note(what, err.Error())
	}
	return a, err == nil
}

func (r *reader) devices() {
	list := r.hardware.PciDevice
	if len(list) > maxDevices {
		r.note("hardware.pciDevice", fmt.Sprintf("%d PCI devices: the first %d are read", len(list), maxDevices))
		list = list[:maxDevices]
	}
	nodeOf := map[string]int{}
	if info := r.hardware.NumaInfo; info != nil {
		for _, n := range info.NumaNode {
			for _, id := range n.PciId {
				nodeOf[strings.ToLower(id)] = int(n.TypeId)
			}
		}
	}
	seen := map[topology.PCIAddr]bool{}
	for _, d := range list {
		a, ok := r.address("PCI device", d.Id)
		if !ok || seen[a] {
			continue
		}
		seen[a] = true
		// The API's 16-bit numbers are signed.
		p := topology.PCIDevice{Address: a, Class: new(topology.ID24(uint32(uint16(d.ClassId)) << 8)),
			Vendor: new(topology.ID16(uint16(d.VendorId))), Device: new(topology.ID16(uint16(d.DeviceId))),
			SubsystemVendor: new(topology.ID16(uint16(d.SubVendorId))),
			SubsystemDevice: new(topology.ID16(uint16(d.SubDeviceId))),
			VendorName:      d.VendorName, DeviceName: d.DeviceName, Slot: d.SlotDescription}
		if node, ok := nodeOf[strings.ToLower(d.Id)]; ok {
			p.NUMANode = &node
		}
		if d.ParentBridge != "" {
			if up, ok := r.address(d.Id+": bridge", d.ParentBridge); ok {
				p.Parent = &up
			}
		}
		r.h.PCI = append(r.h.PCI, p)
	}
}

func (r *reader) device(id string) *topology.PCIDevice {
	return lists.Ref(r.h.PCI, func(d *topology.PCIDevice) bool { return d.Address.String() == strings.ToLower(id) })
}

// passthrough infers the IOMMU from a function that can be passed through.
func (r *reader) passthrough() {
	for _, p := range r.config.PciPassthruInfo {
		info := p.GetHostPciPassthruInfo()
		if info.PassthruCapable {
			r.h.IOMMU.Enabled = new(true)
		}
		s, ok := p.(*types.HostSriovInfo)
		if d := r.device(info.Id); ok && d != nil && s.SriovCapable {
			d.SRIOV = &topology.SRIOV{Total: new(int(s.MaxVirtualFunctionSupported)),
				Enabled: new(int(s.NumVirtualFunction)), VFs: []topology.VF{}}
		}
	}
}

func (r *reader) nics() {
	network := r.config.Network
	if network == nil {
		return
	}
	for _, p := range network.Pnic {
		a, ok := r.address(p.Device, p.Pci)
		if !ok {
			continue
		}
		n := topology.NIC{Address: &a, Netdevs: []string{p.Device}, RDMA: []string{}, Driver: p.Driver,
			Firmware: p.FirmwareVersion, Ports: []topology.Netdev{{Name: p.Device, MAC: strings.ToLower(p.Mac),
				State: "down", Carrier: new(false)}}}
		if p.LinkSpeed != nil {
			n.SpeedMbps = new(int64(p.LinkSpeed.SpeedMb))
			n.Ports[0].SpeedMbps, n.Ports[0].State, n.Ports[0].Carrier = n.SpeedMbps, "up", new(true)
		}
		if d := r.device(p.Pci); d != nil {
			d.Driver, d.DriverKnown = p.Driver, true
		}
		r.h.NICs = append(r.h.NICs, n)
	}
	// A vmkernel adapter carries management, storage or vMotion traffic, so the host must keep its NICs.
	for _, v := range network.Vnic {
		route := topology.Route{Family: "ipv4", Netdev: v.Device}
		for _, key := range uplinks(network, v) {
			for _, p := range network.Pnic {
				if a, err := topology.ParsePCIAddr(p.Pci); err == nil && p.Key == key {
					route.PCI = append(route.PCI, a.String())
				}
			}
		}
		if len(route.PCI) > 0 {
			r.h.Routes = append(r.h.Routes, route)
		}
	}
}

func uplinks(network *types.HostNetworkInfo, v types.HostVirtualNic) []string {
	if port := v.Spec.DistributedVirtualPort; port != nil {
		return lists.Find(network.ProxySwitch,
			func(s types.HostProxySwitch) bool { return s.DvsUuid == port.SwitchUuid }).Pnic
	}
	for _, g := range network.Portgroup {
		for _, s := range network.Vswitch {
			if g.Spec.Name == v.Portgroup && g.Spec.VswitchName == s.Name {
				return s.Pnic
			}
		}
	}
	return nil
}
