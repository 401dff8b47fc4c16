package topology

import (
	"slices"
	"strings"
)

// OnlyDevice returns the first function of the device below a bridge when there is exactly one
// device, however deep; nil otherwise.
func (t *Tree) OnlyDevice(bridge PCIAddr) *PCIDevice {
	var found *PCIDevice
	for d := range t.Below(bridge) {
		switch {
		case found == nil:
			found = d
		case !found.Address.SameDevice(d.Address):
			return nil
		}
	}
	return found
}

// Below yields the functions below a bridge that are no bridges, however deep, those near it first.
func (t *Tree) Below(bridge PCIAddr) func(yield func(*PCIDevice) bool) {
	return func(yield func(*PCIDevice) bool) {
		queue := []PCIAddr{bridge}
		for i := 0; i < len(queue); i++ {
			for _, d := range t.Children(queue[i]) {
				switch {
				case slices.Contains(queue, d.Address): // a loop in a broken dump
				case d.IsBridge():
					queue = append(queue, d.Address)
				case !yield(d):
					return
				}
			}
		}
	}
}

// crossed returns the bridges whose links data between a and b crosses, and those above the bridge
// where both meet, with that one: data crosses them only where it makes a detour.
func (t *Tree) crossed(a, b *PCIDevice) (crossed, above []*PCIDevice) {
	upA, upB := t.Ancestors(a.Address), t.Ancestors(b.Address)
	for i, bridge := range upA {
		if j := slices.Index(upB, bridge); j >= 0 {
			return slices.Concat(upA[:i], upB[:j]), upA[i:]
		}
	}
	return slices.Concat(upA, upB), nil
}

// Redirecting returns the ports between two devices below one bridge that send requests of peers up
// to the root complex. A request is redirected by the port that it enters, and its answer by the one
// on the other side. A device with ATS sends translated requests, which a port with Direct
// Translated P2P lets through.
func (t *Tree) Redirecting(a, b *PCIDevice) []PCIAddr {
	if a.Address.SameDevice(b.Address) {
		return nil
	}
	crossed, above := t.crossed(a, b)
	translated := a.ATS != nil && *a.ATS || b.ATS != nil && *b.ATS
	var ports []PCIAddr
	for _, p := range crossed {
		if p.ACS != nil && p.ACS.RequestRedirect && !(translated && p.ACS.DirectTranslated) && len(above) > 0 {
			ports = append(ports, p.Address)
		}
	}
	return ports
}

// Meet returns the bridge nearest to two functions that both are below, or nil.
func (t *Tree) Meet(a, b PCIAddr) *PCIDevice {
	da, db := t.byAddr[a], t.byAddr[b]
	if da == nil || db == nil {
		return nil
	}
	if _, above := t.crossed(da, db); len(above) > 0 {
		return above[0]
	}
	return nil
}

// gpuAt returns the GPU of a function, or nil.
func (t *Tree) gpuAt(d *PCIDevice) *GPU {
	return find(t.host.GPUs, func(g *GPU) bool { return g.Address != nil && *g.Address == d.Address })
}

func (t *Tree) isCoherent(d *PCIDevice) bool {
	g := t.gpuAt(d)
	return g != nil && g.IsCoherent()
}

func (t *Tree) noPeers(d *PCIDevice) bool {
	g := t.gpuAt(d)
	return g != nil && g.NoPeers()
}

// IsCoherent reports whether the GPU is joined to its processor by NVLink C2C: what its PCI Express
// link says is not what its data takes.
//
// Source: NVIDIA Grace Hopper, Grace Blackwell (GB200, GB300) and GB10 architecture papers.
func (g *GPU) IsCoherent() bool {
	return g.C2CGBps != nil || g.MemoryNode != nil || slices.ContainsFunc([]string{"GH200", "GB200", "GB300", "GB10"},
		func(name string) bool { return HasWord(g.Model, name) })
}

// NoPeers reports whether other devices of PCI Express cannot reach the GPU's memory: GeForce since
// Turing. Earlier ones could, and NVLink between two cards still does.
//
// Source: CUDA, cudaDeviceCanAccessPeer; GPUDirect RDMA, "supported on Tesla and Quadro".
func (g *GPU) NoPeers() bool {
	return strings.Contains(g.Model, "GeForce RTX") || strings.Contains(g.Model, "GeForce GTX 16")
}

// HasWord reports whether a model's name has a word: "GA100 [A100 SXM4 40GB]" has A100, "GB200" has no B200.
func HasWord(model, word string) bool {
	letter := func(i int) bool {
		return i >= 0 && i < len(model) && (model[i] >= '0' && model[i] <= '9' || model[i]|0x20 >= 'a' &&
			model[i]|0x20 <= 'z')
	}
	// The name may stand in the model twice, and only once as a word.
	for from := 0; ; {
		i := strings.Index(model[from:], word)
		if i < 0 {
			return false
		}
		if i += from; !letter(i-1) && !letter(i+len(word)) {
			return true
		}
		from = i + len(word)
	}
}

// Device returns the function at an address; nil where the host has none. Whoever asks for many of them makes a [Tree],
// which has an index.
func (h *Host) Device(a PCIAddr) *PCIDevice {
	return find(h.PCI, func(d *PCIDevice) bool { return d.Address == a })
}

// NIC returns the NIC at an address; nil where the host has none.
func (h *Host) NIC(a PCIAddr) *NIC {
	return find(h.NICs, func(n *NIC) bool { return n.Address != nil && *n.Address == a })
}

// Core returns the core that a CPU is a thread of; nil where that is not known.
func (h *Host) Core(cpu int) *Core {
	return find(h.Cores, func(c *Core) bool { return c.CPUs.Contains(cpu) })
}
