package texts

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/topology"
)

// qmHeads are keys of a configuration that every machine of Proxmox VE has at least one of.
var qmHeads = []string{"agent:", "args:", "affinity:", "balloon:", "bios:", "boot:", "cores:", "cpu:", "efidisk0:",
	"hostpci", "hugepages:", "machine:", "memory:", "meta:", "name:", "net0:", "numa", "onboot:", "ostype:", "scsihw:",
	"smbios1:", "sockets:", "vcpus:", "vga:", "vmgenid:"}

// qmLine matches a line of it that no other text has.
var qmLine = lazyregexp.New(`^(?:boot: (?:order=|[acdn]+\b|c)|bios: (?:ovmf|seabios)|cores: \d|ostype: \w+$|scsihw: |` +
	`agent: [01]|hostpci\d+: |machine: (?:q35|pc)|` +
	`meta: creation-qemu|smbios1: uuid|sockets: \d|vmgenid: |affinity: \d|` +
	`balloon: \d|` +
	`hugepages: (?:1024|2|any)$|numa\d*: |cpu: (?:host|x86|kvm|[A-Z])|args: -|memory: \d+$|efidisk0: )`)

// qmSure matches a line that no other program writes.
var qmSure = lazyregexp.New(`^(?:hostpci\d+: |vmgenid: |smbios1: uuid|meta: creation-qemu|scsihw: virtio)`)

// qmConfig reads a machine of Proxmox VE as a tenant.
//
// Source: qm.conf(5).
func (r *reader) qmConfig() {
	t := topology.Tenant{Name: r.Subject}
	// Below "[PENDING]" and below the name of each snapshot stand settings that the machine does not have now.
	r.Text.Text, _, _ = strings.Cut(r.Text.Text, "\n[")
	if strings.Contains(r.Text.Text, "\nrootfs: ") {
		return // of pct config, which is a container
	}
	// Proxmox VE leaves out keys that have their default: one core on one socket.
	cores, sockets, mode := 1, 1, ""
	var nodes *topology.CPUSet
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
		case p.key == "memory":
			if mb, err := strconv.ParseUint(p.value, 10, 32); err == nil {
				t.MemoryBytes = new(mb << 20)
			}
		case p.key == "affinity":
			t.Floating = r.cpus(p.line, p.value)
			t.EmulatorCPUs = t.Floating // taskset holds the whole process
		case p.key == "hugepages":
			if mb := count(p.value); mb != nil {
				t.Hugepages = new(uint64(*mb) << 20)
			} else {
				// "any": of a size that the host chooses.
				t.Hugepages = new(uint64(0))
			}
		case key == "numa" && p.key != "numa":
			for option := range strings.SplitSeq(p.value, ",") {
				name, value, _ := strings.Cut(option, "=")
				switch name {
				// "numa0: cpus=0-3,hostnodes=0;2-3,memory=4096,policy=bind": commas separate the keys, so ranges have
				// semicolons between them.
				case "hostnodes":
					if set := r.cpus(p.line, strings.ReplaceAll(value, ";", ",")); set != nil {
						if nodes != nil {
							*set = set.Union(*nodes)
						}
						nodes = set
					}
				case "policy":
					mode = cmp.Or(map[string]string{"bind": "strict"}[value], value)
				}
			}
		case key == "hostpci":
			r.hostpci(&t, p)
		default:
			known--
		}
	}
	if known == 0 {
		return
	}
	t.Name = cmp.Or(t.Name, "a machine of Proxmox VE")
	t.VCPUs = min(cores*sockets, topology.MaxCPUs)
	t.MemoryNodes, t.MemoryMode = nodes, mode
	r.h.Tenants = []topology.Tenant{t}
}

// hostpci reads "0000:01:00,pcie=1", which is all functions of a device, "host=01:00.0;01:00.1" or "mapping=NAME".
func (r *reader) hostpci(t *topology.Tenant, p pair) {
	first, _, _ := strings.Cut(p.value, ",")
	for name := range strings.SplitSeq(strings.TrimPrefix(first, "host="), ";") {
		a := address(name)
		if a == nil {
			a = address(name + ".0") // all functions of the device; the first stands for them
		}
		if a == nil {
			r.note(p.line, "%s: %q is not a PCI address; which device a mapping stands for is in another file", p.key,
				name)
			continue
		}
		t.Devices = append(t.Devices, topology.TenantDevice{PCI: *a, Managed: true})
	}
}
