package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// placeByName uses names that systemd derives from the address: enp94s0f1np1 is function 1 of device 0 of bus 94.
func (j *joiner) placeByName(nics []member[topology.NIC]) []member[topology.NIC] {
	for i := range nics {
		n := &nics[i].device
		if n.Address != nil {
			continue
		}
		names := []string{n.Name}
		names = append(names, lists.Map(n.Ports, func(p topology.Netdev) string { return p.Name })...)
		names = append(names, lists.Map(n.Devices, func(d topology.RDMADevice) string { return d.Name })...)
		for _, name := range names {
			a, ok := addressInName(name)
			if !ok || j.h.Device(a) == nil {
				continue
			}
			if _, vf, virtual := topology.VFInName(name); virtual {
				j.placeVF(n, a, vf)
				j.inferred("%s: that it is virtual function %d of %s follows from its name", name, vf, a)
			} else {
				n.Address = &a
				j.inferred("%s: that it is %s follows from its name", name, a)
			}
			break
		}
	}
	return groupByKey(j, "nics", nics, nicKeys)
}

func isPlaced(n *topology.NIC) bool {
	return slices.ContainsFunc(n.Ports, func(p topology.Netdev) bool {
		_, ok := addressInName(p.Name)
		return ok
	})
}

// placeVF knows the address if a source lists the functions of pf.
func (j *joiner) placeVF(n *topology.NIC, pf topology.PCIAddr, vf int) {
	n.PF = &pf
	s := j.h.Device(pf).SRIOV
	if s == nil {
		return
	}
	if f := lists.Ref(s.VFs, func(f *topology.VF) bool { return f.Index == vf }); f != nil {
		n.Address = f.Address
	}
}

// placeByModel finds the cards that mlxconfig names by model and Mellanox's own device, numbered in address order, if
// there are as many cards of the model.
func (j *joiner) placeByModel(nics []member[topology.NIC]) []member[topology.NIC] {
	named := map[string][]*topology.NIC{}
	for i := range nics {
		if n := &nics[i].device; n.Address == nil && n.Settings != nil && n.Model != "" {
			named[n.Model] = append(named[n.Model], n)
		}
	}
	for _, model := range lists.Keys(named) {
		list := named[model]
		var cards []topology.PCIAddr
		for _, a := range j.free((*topology.PCIDevice).IsNIC, topology.VendorMellanox, nil) {
			first := len(cards) == 0 || !cards[len(cards)-1].SameDevice(a)
			if name := j.h.Device(a).DeviceName; first && modelIn(name) == strings.ToLower(model) {
				cards = append(cards, a)
			}
		}
		if len(cards) != len(list) {
			continue
		}
		slices.SortFunc(list, func(a, b *topology.NIC) int {
			return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
		})
		for i, n := range list {
			n.Address = &cards[i]
		}
		j.inferred("that %s is %s follows from there being %d of the model %s in both texts", list[0].Name, cards[0],
			len(list), model)
	}
	return groupByKey(j, "nics", nics, nicKeys)
}

// modelIn returns "connectx-3" for "MT27500 Family [ConnectX-3]".
func modelIn(name string) string {
	if open, end := strings.IndexByte(name, '['), strings.LastIndexByte(name, ']'); open >= 0 && open < end {
		name = name[open+1 : end]
	}
	return strings.ToLower(name)
}

// addressInName returns the PCI address in a name by systemd's scheme, with decimal numbers. Domain and function are
// left out of the name if they are 0.
//
//	enp94s0f1np1:    bus 94, device 0, function 1 (and port 1, which is not read)
//	enP2p1s0:        domain 2
//	rocep94s0f1:     an RDMA device by rdma-core's scheme, which is the same
//
// Source: systemd.net-naming-scheme(7).
func addressInName(name string) (topology.PCIAddr, bool) {
	rest := ""
	for _, prefix := range []string{"en", "ib", "roce", "iwp", "wl"} {
		if r, ok := strings.CutPrefix(name, prefix); ok {
			rest = r
			break
		}
	}
	// P is the domain, p the bus, s the device ("slot") and f the function.
	part := map[byte]uint64{}
	for len(rest) > 0 && strings.IndexByte("Ppsf", rest[0]) >= 0 {
		letter := rest[0]
		digits := rest[1 : len(rest)-len(strings.TrimLeft(rest[1:], "0123456789"))]
		v, err := strconv.ParseUint(digits, 10, 16)
		if err != nil {
			break
		}
		part[letter], rest = v, rest[1+len(digits):]
	}
	_, hasBus := part['p']
	if _, hasSlot := part['s']; !hasBus || !hasSlot || part['p'] > 255 || part['s'] > 31 || part['f'] > 7 {
		return topology.PCIAddr{}, false
	}
	return topology.PCIAddr{Domain: uint32(part['P']), Bus: uint8(part['p']), Device: uint8(part['s']),
		Function: uint8(part['f'])}, true
}

func (j *joiner) inferred(format string, args ...any) {
	j.h.Inferred = append(j.h.Inferred, fmt.Sprintf(format, args...))
}

// placeByOrder assigns functions to the RDMA devices of NVIDIA's NICs if there are as many of both: the driver numbers
// devices in address order. Bonds are one device on two functions, and virtual functions have no fixed order. A name of
// a function that is not listed shows that the list is an excerpt, which proves no order.
func (j *joiner) placeByOrder(nics []member[topology.NIC]) []member[topology.NIC] {
	var named []*topology.NIC
	taken := map[topology.PCIAddr]bool{}
	for i := range nics {
		n := &nics[i].device
		name := rdmaName(n)
		driver, _, _ := strings.Cut(name, "_")
		switch {
		case n.Address != nil && len(n.RDMA)+len(n.Devices) > 0:
			taken[*n.Address] = true
		case n.Address != nil || n.PF != nil:
		case isPlaced(n):
			return nics
		case (driver == "mlx5" || driver == "mlx4") && !strings.Contains(name, "bond"):
			named = append(named, n)
		}
	}
	free := j.free((*topology.PCIDevice).IsNIC, topology.VendorMellanox, taken)
	if len(named) == 0 || len(free) == 0 {
		return nics
	}
	// Devices of both drivers are numbered apart.
	first := rdmaName(named[0])
	mixed := slices.ContainsFunc(named, func(n *topology.NIC) bool { return rdmaName(n)[:5] != first[:5] })
	if mixed || len(named) != len(free) {
		j.inferred("which of %d functions %d RDMA devices (%s, ...) stand on is not told; ethtool -i and "+
			"ibdev2netdev -v do", len(free), len(named), first)
		return nics
	}
	// mlx5_10 comes after mlx5_9.
	slices.SortFunc(named, func(a, b *topology.NIC) int {
		return cmp.Or(cmp.Compare(len(rdmaName(a)), len(rdmaName(b))), cmp.Compare(rdmaName(a), rdmaName(b)))
	})
	for i, n := range named {
		n.Address = &free[i]
	}
	j.inOrder(rdmaName(named[0]), free)
	return groupByKey(j, "nics", nics, nicKeys)
}

// free returns a vendor's physical functions, by address.
func (j *joiner) free(is func(*topology.PCIDevice) bool, vendor topology.ID16,
	taken map[topology.PCIAddr]bool) (free []topology.PCIAddr) {
	for i := range j.h.PCI {
		d := &j.h.PCI[i]
		virtual := d.PF != nil || strings.HasSuffix(d.DeviceName, "Virtual Function]") ||
			strings.HasSuffix(d.DeviceName, "Virtual Function")
		if is(d) && !virtual && d.Vendor != nil && *d.Vendor == vendor && !taken[d.Address] {
			free = append(free, d.Address)
		}
	}
	slices.SortFunc(free, topology.PCIAddr.Compare)
	return free
}

func (j *joiner) inOrder(name string, free []topology.PCIAddr) {
	j.inferred("that %s is %s, and so on in order, follows from there being %d of both", name, free[0], len(free))
}

func rdmaName(n *topology.NIC) string {
	names := append(slices.Clone(n.RDMA), lists.Map(n.Devices, func(d topology.RDMADevice) string { return d.Name })...)
	return append(names, n.Name)[0]
}

// placeKnown joins GPUs without an address with GPUs that have one, by UUID or else by number, which is the same in all
// outputs of nvidia-smi.
func (j *joiner) placeKnown(gpus []member[topology.GPU]) []member[topology.GPU] {
	placed := false
	for i := range gpus {
		g := &gpus[i].device
		if g.Address != nil {
			continue
		}
		for k := range gpus {
			o := &gpus[k].device
			byUUID := g.UUID != "" && o.UUID != ""
			same := g.Index != nil && o.Index != nil && *g.Index == *o.Index
			if byUUID {
				same = g.UUID == o.UUID
			}
			if o.Address != nil && same && (g.Vendor == o.Vendor || g.Vendor == "" || o.Vendor == "") {
				g.Address, placed = o.Address, true
				break
			}
		}
	}
	if !placed {
		return gpus
	}
	return groupByKey(j, "gpus", gpus, gpuKeys)
}

// placeGPUs assigns functions to a matrix's GPUs if there are as many of both, because the tools number GPUs in address
// order. Otherwise it drops the GPUs without an address and records a contradiction.
func (j *joiner) placeGPUs(gpus []member[topology.GPU]) []member[topology.GPU] {
	gpus = j.placeKnown(gpus)
	var named []*member[topology.GPU]
	matched := map[topology.PCIAddr]bool{}
	for i := range gpus {
		if g := &gpus[i]; g.device.Address == nil {
			named = append(named, g)
		} else if g.device.Index != nil {
			matched[*g.device.Address] = true
		}
	}
	if len(named) == 0 {
		return gpus
	}
	// A matrix does not number the other vendor's GPUs.
	vendor := topology.VendorAMD
	if strings.HasPrefix(named[0].device.Vendor, "NVIDIA") {
		vendor = topology.VendorNVIDIA
	}
	free := j.free((*topology.PCIDevice).IsGPU, vendor, matched)
	if len(free) == 0 {
		return gpus
	}
	if len(named) != len(free) {
		j.contradict("number of GPUs", fmt.Sprint(len(free)), j.sourceOf("pci"), fmt.Sprint(len(named)),
			named[0].source)
		return slices.DeleteFunc(gpus, func(m member[topology.GPU]) bool { return m.device.Address == nil })
	}
	slices.SortStableFunc(named, func(a, b *member[topology.GPU]) int {
		if a.device.Index == nil || b.device.Index == nil {
			return 0
		}
		return cmp.Compare(*a.device.Index, *b.device.Index)
	})
	for i, m := range named {
		m.device.Address = &free[i]
	}
	j.inOrder(named[0].device.Name, free)
	return groupByKey(j, "gpus", gpus, gpuKeys)
}
