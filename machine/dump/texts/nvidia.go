package texts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

func numberAfter(s, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(s, prefix)
	n, err := strconv.ParseUint(digits, 10, 16)
	return int(n), ok && err == nil
}

var gpuTitle = lazyregexp.New(`^(.+?) \(UUID: (\S+)\)$`)

// eachNVLink calls gpu and link for the lines of nvidia-smi nvlink --status:
//
//	GPU 0: NVIDIA H100 PCIe (UUID: GPU-...)
//	         Link 0: 26.562 GB/s
//	         Link 1: <inactive>
func eachNVLink(s string, gpu func(index int, title string), link func(active bool)) {
	seen := false
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		if n, ok := numberAfter(key, "GPU "); ok {
			seen = true
			gpu(n, value)
		} else if _, ok := numberAfter(key, "Link "); ok && seen {
			link(strings.HasSuffix(value, "GB/s"))
		}
	}
}

// NVLinks returns the number of active links by GPU index. It omits a GPU without links; one with all links down has 0.
func NVLinks(s string) map[int]int {
	out := map[int]int{}
	at := 0
	eachNVLink(s, func(index int, _ string) { at = index }, func(active bool) {
		out[at] += 0
		if active {
			out[at]++
		}
	})
	return out
}

// nvlinkStatus also reads nvidia-smi -L, of the same form without links.
func (r *reader) nvlinkStatus() {
	var g *topology.GPU
	told := false
	eachNVLink(r.Text.Text, func(index int, title string) {
		at := slices.IndexFunc(r.h.GPUs, func(g topology.GPU) bool { return *g.Index == index })
		if at < 0 {
			at = len(r.h.GPUs)
			r.h.GPUs = append(r.h.GPUs, topology.GPU{Index: &index, Name: "GPU" + strconv.Itoa(index),
				Kind: topology.GPUDiscrete, Vendor: "NVIDIA Corporation", NVLinks: new(0)})
		}
		g = &r.h.GPUs[at]
		if m := gpuTitle().FindStringSubmatch(title); m != nil {
			g.Model, g.UUID = m[1], m[2]
		}
	}, func(active bool) {
		told = true
		if active {
			*g.NVLinks++
		}
	})
	for i := range r.h.GPUs {
		if !told {
			r.h.GPUs[i].NVLinks = nil
		}
	}
}

// nvidiaQuery qualifies keys by their headings, because some occur below several.
func (r *reader) nvidiaQuery() {
	var g nvidiaGPU
	var heads [16]string // by indentation
	driver := ""
	for line := range strings.Lines(r.Text.Text) {
		text := strings.TrimLeft(line, " \t")
		indent := min((len(line)-len(text)+3)/4, len(heads)-1)
		key, value, ok := strings.Cut(strings.TrimSpace(text), " : ")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if name, isGPU := strings.CutPrefix(key, "GPU "); isGPU && !ok && address(name) != nil {
			g = r.nvidia(*address(name))
			g.DriverVer = driver
			continue
		}
		if !ok {
			heads[indent] = key
			clear(heads[indent+1:])
			continue
		}
		if key == "Driver Version" {
			driver = value
		}
		if g.GPU == nil || value == "N/A" || strings.HasPrefix(value, "[") {
			continue
		}
		// The outermost heading, the GPU, is dropped: keys are "FB Memory Usage/Total".
		key = strings.TrimPrefix(strings.Join(heads[min(1, indent):indent], "/")+"/"+key, "/")
		for _, known := range nvidiaFields {
			if known.key == key {
				known.set(g, value)
			}
		}
	}
}

type nvidiaGPU struct {
	*topology.GPU
	*topology.PCIDevice
}

// nvidiaFields are the key in nvidia-smi -q with its headings, the element in -q -x, and the field in --query-gpu.
var nvidiaFields = []struct {
	key, element, field string
	set                 func(g nvidiaGPU, value string)
}{
	{"Product Name", "product_name", "name", func(g nvidiaGPU, v string) { g.Model, g.DeviceName = v, v }},
	{"Persistence Mode", "persistence_mode", "", func(g nvidiaGPU, v string) { g.PersistMode = new(v == "Enabled") }},
	{"MIG Mode/Current", "mig_mode/current_mig", "", func(g nvidiaGPU, v string) { g.MIG = v }},
	{"GPU UUID", "uuid", "uuid", func(g nvidiaGPU, v string) { g.UUID = v }},
	{"VBIOS Version", "vbios_version", "", func(g nvidiaGPU, v string) { g.VBIOS = v }},
	{"Display Active", "display_active", "",
		func(g nvidiaGPU, v string) { g.ConnectedMon = new(v == "Enabled" || v == "Yes") }},
	{"FB Memory Usage/Total", "fb_memory_usage/total", "memory.total",
		func(g nvidiaGPU, v string) { g.MemoryBytes = size(v) }},
	{"BAR1 Memory Usage/Total", "bar1_memory_usage/total", "", func(g nvidiaGPU, v string) { g.BAR1Bytes = size(v) }},
	{"Driver Version", "", "driver_version", func(g nvidiaGPU, v string) { g.DriverVer = v }},
	{"PCI/Device Id", "pci/pci_device_id", "", func(g nvidiaGPU, v string) {
		// Device above vendor: 0x233010DE.
		if v, err := strconv.ParseUint(strings.TrimPrefix(v, "0x"), 16, 32); err == nil {
			g.Device = new(topology.ID16(v >> 16))
		}
	}},
	{"PCI/GPU Link Info/PCIe Generation/Max", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "pcie.link.gen.max",
		func(g nvidiaGPU, v string) { g.link().MaxSpeedGTs = generation(v) }},
	{"PCI/GPU Link Info/PCIe Generation/Current", "pci/pci_gpu_link_info/pcie_gen/current_link_gen",
		"pcie.link.gen.current", func(g nvidiaGPU, v string) { g.link().SpeedGTs = generation(v) }},
	{"PCI/GPU Link Info/Link Width/Max", "pci/pci_gpu_link_info/link_widths/max_link_width", "pcie.link.width.max",
		func(g nvidiaGPU, v string) { g.link().MaxWidth = count(strings.TrimSuffix(v, "x")) }},
	{"PCI/GPU Link Info/Link Width/Current", "pci/pci_gpu_link_info/link_widths/current_link_width",
		"pcie.link.width.current", func(g nvidiaGPU, v string) { g.link().Width = count(strings.TrimSuffix(v, "x")) }},
}

func (r *reader) nvidiaXML() {
	log := r.xml()
	for e := range log.All("gpu") {
		a := address(e.Attr("id"))
		if a == nil {
			r.note(e.Line-1, "<gpu>: %q is not a PCI address", e.Attr("id"))
			continue
		}
		g := r.nvidia(*a)
		g.DriverVer = text(at(log, "driver_version"))
		for _, known := range nvidiaFields {
			value := text(at(e, strings.Split(known.element, "/")...))
			if value != "" && value != "N/A" && !strings.HasPrefix(value, "[") {
				known.set(g, value)
			}
		}
	}
}

func (r *reader) nvidia(a topology.PCIAddr) nvidiaGPU {
	index := len(r.h.GPUs)
	r.h.GPUs = append(r.h.GPUs, topology.GPU{Address: &a, Index: &index, Kind: topology.GPUDiscrete,
		Vendor: "NVIDIA Corporation"})
	r.h.PCI = append(r.h.PCI, topology.PCIDevice{Address: a, ParentUnknown: true, Vendor: new(topology.VendorNVIDIA),
		Class: new(topology.ID24(0x030200)), Driver: "nvidia", DriverKnown: true})
	return nvidiaGPU{&r.h.GPUs[index], &r.h.PCI[index]}
}

// smiForm matches the head of nvidia-smi's table, or of its --query-gpu with addresses.
const (
	smiForm = `^\| NVIDIA-SMI [\d.]+ .*Driver Version: ([\d.]+)|^(?:` + smiField + `, ?)*pci\.bus_id(?:, ?` + smiField +
		`)*$`
	smiField = `[a-z0-9_.]+(?: \[[A-Za-z/%0-9]+\])?`
)

var (
	smiHead = lazyregexp.New(smiForm)
	// smiGPU matches "| 0 NVIDIA A100-SXM4-80GB On | 00000000:07:00.0 Off |".
	smiGPU = lazyregexp.New(
		`^\| +\d+ +(\S.*?) +(On|Off|N/A) +\| +([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]) `)
	// smiMemory matches "| N/A 42C P0 79W / 700W | 0MiB / 143771MiB | 0% Default |".
	smiMemory = lazyregexp.New(`^\| .*\| +\d+MiB / +(\d+MiB) +\|`)
)

// nvidiaTable drops a name that ends with dots, because it is cut off.
func (r *reader) nvidiaTable() {
	driver := ""
	var columns, units []string
	for _, line := range r.lines() {
		if m := smiHead().FindStringSubmatch(line); m != nil {
			driver, columns, units = m[1], strings.Split(line, ","), nil
			for i := range columns {
				name, unit, _ := strings.Cut(columns[i], " [")
				columns[i], units = strings.TrimSpace(name), append(units, strings.TrimSuffix(unit, "]"))
			}
			continue
		}
		if m := smiMemory().FindStringSubmatch(line); m != nil && len(r.h.GPUs) > 0 {
			r.h.GPUs[len(r.h.GPUs)-1].MemoryBytes = size(m[1])
			continue
		}
		if m := smiGPU().FindStringSubmatch(line); m != nil && address(m[3]) != nil {
			g := r.nvidia(*address(m[3]))
			g.DriverVer, g.PersistMode = driver, new(m[2] == "On")
			if !strings.HasSuffix(m[1], "...") {
				g.Model, g.DeviceName = m[1], m[1]
			}
			continue
		}
		values := strings.Split(line, ",")
		at := slices.Index(columns, "pci.bus_id")
		if at < 0 || len(values) != len(columns) || address(strings.TrimSpace(values[at])) == nil {
			continue
		}
		g := r.nvidia(*address(strings.TrimSpace(values[at])))
		for i, value := range values {
			value = strings.TrimSpace(value)
			if columns[i] == "memory.total" {
				value = strings.TrimSuffix(value, units[i]) + units[i]
			}
			for _, known := range nvidiaFields {
				if name := strings.TrimPrefix(columns[i], "gpu_"); name != "" && known.field == name {
					known.set(g, value)
				}
			}
		}
	}
}

func (g nvidiaGPU) link() *topology.Link {
	g.Link = cmp.Or(g.Link, &topology.Link{})
	return g.Link
}

func generation(s string) *float64 {
	// By generation.
	speeds := []float64{2.5, 5, 8, 16, 32, 64}
	if n := count(s); n != nil && *n >= 1 && *n <= len(speeds) {
		return &speeds[*n-1]
	}
	return nil
}
