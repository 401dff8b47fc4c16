package export

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// physicalNetwork is the name of the fabric between the hosts' NICs and Neutron.
const physicalNetwork = "fabric"

// Nova returns what a compute host needs in nova.conf for the plan, and the commands that make flavors, ports and
// servers.
//
// Nova chooses the CPUs of a server itself, from those of cpu_dedicated_set, a NUMA node of the host for each of the
// guest's.
func Nova(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export nova: %w", err)
	}
	n := nova{in: in, aliases: map[string]string{}}
	for i := range in.Plan.Nodes {
		for _, c := range whole(&in.Plan.Nodes[i]) {
			if err := n.device(&c); err != nil {
				return nil, fmt.Errorf("export nova: %w", err)
			}
		}
	}
	seeds, err := render.Seeds(in, false)
	if err != nil {
		return nil, err
	}
	files := []render.Artifact{text("nova.conf", n.conf()), {Path: "openstack.sh", Mode: 0o755,
		Data: []byte(n.script())}}
	for i, s := range seeds {
		files = append(files, text("user-data/"+in.Plan.Nodes[i].Name, s.UserData))
	}
	return files, nil
}

type nova struct {
	in      render.Input
	aliases map[string]string // by ID of a device
	lines   []string          // of alias, in nova.conf
	specs   []string          // of device_spec
}

// device enters a device that is given as a whole.
func (n *nova) device(c *plan.NodeDevice) error {
	id, err := idsOf(n.in.Host, c.ID)
	if err != nil {
		return err
	}
	kind := "type-PCI"
	a, _ := topology.ParsePCIAddr(c.ID)
	if d := n.in.Host.Device(a); d.SRIOV != nil {
		kind = "type-PF"
	}
	name := c.Kind + "-" + id.vendor + "-" + id.device
	n.aliases[c.ID] = name
	line := fmt.Sprintf(`alias = {"vendor_id": %q, "product_id": %q, "device_type": %q, "name": %q}`, id.vendor,
		id.device, kind, name)
	if !slices.Contains(n.lines, line) {
		n.lines = append(n.lines, line)
	}
	n.specs = append(n.specs, fmt.Sprintf(`device_spec = {"address": %q}`, c.ID))
	return nil
}

// conf returns the settings of the compute host. oslo.config reads no comment behind a value.
func (n *nova) conf() string {
	var b strings.Builder
	b.WriteString(head(n.in, "Additions to nova.conf of the compute host. [pci] alias belongs into that of nova-api "+
		"too. The devices have to be free of drivers of the host; hugepages come from the kernel arguments of the "+
		"plan (rackless plan --out). Not carried: which CPUs of cpu_dedicated_set a server gets, which Nova decides."))
	held := ""
	for _, p := range n.in.Plan.Hugepages {
		if p.Held > 0 {
			held += fmt.Sprintf("reserved_huge_pages = node:%d,size:%d,count:%d\n", p.NUMANode, p.PageBytes>>10, p.Held)
		}
	}
	if m := n.in.Lab.Reserve.Memory; m != nil {
		held += fmt.Sprintf("reserved_host_memory_mb = %d\n", uint64(*m)/mib)
	}
	if held != "" {
		fmt.Fprintf(&b, "[DEFAULT]\n%s%s\n", comment("What others on the host hold already."), held)
	}
	var cpus topology.CPUSet
	for i := range n.in.Plan.Nodes {
		cpus = cpus.Union(n.in.Plan.Nodes[i].CPUs())
	}
	fmt.Fprintf(&b, "[compute]\n%scpu_dedicated_set = %s\n%scpu_shared_set = %s\n\n",
		comment("CPUs of the lab's nodes. Of a core with one virtual CPU the other thread is not among them, and "+
			"stays idle: hw:cpu_thread_policy=isolate would take no host with hyperthreads."), cpus,
		comment("Cores that the plan leaves to the host: the emulator threads of servers run there."),
		n.in.Plan.Housekeeping.CPUs)
	b.WriteString("[libvirt]\nvirt_type = kvm\ncpu_mode = host-passthrough\n\n")
	if len(n.specs)+len(n.in.Plan.VFs) > 0 {
		b.WriteString("[pci]\n")
		for _, s := range append(slices.Clone(n.specs), n.lines...) {
			b.WriteString(s + "\n")
		}
		for _, pf := range n.in.Plan.VFs {
			if pf.Lab > 0 {
				fmt.Fprintf(&b, "%sdevice_spec = {\"address\": %q, \"physical_network\": %q, \"trusted\": \"true\"}\n",
					comment(fmt.Sprintf("The virtual functions of this NIC, of which the host makes %d.", pf.Count)),
					pf.PF, physicalNetwork)
			}
		}
	}
	return b.String()
}

// flavor returns the extra specs of a lab node's flavor, with the name of each.
func (n *nova) flavor(node *plan.Node) (specs []string, notes []string) {
	add := func(format string, args ...any) { specs = append(specs, fmt.Sprintf(format, args...)) }
	sockets, cores, threads, _ := node.Topology()
	add("hw:cpu_policy=dedicated")
	if node.Threads > 1 {
		add("hw:cpu_thread_policy=require")
	}
	add("hw:emulator_threads_policy=share")
	add("hw:cpu_sockets=%d", sockets)
	add("hw:cpu_cores=%d", cores)
	add("hw:cpu_threads=%d", threads)
	homes, note := withCPUs(shares(n.in.Host, node))
	if note != "" {
		notes = append(notes, note)
	}
	if len(homes) > 1 && !node.GuestNUMA {
		notes = append(notes, "the plan hides the NUMA nodes from the guest; Nova cannot, where it spans several")
	}
	add("hw:numa_nodes=%d", len(homes))
	for i, s := range homes {
		if len(homes) > 1 {
			add("hw:numa_cpus.%d=%s", i, topology.CPUs(s.vcpus...))
			add("hw:numa_mem.%d=%d", i, s.bytes/mib)
		}
	}
	switch size := pageBytes(node); size {
	case 0:
		add("hw:mem_page_size=small")
	default:
		add("hw:mem_page_size=%d", size>>10) // KiB
	}
	counts := map[string]int{}
	var order []string
	for _, c := range whole(node) {
		name := n.aliases[c.ID]
		if counts[name] == 0 {
			order = append(order, name)
		}
		counts[name]++
	}
	if len(node.Cards) > 0 {
		policy := words.Either(near(n.in.Host, node), "required", "preferred")
		add("hw:pci_numa_affinity_policy=%s", policy)
	}
	for i, name := range order {
		order[i] = fmt.Sprintf("%s:%d", name, counts[name])
	}
	if len(order) > 0 {
		add("pci_passthrough:alias=%s", strings.Join(order, ","))
	}
	return specs, notes
}

// imageProperties are those of the image that servers boot.
func imageProperties() []string {
	return []string{"hw_machine_type=q35", "hw_firmware_type=uefi", "os_secure_boot=disabled", "hw_disk_bus=virtio",
		"hw_vif_model=virtio", "hw_qemu_guest_agent=yes"}
}

// script returns the commands that make the lab.
func (n *nova) script() string {
	var b strings.Builder
	lab := n.in.Plan.Lab
	b.WriteString("#!/bin/sh\n" + head(n.in, "Makes flavors, ports and servers in an OpenStack cloud. IMAGE is an "+
		"image with cloud-init, NETWORK a network for management, and the fabric a flat network of Neutron on the "+
		"physical network "+physicalNetwork+"."))
	b.WriteString("set -eu\n: \"${IMAGE:?name an image}\" \"${NETWORK:?name a network for management}\"\n\n")
	b.WriteString("openstack image set \"$IMAGE\"")
	for _, p := range imageProperties() {
		b.WriteString(" \\\n    --property " + p)
	}
	b.WriteString("\n")
	fabrics := n.fabrics()
	for i, f := range fabrics {
		fmt.Fprintf(&b, "\nopenstack network create %s-%d --mtu %d \\\n    --provider-network-type flat "+
			"--provider-physical-network %s\n", lab, i, n.in.Lab.Fabric.MTU, physicalNetwork)
		fmt.Fprintf(&b, "openstack subnet create %s-%d --network %s-%d --subnet-range %s --gateway none --no-dhcp\n",
			lab, i, lab, i, f)
	}
	flavors := map[string]string{} // name by what it is
	for i := range n.in.Plan.Nodes {
		node := &n.in.Plan.Nodes[i]
		specs, notes := n.flavor(node)
		b.WriteString("\n")
		for _, note := range notes {
			b.WriteString(comment(note))
		}
		size := fmt.Sprintf("--vcpus %d --ram %d --disk 20", len(node.VCPUs), node.MemoryBytes/mib)
		key := size + strings.Join(specs, " ")
		name, made := flavors[key]
		if !made {
			name = lab + "-" + node.Name
			flavors[key] = name
			fmt.Fprintf(&b, "openstack flavor create %s %s", name, size)
			for _, s := range specs {
				b.WriteString(" \\\n    --property " + s)
			}
			b.WriteString("\n")
		}
		server := fmt.Sprintf("openstack server create %s-%s --flavor %s --image \"$IMAGE\" --network \"$NETWORK\"",
			lab, node.Name, name)
		for _, p := range node.Ports() {
			if p.Card == nil || p.Card.Kind != plan.KindVF {
				continue
			}
			port := fmt.Sprintf("%s-%s-%s", lab, node.Name, p.Name)
			fmt.Fprintf(&b, "openstack port create %s --network %s-%d --vnic-type direct --disable-port-security "+
				"\\\n    --mac-address %s --fixed-ip ip-address=%s\n", port, lab, slices.Index(fabrics,
				p.Addr.Masked().String()), p.MAC, p.Addr.Addr())
			server += " --port " + port
		}
		fmt.Fprintf(&b, "%s \\\n    --user-data user-data/%s --config-drive true\n", server, node.Name)
	}
	return b.String()
}

// fabrics returns the subnets of ports that are virtual functions, in the order in which nodes have them.
func (n *nova) fabrics() []string {
	var all []string
	for i := range n.in.Plan.Nodes {
		for _, p := range n.in.Plan.Nodes[i].Ports() {
			if s := p.Addr.Masked().String(); p.Card != nil && p.Card.Kind == plan.KindVF && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
