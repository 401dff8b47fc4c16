package texts

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

// qmHeads are configuration keys; every VM has one.
var qmHeads = []string{"agent:", "args:", "affinity:", "balloon:", "bios:", "boot:", "cores:", "cpu:", "efidisk0:",
	"hostpci", "hugepages:", "machine:", "memory:", "meta:", "name:", "net0:", "numa", "onboot:", "ostype:", "scsihw:",
	"smbios1:", "sockets:", "vcpus:", "vga:", "vmgenid:"}

var qmLine = lazyregexp.New(`^(?:boot: (?:order=|[acdn]+\b|c)|bios: (?:ovmf|seabios)|cores: \d|ostype: \w+$|scsihw: |` +
	`agent: [01]|hostpci\d+: |machine: (?:q35|pc)|` +
	`meta: creation-qemu|smbios1: uuid|sockets: \d|vmgenid: |affinity: \d|` +
	`balloon: \d|` +
	`hugepages: (?:1024|2|any)$|numa\d*: |cpu: (?:host|x86|kvm|[A-Z])|args: -|memory: \d+$|efidisk0: )`)

var qmSure = lazyregexp.New(`^(?:hostpci\d+: |vmgenid: |smbios1: uuid|meta: creation-qemu|scsihw: virtio)`)

// Nameless is the name for a VM without one.
const Nameless = "a machine of Proxmox VE"

// qmConfig reads a VM of Proxmox VE as a tenant; see qm.conf(5).
func (r *reader) qmConfig() {
	t := topology.Tenant{Name: r.Subject}
	// Settings below "[PENDING]" or a snapshot's name do not apply now.
	r.Text.Text, _, _ = strings.Cut(r.Text.Text, "\n[")
	if strings.Contains(r.Text.Text, "\nrootfs: ") {
		return // a container, from pct config
	}
	// Defaults are omitted.
	cores, sockets, vcpus, numa := 1, 1, 0, ""
	cells := map[int]topology.TenantCell{}
	known := 0
	for p := range r.pairs() {
		if p.indent > 0 {
			continue
		}
		known++
		switch key := strings.TrimRight(p.key, "0123456789"); {
		case p.key == "name":
			t.Name = p.value
		case p.key == "cores" || p.key == "sockets":
			n := count(p.value)
			if n == nil || *n < 1 || *n > topology.MaxCPUs {
				r.note(p.line, "%s: %q is not a number of CPUs", p.key, p.value)
			} else if p.key == "cores" {
				cores = *n
			} else {
				sockets = *n
			}
		case p.key == "vcpus": // the number at start
			vcpus = 0
			if n := count(p.value); n != nil {
				vcpus = *n
			}
		case p.key == "memory":
			// A list of properties since Proxmox VE 8.1.
			first, _, _ := strings.Cut(p.value, ",")
			if mb, err := strconv.ParseUint(strings.TrimPrefix(first, "current="), 10, 32); err == nil {
				t.MemoryBytes = new(mb << 20)
			}
		case p.key == "numa":
			numa = p.value
		case p.key == "affinity":
			t.Floating = r.cpus(p.line, p.value)
			t.EmulatorCPUs = t.Floating // taskset limits the whole process
		case p.key == "hugepages":
			if mb := count(p.value); mb != nil {
				t.Hugepages = new(uint64(*mb) << 20)
			} else {
				// "any": the host chooses the size.
				t.Hugepages = new(uint64(0))
			}
			t.PagesAtStart = true
		case key == "numa":
			if n := count(strings.TrimPrefix(p.key, "numa")); n != nil {
				cells[*n] = r.qmCell(p)
			}
		case key == "hostpci" && strings.Contains(p.value, "mdev="): // the host keeps the function
		case key == "hostpci":
			r.hostpci(&t, p)
		case p.key == "args":
			t.Devices = append(t.Devices, HandedOver(p.value)...)
		default:
			known--
		}
	}
	if known == 0 {
		return
	}
	t.VCPUs = min(cores*sockets, topology.MaxCPUs)
	if 0 < vcpus && vcpus < t.VCPUs {
		t.Absent = new(topology.CPURange(vcpus, t.VCPUs-1))
	}
	r.qmNodes(&t, numa, sockets, cells)
	t.Name = cmp.Or(t.Name, Nameless)
	for _, n := range lists.Keys(cells) {
		c := cells[n]
		c.Hugepages = t.Hugepages
		t.Cells = append(t.Cells, c)
		t.MemoryMode = cmp.Or(t.MemoryMode, c.MemoryMode)
		switch {
		case c.MemoryNodes == nil:
		case t.MemoryNodes == nil:
			t.MemoryNodes = c.MemoryNodes
		default:
			t.MemoryNodes = new(t.MemoryNodes.Union(*c.MemoryNodes))
		}
	}
	r.h.Tenants = []topology.Tenant{t}
}

// qmNodes knows a complete configuration by its name; a setting that a partial text lacks is unknown.
func (r *reader) qmNodes(t *topology.Tenant, numa string, sockets int, cells map[int]topology.TenantCell) {
	whole := t.Name != r.Subject
	switch {
	case numa == "1":
		t.GuestNodes = new(cmp.Or(len(cells), sockets)) // one per socket by default
	case whole || numa != "":
		if t.GuestNodes = new(0); len(cells) > 0 {
			r.note(0, "numaN has no effect: it takes \"numa: 1\"")
			clear(cells)
		}
	}
	if whole && !strings.Contains(r.Text.Text, "\nargs: ") {
		t.GuestSwitches, t.GuestExpanders = new(0), new(0) // Proxmox VE has none
	}
}

// qmCell parses "cpus=0-3,hostnodes=0;2-3,memory=4096,policy=bind".
func (r *reader) qmCell(p pair) (c topology.TenantCell) {
	for option := range strings.SplitSeq(p.value, ",") {
		name, value, _ := strings.Cut(option, "=")
		list := strings.ReplaceAll(value, ";", ",")
		switch name {
		case "cpus":
			c.VCPUs = topology.CPUSet{}
			if cpus := r.cpus(p.line, list); cpus != nil {
				c.VCPUs = *cpus
			}
		case "hostnodes":
			c.MemoryNodes = r.cpus(p.line, list)
		case "memory":
			if mb, err := strconv.ParseFloat(value, 64); err == nil && mb >= 0 && mb < 1<<32 {
				c.MemoryBytes = new(uint64(mb * (1 << 20)))
			}
		case "policy":
			c.MemoryMode = cmp.Or(map[string]string{"bind": "strict"}[value], value)
		}
	}
	return c
}

// vfioHost matches "-device vfio-pci,host=01:00.0", JSON, or sysfsdev=.
var vfioHost = lazyregexp.New(`\bvfio-pci[^\s<>]*?(?:\bhost"?[=:]"?|/devices/)` +
	`((?:[0-9a-f]+:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])`)

// HandedOver returns the host functions in QEMU's arguments.
func HandedOver(arguments string) []topology.TenantDevice {
	var list []topology.TenantDevice
	for _, m := range vfioHost().FindAllStringSubmatch(arguments, -1) {
		if a := address(m[1]); a != nil {
			list = append(list, topology.TenantDevice{PCI: *a})
		}
	}
	return list
}

// hostpci parses "0000:01:00,pcie=1" (all functions of a device), "host=01:00.0;01:00.1" or "mapping=NAME".
func (r *reader) hostpci(t *topology.Tenant, p pair) {
	first, _, _ := strings.Cut(p.value, ",")
	for name := range strings.SplitSeq(strings.TrimPrefix(first, "host="), ";") {
		a := address(name)
		whole := a == nil
		if whole {
			a = address(name + ".0") // all functions; the first stands for them
		}
		if a == nil {
			r.note(p.line, "%s: %q is not a PCI address; which device a mapping stands for is in another file", p.key,
				name)
			continue
		}
		t.Devices = append(t.Devices, topology.TenantDevice{PCI: *a, Managed: true, Whole: whole})
	}
}
