// Package texts reads the output of common tools about a machine: lscpu, ibstat, ethtool and others. Each text has a
// part of a topology.Host; package topology/compare joins the parts.
package texts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/dump/where"
	"github.com/rackless/rackless/machine/topology"
)

// A Kind is a kind of text.
type Kind struct {
	// Name is the command that prints the text.
	Name string
	// Heads are beginnings of lines, without indentation, that begin such a text.
	Heads []string
	// Form is the form of such a line; nil if the beginning suffices.
	Form func() *regexp.Regexp
	// Command matches the command line above. Its first group is the device.
	Command func() *regexp.Regexp
	// Key is an attribute that identifies JSON.
	Key string
	// Element is the root element of XML.
	Element string
	// Fragments begin a text without the root element; elements in More continue it.
	Fragments, More []string
	// Many is set if a machine may have several, such as one per device.
	Many bool
	// First matches a line that begins another such text; nil if they are joined.
	First func() *regexp.Regexp
	// Also finds beginnings that Form does not match; may be nil.
	Also func(line string) bool
	// Lacks describes a text with nothing readable; may be empty.
	Lacks string
	// Hints speed up Form: a matching line contains at least one. May be nil.
	Hints []string
	// Least is the number of lines of Form that a text without a command line must have. Two are enough if it has no
	// others.
	Least int
	// Sure matches a line that suffices alone; may be nil.
	Sure func() *regexp.Regexp
	// Parse reads a kind of another package.
	Parse func(b []byte, name string) (*topology.Host, error)

	read func(r *reader)
}

// A Text is a part of a file.
type Text struct {
	Kind *Kind
	File string
	Line int // of its first line; counts from 1
	// Subject is the device on the command line, or "".
	Subject string
	Text    string
	named   bool // a command line or its elements name its kind
	within  int  // number from 1 of the text that would otherwise continue here
}

var digitHeads = []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

// Kinds are the kinds of this package.
var Kinds = []*Kind{
	{Name: "lscpu", Heads: []string{"Architecture", "CPU op-mode(s):", "CPU(s):", "On-line CPU(s) list:",
		"Thread(s) per core:", "Core(s) per socket:", "Socket(s):", "NUMA node"}, Form: lazyregexp.New(
		`^(?:CPU op-mode\(s\)|CPU\(s\)|On-line CPU\(s\) list|Thread\(s\) per core|Core\(s\) per socket|` +
			`Socket\(s\)|NUMA node\(s\)):|` + lscpuSure), Least: 2, Sure: lazyregexp.New(lscpuSure),
		Key: "lscpu", read: (*reader).lscpu, Command: Command(`lscpu(?: -J| --json)?`)},
	{Name: "lscpu -e", Heads: []string{"CPU "},
		Form: lazyregexp.New(`^CPU +(?:[A-Z1-9a-z:]+ +)*(?:NODE|SOCKET|CORE)\b`),
		read: (*reader).lscpuTable, Command: Command(`lscpu (?:-e|--extended)\S*`)},
	{Name: "lscpu -p", Heads: []string{"# CPU,"}, read: (*reader).lscpuTable,
		Command: Command(`lscpu (?:-p|--parse)\S*`)},
	{Name: "numactl -H", Heads: []string{"available: ", "node "},
		Form: lazyregexp.New(`^available: \d+ nodes?\b|^node \d+ (?:cpus|size): *\d|^node distances:$`),
		read: (*reader).numactl, Command: Command(`numactl (?:-H|--hardware)`)},
	{Name: "rocm-smi", Heads: []string{"====", "GPU[", "GPU  ", "Device  "}, Form: rocmLine, Key: "card0",
		read: (*reader).amdTools, Command: Command(`rocm-smi\b.*`)},
	{Name: "amd-smi", Heads: []string{"ACCESS TABLE:", "WEIGHT TABLE:", "HOPS TABLE:", "LINK TYPE TABLE:", "GPU: ",
		"| AMD-SMI "}, Form: lazyregexp.New(`^[A-Z ]+ TABLE:|^GPU: \d+$|^\| AMD-SMI `), Key: "gpu",
		read: (*reader).amdTools, Command: Command(`amd-smi\b.*`)},
	{Name: "ibv_devinfo", Heads: []string{"hca_id:", "transport:", "fw_ver:", "node_guid:", "port:", "state:",
		"max_mtu:",
		"active_mtu:", "sm_lid:", "port_lid:", "active_width:", "active_speed:", "phys_state:"}, Form: devinfoLine,
		Least: 3, Sure: lazyregexp.New(`^hca_id:|^state:\s+PORT_|^port:.*\bstate:\s+PORT_`),
		read: (*reader).ibvDevinfo, Many: true,
		Command: Command(`ibv_devinfo(?:.* -d ?(\S+))?`)},
	{Name: "ibstat", Heads: []string{"CA", "iWARP RNIC", "Port ", "State: ", "Physical state: ", "Rate: ", "Base lid: ",
		"SM lid: ", "Capability mask: "}, Form: ibstatLine, Least: 3,
		Sure: lazyregexp.New(`^(?:CA|iWARP RNIC):? '|^Port \d+: State:`),
		read: (*reader).ibstat, Many: true, Command: Command(`ibstat(?: ([a-zA-Z]\S*))?`)},
	{Name: "ibv_devices", Heads: []string{"device "}, Form: lazyregexp.New(`^device\s+node GUID$`), Many: true,
		read: (*reader).ibvDevices, Command: Command(`ibv_devices`)},
	{Name: "ibstatus", Heads: []string{"Infiniband device '"}, read: (*reader).ibstatus, Many: true,
		Command: Command(`ibstatus`)},
	{Name: "ibdev2netdev", Heads: []string{""}, Hints: []string{"==> "}, Form: ibdevLine, read: (*reader).ibdev2netdev,
		Command: Command(`ibdev2netdev`)},
	{Name: "rdma dev", Heads: digitHeads, Form: rdmaDevLine, Key: "node_type", read: (*reader).rdmaDev,
		Command: Command(`rdma (?:-\w+ )*dev`)},
	{Name: "rdma link", Heads: append([]string{"link "}, digitHeads...), Form: rdmaLine,
		Key: "physical_state", read: (*reader).rdmaLink, Command: Command(`rdma (?:-\w+ )*link`)},
	{Name: "show_gids", Heads: []string{""}, Hints: []string{"DEV", ":0000:"}, Form: lazyregexp.New(
		`^DEV\s+PORT\s+INDEX\s+GID|^[a-zA-Z][\w.-]*\s+\d+\s+\d+\s+(?:[0-9a-f]{4}:){7}[0-9a-f]{4}\b`),
		read: (*reader).showGIDs, Many: true, Command: Command(`show_gids`)},
	{Name: "ip -br link", Heads: []string{""}, Hints: []string{" UP ", " DOWN ", " UNKNOWN "}, Form: ipBrief,
		read: (*reader).ipBrief, Many: true, Command: Command(`ip (?:-\w+ )*-br\w* (?:-\w+ )*(?:l|a)\w*`)},
	{Name: "ip link", Heads: digitHeads, Form: ipLine, Key: "operstate",
		read: (*reader).ipLink, Many: true, Command: Command(`ip (?:-\w+ )*(?:l|link|a|addr|address)\b`)},
	{Name: "ethtool", Heads: []string{"Settings for ", "Supported ports:", "Speed:", "Duplex:", "Auto-negotiation:",
		"Link detected:"}, Form: lazyregexp.New(`^Settings for |^Supported ports: \[|^Speed: (?:\d+Mb/s|Unknown!)|` +
		`^Duplex: (?:Full|Half|Unknown)|^Auto-negotiation: o|^Link detected: (?:yes|no)\b`), Least: 3,
		Sure: lazyregexp.New(`^Settings for |^Speed: \d+Mb/s$`), read: (*reader).ethtool, Many: true,
		Command: Command(`ethtool ([^-\s]\S*)`)},
	{Name: "ethtool -i", Heads: []string{"driver: ", "firmware-version: ", "expansion-rom-version:", "bus-info: ",
		"supports-"}, Form: lazyregexp.New(`^driver: |^firmware-version: |^expansion-rom-version:|` +
		`^bus-info: [0-9a-f]{4}:|^supports-[a-z-]+: (?:yes|no)$`), Least: 3,
		Sure:  lazyregexp.New(`^bus-info: [0-9a-f]{4}:`),
		First: lazyregexp.New(`^driver: `), read: (*reader).ethtoolDriver, Many: true,
		Command: Command(`ethtool (?:-i|--driver) (\S+)`)},
	{Name: "mlnx_qos", Heads: []string{"DCBX mode:", "Priority trust state:"}, read: (*reader).mlnxQoS, Many: true,
		Command: Command(`mlnx_qos (?:-i |--interface[= ])(\S+)`)},
	{Name: "mlxconfig q", Heads: []string{"Device #", "Device type:", "PCI device:", "SRIOV_EN", "NUM_OF_VFS",
		"LINK_TYPE_P", "*"},
		Form: lazyregexp.New(`^Device (?:#\d+|type):|^PCI device: +[0-9a-f:]{5,}\.[0-7]$|` +
			`^\*? *(?:SRIOV_EN|NUM_OF_VFS|LINK_TYPE_P\d)\s+\w+`),
		read: (*reader).mlxconfig, Many: true,
		Command: Command(`(?:mlx|mst)config (?:-d|--dev) (\S+)`)},
	{Name: "mst status", Heads: []string{"DEVICE_TYPE ", "ConnectX", "BlueField", "/dev/mst/mt", "domain:bus:dev.fn="},
		Form: mstLine, read: (*reader).mstStatus, Command: Command(`mst status\b.*`)},
	{Name: "qm config", Heads: qmHeads, Form: qmLine, Least: 3, Sure: qmSure, read: (*reader).qmConfig, Many: true,
		Command: Command(`(?:qm config|cat /etc/pve/qemu-server/)\s*(\d+)(?:\.conf)?`)},
	{Name: "dmesg", Heads: []string{""}, Hints: []string{limitHint, "Adding "},
		Form: lazyregexp.New(limitForm + "|" + groupAddedForm), Also: beginsLog, Lacks: OddLog,
		read:    (*reader).dmesg,
		Command: Command(`(?:dmesg|journalctl)\b.*`)},
	{Name: "IOMMU groups", Heads: []string{""}, Hints: []string{"/devices", "iommu_groups", "iommugroup"},
		Key: "iommugroup", Form: groupListing, read: (*reader).iommuGroups,
		Command: Command(`(?:(?:find|ls|tree) .*/sys/kernel/iommu_groups\S*.*|pvesh get \S*/hardware/pci.*)`)},
	{Name: "nvidia-smi -L or nvlink --status", Heads: []string{"GPU "},
		Form: lazyregexp.New(`^GPU \d+: .+ \(UUID: GPU-`), read: (*reader).nvlinkStatus,
		Command: Command(`nvidia-smi (?:nvlink (?:-s|--status)|-L|--list-gpus)`)},
	{Name: "nvidia-smi -q -x", Element: "nvidia_smi_log", read: (*reader).nvidiaXML},
	{Name: "nvidia-smi -q", Heads: []string{"GPU 0", "===="},
		Form: lazyregexp.New(`^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:|^=+NVSMI LOG=+`),
		read: (*reader).nvidiaQuery, Command: Command(`nvidia-smi (?:-i \d+ )?(?:-q|--query)\b`)},
	{Name: "nvidia-smi", Heads: []string{""}, Hints: []string{"| NVIDIA-SMI ", "pci.bus_id"},
		Form: lazyregexp.New(smiForm), read: (*reader).nvidiaTable,
		Command: Command(`nvidia-smi(?: *$| .*--query-gpu\S+.*)`)},
	{Name: "ethtool -S", Heads: []string{"NIC statistics", "rx_", "tx_", "rx", "tx"}, Many: true,
		Form: lazyregexp.New(`^(?:NIC statistics(?: for \S+)?:$|[rt]x(?:\d+_|_)\w+: \d+$)`), Least: 3,
		read: (*reader).ethtoolCounters, Command: Command(`ethtool (?:-S|--statistics) (\S+)`)},
	{Name: "rdma statistic", Heads: []string{"link "}, Form: lazyregexp.New(`^link \S+/\d+:? (?:\w+ \d+ ?)+$`),
		Many: true,
		read: (*reader).rdmaStatistic, Command: Command(`rdma (?:-\w+ )*stat(?:istic)?`)},
	{Name: "cma_roce_tos", read: (*reader).cmaTOS, Many: true,
		Command: Command(`(?:cma_roce_tos .*-d ?|cat /sys/class/infiniband/)([\w-]+)(?:/tc/1/traffic_class)?`)},
	{Name: "virsh dominfo", Heads: []string{"Id:", "OS Type:"},
		Form: lazyregexp.New(`^Id: +(?:\d+|-)$|^OS Type: +\w+$`), Least: 2, Sure: lazyregexp.New(`^OS Type: +hvm$`),
		First: lazyregexp.New(`^Id:`), Many: true, read: (*reader).domInfo, Command: virsh(`dominfo`)},
	{Name: "virsh vcpuinfo", Heads: []string{"VCPU:", "CPU Affinity:"}, Many: true,
		Form: lazyregexp.New(`^VCPU: +\d+$|^CPU Affinity: +(?:[y-]+|[\d,-]+ \(out of \d+\))$`),
		read: (*reader).vcpuInfo, Command: virsh(`vcpuinfo`)},
	{Name: "virsh vcpupin", Heads: []string{"VCPU"}, Form: lazyregexp.New(`^VCPU:? +CPU Affinity$`), Many: true,
		read: (*reader).vcpuPin, Command: virsh(`vcpupin`)},
	{Name: "virsh emulatorpin", Heads: []string{"emulator:"}, Form: lazyregexp.New(`^emulator: CPU Affinity$`),
		Many: true,
		read: (*reader).vcpuPin, Command: virsh(`emulatorpin`)},
	{Name: "virsh numatune", Heads: []string{"numa_mode"}, Form: lazyregexp.New(`^numa_mode\s*: \w+`), Many: true,
		read: (*reader).numaTune, Command: virsh(`numatune`)},
}

// Command matches form, with or without a path and sudo.
func Command(form string) func() *regexp.Regexp {
	return lazyregexp.New(`^(?:sudo (?:-\w+ )*)?(?:LC_ALL=\w+ |LANG=\w+ )*(?:/\S*/)?` + form + `(?:\s|$)`)
}

// virsh captures the domain or device.
func virsh(verb string) func() *regexp.Regexp {
	return Command(`virsh .*` + verb + `(?: --[a-z]+)*[ =](\S+)`)
}

// Kernel logs are the largest texts that people copy.
const maxText = 16 << 20

// Read reads a partial Host.
func (t Text) Read() (*topology.Host, error) {
	h := &topology.Host{Provenance: topology.Provenance{Kind: topology.SourceTexts, Name: t.File, Tool: t.Kind.Name}}
	r := &reader{Text: t, h: h, notes: where.Notes{Host: h, File: cmp.Or(t.File, t.Kind.Name)}}
	if t.Kind.Parse != nil {
		above := strings.Repeat("\n", max(0, t.Line-1))
		if above != "" && t.Subject != "" {
			above = above[1:] + t.Subject + "\n" // the device on the command line
		}
		part, err := t.Kind.Parse([]byte(above+t.Text), t.File)
		if part != nil {
			part.Provenance.Tool = cmp.Or(part.Provenance.Tool, t.Kind.Name)
		}
		return part, err
	}
	if len(t.Text) > maxText {
		return nil, &where.Error{File: t.File, Line: t.Line, Err: fmt.Errorf("%s: %d bytes; at most %d are taken",
			t.Kind.Name, len(t.Text), maxText)}
	}
	t.Kind.read(r)
	if h.Empty() && t.Kind.Lacks != "" {
		return nil, &where.Error{File: t.File, Err: fmt.Errorf("it is %s", t.Kind.Lacks)}
	}
	if h.Empty() {
		return nil, &where.Error{File: t.File, Line: t.Line, Err: fmt.Errorf("nothing of %s could be read; the text "+
			"begins with %q", t.Kind.Name, where.Clip(strings.TrimSpace(t.Text)))}
	}
	return h, nil
}

type reader struct {
	Text
	h     *topology.Host
	notes where.Notes

	functions map[topology.PCIAddr]int // indices into h.PCI, see function
}

// note takes a line counted from 0 in the text.
func (r *reader) note(line int, format string, args ...any) {
	r.notes.Note(r.Line+line, format, args...)
}

type pair struct {
	line       int
	indent     int
	key, value string
}

func (r *reader) pairs() iter.Seq[pair] {
	return func(yield func(pair) bool) {
		n := -1
		for line := range strings.SplitSeq(r.Text.Text, "\n") {
			n++
			text := strings.TrimLeft(line, " \t")
			key, value, ok := strings.Cut(text, ":")
			if ok && !yield(pair{n, len(line) - len(text), strings.TrimSpace(key), strings.TrimSpace(value)}) {
				return
			}
		}
	}
}

// lines yields trimmed lines with their number from 0.
func (r *reader) lines() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.SplitSeq(r.Text.Text, "\n") {
			if !yield(n, strings.TrimSpace(line)) {
				return
			}
			n++
		}
	}
}

// matches yields submatches with the line number from 0.
func (r *reader) matches(form func() *regexp.Regexp) iter.Seq2[int, []string] {
	return func(yield func(int, []string) bool) {
		for n, line := range r.lines() {
			if m := form().FindStringSubmatch(line); m != nil && !yield(n, m) {
				return
			}
		}
	}
}

func count(s string) *int {
	// 20 bits suffice.
	if n, err := strconv.ParseUint(s, 0, 20); err == nil {
		return new(int(n))
	}
	return nil
}

// cpus notes an invalid list and returns nil.
func (r *reader) cpus(line int, s string) *topology.CPUSet {
	set, err := topology.ParseCPUSet(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		r.note(line, "%v", err)
		return nil
	}
	return &set
}

var binary = map[string]float64{"": 1, "B": 1, "BYTES": 1, "K": 1 << 10, "KB": 1 << 10, "KIB": 1 << 10, "M": 1 << 20,
	"MB": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GB": 1 << 30, "GIB": 1 << 30, "T": 1 << 40, "TIB": 1 << 40,
	"TB": 1 << 40}

// size parses "193129 MB", "512 MiB (16 instances)" or "40960K" into bytes, or returns nil.
func size(s string) *uint64 {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789."))
	unit, _, _ := strings.Cut(strings.TrimSpace(s[digits:]), " ")
	v, err := strconv.ParseFloat(s[:digits], 64)
	factor, ok := binary[strings.ToUpper(unit)]
	if err != nil || !ok || v < 0 || v*factor > math.MaxInt64 {
		return nil
	}
	return new(uint64(v * factor))
}

func (r *reader) node(id int) *topology.NUMANode {
	i, found := slices.BinarySearchFunc(r.h.NUMANodes, id, func(n topology.NUMANode, id int) int {
		return cmp.Compare(n.ID, id)
	})
	if !found {
		r.h.NUMANodes = slices.Insert(r.h.NUMANodes, i, topology.NUMANode{ID: id})
	}
	return &r.h.NUMANodes[i]
}

// nic takes a name of one of the NIC's RDMA or network devices.
func (r *reader) nic(name string) *topology.NIC {
	for i := range r.h.NICs {
		if r.h.NICs[i].Name == name {
			return &r.h.NICs[i]
		}
	}
	r.h.NICs = append(r.h.NICs, topology.NIC{Name: name})
	return &r.h.NICs[len(r.h.NICs)-1]
}

func (r *reader) nicAt(a topology.PCIAddr) *topology.NIC {
	for i := range r.h.NICs {
		if n := &r.h.NICs[i]; n.Address != nil && *n.Address == a {
			return n
		}
	}
	r.h.NICs = append(r.h.NICs, topology.NIC{Address: &a})
	return &r.h.NICs[len(r.h.NICs)-1]
}

// rdma adds an RDMA device and its port if necessary; without port, the port is a dummy.
func rdma(n *topology.NIC, device string, port *int) (*topology.RDMADevice, *topology.RDMAPort) {
	at := slices.IndexFunc(n.Devices, func(d topology.RDMADevice) bool { return d.Name == device })
	if at < 0 {
		at = len(n.Devices)
		n.Devices = append(n.Devices, topology.RDMADevice{Name: device})
	}
	d := &n.Devices[at]
	if port == nil {
		return d, &topology.RDMAPort{}
	}
	at = slices.IndexFunc(d.Ports, func(p topology.RDMAPort) bool { return p.Number == *port })
	if at < 0 {
		at = len(d.Ports)
		d.Ports = append(d.Ports, topology.RDMAPort{Number: *port})
	}
	return d, &d.Ports[at]
}

func netdev(n *topology.NIC, name string) *topology.Netdev {
	for i := range n.Ports {
		if n.Ports[i].Name == name {
			return &n.Ports[i]
		}
	}
	n.Ports = append(n.Ports, topology.Netdev{Name: name})
	return &n.Ports[len(n.Ports)-1]
}

func address(s string) *topology.PCIAddr {
	a, err := topology.ParsePCIAddr(s)
	if err != nil {
		return nil
	}
	return &a
}

func (r *reader) json(to any) bool {
	err := json.Unmarshal([]byte(r.Text.Text), to)
	if err != nil {
		r.note(0, "%s: %v", r.Kind.Name, err)
	}
	return err == nil
}
