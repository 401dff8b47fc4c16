package render

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// All text from a lab, a plan or a host must pass through md, line, word, quote or note, because text/template does not
// escape.
//
//go:embed pages/*.tmpl
var pageFiles embed.FS

func (v *view) page(name string, data any) string {
	file := name + ".tmpl"
	t := template.Must(template.New(file).Funcs(v.functions()).ParseFS(pageFiles, "pages/"+file))
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(err) // a mistake in the template, which tests find
	}
	return b.String()
}

func (v *view) functions() template.FuncMap {
	steps := 0
	return template.FuncMap{
		// Text.
		"comment": func() string { return mdComment(v.made) },
		"header":  func(text ...any) string { return v.header(fmt.Sprint(text...)) },
		"note":    comment,
		"md":      mdText,
		"line":    oneLine,
		"word":    readWord,
		"quote":   yamlQuote,
		"code":    code,
		"join":    strings.Join,
		"exact":   words.Exact[uint64],
		"count":   words.Count[int],
		"numbers": numbers,
		"mib":     func(bytes uint64) uint64 { return bytes >> 20 },
		"step":    func() int { steps++; return steps },
		// Lab and host.
		"lab":      func() string { return v.lab },
		"made":     func() string { return strings.TrimSuffix(mdText(v.made), ".") },
		"fabric":   func() any { return v.in.Lab.Fabric },
		"payload":  func() int { return v.in.Lab.Fabric.MTU - 28 }, // MTU less IP and ICMP headers
		"frame":    func() int { return v.in.Lab.Fabric.MTU + ethernetOverhead },
		"host":     func() *topology.Host { return v.host },
		"machine":  v.machineName,
		"amd":      func() bool { return isAMD(v.host.System.CPUModel) },
		"given":    func() topology.CPUSet { return v.given },
		"isolated": v.isolated,
		"tickless": v.tickless,
		"whole":    func() bool { return len(v.whole) > 0 },
		"vfs":      v.hasVFs,
		"devices":  v.knownDevices,
		"tenants":  v.tenantPins,
		"iface":    v.pfNetdev,
		"rate":     v.slowestLink,
		// Firmware.
		"iommu":      v.iommuFound,
		"groups":     v.groupsFound,
		"offers":     v.sriovFound,
		"largestBAR": v.largestBAR,
		// Files and units.
		"nic":     v.setsFirmware,
		"why":     v.argumentReasons,
		"reasons": v.kernelWhy,
		"remarks": v.kernelRemarks,
		"pages":   v.pageChecks,
		"checks":  v.checks,
		// Lab nodes and their devices.
		"domain":     func(node string) string { return readWord(lab.VMName(v.plan.Lab, node)) },
		"domainPath": DomainPath,
		"disk": func(node, suffix string) string {
			return readWord(strings.TrimSuffix(DiskPath(v.plan.Lab, node), ".qcow2") + suffix)
		},
		"guestDir":    guestDir,
		"emulatorPin": func(n plan.Node) string { return v.plan.EmulatorPin(&n, v.in.Host).String() },
		"numa":        numaText,
		"cells":       cellsOfDevices,
		"links":       v.guestPorts,
		"pair":        v.measuredPair,
		"hosts":       v.hostNames,
		"packages":    packages,
		"gid":         func() string { return string(v.gidScript()) },
		"indent":      indent,
	}
}

func (v *view) readme() []byte { return []byte(v.page("README.md", v.plan)) }

// switches follows the convention of NICs and switches: priority 3 is lossless, and DSCP 26 (AF31) maps to it.
func (v *view) switches() []Artifact {
	return []Artifact{text("switch.md", v.page("switch.md", v.plan))}
}

func readWord(s string) string { return words.ShellWord(oneLine(s)) }

// code indents, so that no text can end the block.
func code(lines []string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString("    " + strings.TrimRight(l, " ") + "\n")
	}
	return b.String()
}

func indent(by int, text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		if strings.TrimSpace(l) != "" {
			b.WriteString(strings.Repeat(" ", by))
		}
		b.WriteString(l)
	}
	return b.String()
}

func (v *view) argumentReasons() []string {
	var items []string
	for i, arg := range v.plan.KernelArgs[:min(len(v.plan.KernelArgs), len(v.plan.KernelWhy))] {
		items = append(items, "`"+arg+"`: "+mdText(v.plan.KernelWhy[i]))
	}
	return items
}

func (v *view) tickless() []topology.CPUSet {
	var sets []topology.CPUSet
	for _, arg := range v.plan.KernelArgs {
		if set, ok := cmdline.NohzFull(arg); ok {
			sets = append(sets, set.Difference(topology.CPUs(cmdline.BootCPU)))
		}
	}
	return sets
}

func (v *view) knownDevices() []*topology.PCIDevice {
	var all []*topology.PCIDevice
	for _, a := range v.whole {
		if d := v.host.Device(a); d != nil && d.Vendor != nil && d.Device != nil {
			all = append(all, d)
		}
	}
	return all
}

// tenantPins leaves out pinned virtual machines: the plan avoids their CPUs.
func (v *view) tenantPins() []string {
	keep := v.housekeeping().Union(v.plan.Housekeeping.TenantCPUs).String()
	var lines []string
	for _, t := range v.host.Tenants {
		if len(t.Pins) > 0 || t.Floating != nil && !t.Floating.Overlaps(v.given) || keep == "" {
			continue
		}
		name := readWord(t.Name)
		for cpu := range t.VCPUs {
			lines = append(lines, fmt.Sprintf("virsh vcpupin %s %d %s --config", name, cpu, keep))
		}
		lines = append(lines, fmt.Sprintf("virsh emulatorpin %s %s --config", name, keep))
	}
	return lines
}

func (v *view) pageChecks() []string {
	var lines []string
	for _, p := range v.plan.Hugepages {
		if p.PageBytes > 0 && p.Count+p.Held > 0 {
			lines = append(lines, fmt.Sprintf(
				"cat /sys/devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages   # %d or more",
				p.NUMANode, p.PageBytes>>10, p.Count+p.Held))
		}
	}
	return lines
}

type topic struct {
	Title, Note string
	Checks      []string // commands with their output
}

func (v *view) checks() []topic {
	var all []topic
	if pages := v.pageChecks(); len(pages) > 0 {
		all = append(all, topic{"Hugepages", "A guest whose NUMA node is short of pages does not start.", pages})
	}
	if len(v.whole) > 0 {
		t := topic{"Devices", "The drivers of the host let go of these devices: their network interfaces and " +
			"displays vanish from the host.", nil}
		for _, a := range v.whole {
			t.Checks = append(t.Checks, fmt.Sprintf("lspci -nnk -s %s   # Kernel driver in use: vfio-pci", a))
		}
		t.Checks = append(t.Checks, "ls /dev/vfio              # a number for each IOMMU group, beside vfio")
		all = append(all, t)
	}
	if v.hasVFs() {
		all = append(all, topic{"Virtual functions", "The interface of the physical function stays the host's, comes " +
			"up, and carries the lab's MTU.", v.vfChecks()})
	}
	all = append(all, topic{"Governor", "All CPUs at full frequency.", []string{"cat /sys/devices/system/cpu/cpu*/" +
		"cpufreq/scaling_governor | sort -u   # performance, where the kernel scales frequencies at all"}})
	keep := v.housekeeping()
	if keep.IsEmpty() || v.given.IsEmpty() {
		return all
	}
	if v.isolated().IsEmpty() {
		all = append(all, topic{"CPU sets", "The host leaves the CPUs of the lab nodes alone, without a reboot.",
			[]string{"cat /sys/fs/cgroup/system.slice/cpuset.cpus.effective   # within " + keep.String()}})
	}
	return append(all, topic{"Interrupts", "Interrupts of the host go to housekeeping CPUs. Repeat the step after " +
		"devices were added.", []string{"grep . /proc/irq/*/smp_affinity_list   # within " + keep.String() +
		", but for those that cannot be moved"}})
}

func (v *view) vfChecks() []string {
	var lines []string
	for _, c := range v.plan.VFs {
		lines = append(lines, fmt.Sprintf("cat /sys/bus/pci/devices/%s/sriov_numvfs   # %d", readWord(c.PF), c.Count))
	}
	for _, p := range v.allPorts() {
		if p.isVF() {
			lines = append(lines, fmt.Sprintf("readlink /sys/bus/pci/devices/%s/virtfn%d   # %s, of %s", p.pf,
				*p.card.VF, v.vfPlace(&p), oneLine(p.node)))
		}
	}
	return lines
}

// vfPlace is a prediction: the page's check shows another address before a node is started.
func (v *view) vfPlace(p *port) string {
	if m, err := newMachine(v.in); err == nil {
		if a, err := m.vfAddress(p.card.ID, fmt.Sprint(*p.card.VF)); err == nil {
			return "../" + a.String()
		}
	}
	return "an address"
}

func numaText(n plan.Node) string {
	if len(n.Cells) < 2 {
		return "available: 1 nodes (0)"
	}
	var parts []string
	for _, c := range n.Cells {
		cpus := "no CPUs"
		if c.VCPUs > 0 {
			cpus = fmt.Sprintf("CPUs %d to %d", c.FirstVCPU, c.FirstVCPU+c.VCPUs-1)
		}
		parts = append(parts, fmt.Sprintf("node %d: %s, %d MB", c.Cell, cpus, c.Bytes>>20))
	}
	return fmt.Sprintf("available: %d nodes (0-%d); %s, less what the kernel keeps", len(n.Cells), len(n.Cells)-1,
		strings.Join(parts, "; "))
}

func cellsOfDevices(n plan.Node) string {
	var parts []string
	for _, c := range n.Cards {
		if c.Cell != nil {
			parts = append(parts, fmt.Sprintf("%d for the %s (%s)", *c.Cell, c.Kind, oneLine(c.ID)))
		}
	}
	return strings.Join(parts, ", ")
}

type guestPort struct {
	Node, Port, Addr, IP string
	Missing              string // why it cannot be found reliably, or ""
	Near                 string // runs a test on the port's NUMA node, if the guest sees any
}

func (v *view) guestPorts(i int) []guestPort {
	n := &v.plan.Nodes[i]
	var all []guestPort
	for k, l := range v.links(i) {
		p := v.ports[i][k]
		g := guestPort{Node: n.Name, Port: p.nic.Name, Addr: l.Addr, IP: p.nic.Addr.Addr().String()}
		if !l.Found() {
			g.Missing = l.Why
		}
		if n.GuestNUMA && p.card != nil && p.card.Cell != nil {
			g.Near = fmt.Sprintf("numactl -N %[1]d -m %[1]d ", *p.card.Cell)
		}
		all = append(all, g)
	}
	return all
}

func (v *view) measuredPair() *struct{ Server, Client guestPort } {
	var first []guestPort
	for i := range v.ports {
		if ports := v.guestPorts(i); len(ports) > 0 {
			first = append(first, ports[0])
		}
	}
	if len(first) < 2 {
		return nil
	}
	return &struct{ Server, Client guestPort }{first[0], first[1]}
}

// ethernetOverhead: addresses and type 14 bytes, a VLAN tag 4, the checksum 4.
const ethernetOverhead = 14 + 4 + 4

// pfNetdev returns a placeholder unless there is exactly one.
func (v *view) pfNetdev() string {
	var names []string
	for _, p := range v.allPorts() {
		if !p.isVF() {
			continue
		}
		if nic := v.nics[p.card.ID]; nic != nil && len(nic.Netdevs) > 0 {
			names = append(names, oneLine(nic.Netdevs[0]))
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) != 1 {
		return "IFACE"
	}
	return words.ShellWord(names[0])
}

// slowestLink returns the lowest known link rate and the minimum result of a test on it, or nil. Headers and gaps are 2
// % of a RoCE v2 frame with 4096 bytes of payload; another 2 % are allowed.
func (v *view) slowestLink() *struct{ Gbps, Least int64 } {
	var rates []int64
	for _, p := range v.allPorts() {
		if p.card == nil {
			continue
		}
		if nic := v.nics[p.card.ID]; nic != nil && nic.SpeedMbps != nil && *nic.SpeedMbps > 0 {
			rates = append(rates, *nic.SpeedMbps/1000)
		}
	}
	if len(rates) == 0 || slices.Min(rates) == 0 {
		return nil
	}
	return &struct{ Gbps, Least int64 }{slices.Min(rates), slices.Min(rates) * 96 / 100}
}
