package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/inspect/pci"
	"github.com/rackless/rackless/machine/topology"
)

type gpus map[topology.PCIAddr]*topology.GPU

func (g gpus) at(a topology.PCIAddr) *topology.GPU {
	g[a] = cmp.Or(g[a], &topology.GPU{Address: &a})
	return g[a]
}

// readGPUs reads the drivers' descriptions. Host.Complete adds GPUs without one.
func (r *reader) readGPUs() {
	found := gpus{}
	r.readDRM(found)
	r.readKFD(found)
	r.readNVIDIA(found)
	for _, a := range slices.SortedFunc(maps.Keys(found), topology.PCIAddr.Compare) {
		r.h.GPUs = append(r.h.GPUs, *found[a])
	}
}

// readDRM reads cards with a display driver, and amdgpu's compute cards.
func (r *reader) readDRM(found gpus) {
	const class = "sys/class/drm"
	for _, n := range r.numbered(class, "card") {
		card := "card" + strconv.Itoa(n)
		p := class + "/" + card
		a, ok := r.functionOf(p)
		if !ok {
			continue // a firmware frame buffer, USB
		}
		g := found.at(a)
		g.Name = cmp.Or(g.Name, card)
		if m := r.monitor(p, card); m != nil && (g.ConnectedMon == nil || *m) {
			g.ConnectedMon = m
		}
		r.readAMDGPU(g, p+"/device")
	}
	for i := range r.h.PCI { // a dump may have only the PCI devices
		d := &r.h.PCI[i]
		dir := "sys/bus/pci/devices/" + d.Address.String()
		if d.IsGPU() && d.Vendor != nil && *d.Vendor == topology.VendorAMD && found[d.Address] == nil &&
			r.exists(dir+"/"+vramTotal) {
			r.readAMDGPU(found.at(d.Address), dir)
		}
	}
}

// monitor reports whether a display is connected, or nil without connectors: card1/card1-DP-1/status.
func (r *reader) monitor(p, card string) *bool {
	var connected *bool
	for _, name := range r.dir(p) {
		if !strings.HasPrefix(name, card+"-") {
			continue
		}
		switch r.word(p + "/" + name + "/status") {
		case "connected":
			return new(true)
		case "disconnected":
			connected = new(false)
		}
	}
	return connected
}

// vramTotal exists for every amdgpu device.
const vramTotal = "mem_info_vram_total"

// Source: Documentation/gpu/amdgpu/driver-misc.rst.
func (r *reader) readAMDGPU(g *topology.GPU, dir string) {
	if g.MemoryBytes = cmp.Or(g.MemoryBytes, r.size(dir+"/"+vramTotal)); g.MemoryBytes == nil {
		return
	}
	g.BAR1Bytes = r.size(dir + "/mem_info_vis_vram_total") // reachable through the BAR
	g.VBIOS = r.word(dir + "/vbios_version")
	g.Model = r.word(dir + "/product_name") // empty unless in the board's FRU
	g.Partition = r.word(dir + "/current_compute_partition")
	g.DriverVer = r.word("sys/module/amdgpu/version") // only for an out-of-tree driver
	if id := r.word(dir + "/unique_id"); strings.Trim(id, "0x") != "" {
		g.UUID = id
	}
}

// readKFD reads the compute nodes of AMD GPUs: architecture, and number of GPUs linked by xGMI.
//
// Source: drivers/gpu/drm/amd/amdkfd/kfd_topology.c and kfd_crat.h of the kernel.
func (r *reader) readKFD(found gpus) {
	const dir = "sys/class/kfd/kfd/topology/nodes"
	nodes := r.numbered(dir, "")
	isGPU := map[uint64]bool{}
	for _, n := range nodes {
		if id := r.number(dir + "/" + strconv.Itoa(n) + "/gpu_id"); id != nil && *id != 0 { // 0 is a CPU node
			isGPU[uint64(n)] = true
		}
	}
	for _, n := range nodes {
		if !isGPU[uint64(n)] {
			continue
		}
		p := dir + "/" + strconv.Itoa(n)
		properties := r.properties(p + "/properties")
		a, ok := kfdAddress(properties)
		if !ok {
			continue
		}
		g := found.at(a)
		if g.ComputeArch != "" {
			continue // another partition
		}
		g.ComputeArch = gfxName(properties["gfx_target_version"])
		links := 0
		for _, m := range r.numbered(p+"/io_links", "") {
			const xgmi = 11 // CRAT_IOLINK_TYPE_XGMI; CPUs do not count
			link := r.properties(p + "/io_links/" + strconv.Itoa(m) + "/properties")
			if link["type"] == xgmi && isGPU[link["node_to"]] {
				links++
			}
		}
		if links > 0 {
			g.NVLinks = &links
		}
	}
}

// properties skips values that are not numbers.
func (r *reader) properties(p string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(r.word(p)) {
		if f := strings.Fields(line); len(f) == 2 {
			if v, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				out[f[0]] = v
			}
		}
	}
	return out
}

// kfdAddress parses location_id: bus, device and function as PCI encodes them, and the partition in its highest 4 bits.
func kfdAddress(properties map[string]uint64) (topology.PCIAddr, bool) {
	id, ok := properties["location_id"]
	domain := properties["domain"]
	id &= 0x0fffffff
	if !ok || id > 0xffff || domain > 0xffffffff {
		return topology.PCIAddr{}, false
	}
	return pci.AddressOf(uint32(domain), uint16(id)), true
}

// gfxName turns 90402 into "gfx942": minor version and stepping have two decimal digits each, one hexadecimal digit in
// the name. It returns "" for kernels before 5.14.
func gfxName(v uint64) string {
	major, minor, stepping := v/10000, v/100%100, v%100
	if major == 0 || major > 99 || minor > 15 || stepping > 15 {
		return ""
	}
	return fmt.Sprintf("gfx%d%x%x", major, minor, stepping)
}
