package export

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

// physicalNetwork is Neutron's name of the fabric.
const physicalNetwork = "fabric"

// Nova returns the settings for nova.conf, and commands. Nova chooses CPUs itself from cpu_dedicated_set, using one
// NUMA node of the host for each of the guest's.
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
	var files []render.Artifact
	page := n.page()
	for _, f := range []render.Artifact{{Path: "nova.conf", Mode: 0o644}, {Path: "openstack.sh", Mode: 0o755}} {
		data, err := filled(novaTemplates, f.Path, page)
		if err != nil {
			return nil, fmt.Errorf("export nova: %w", err)
		}
		f.Data = []byte(data)
		files = append(files, f)
	}
	for i, s := range seeds {
		files = append(files, text("user-data/"+in.Plan.Nodes[i].Name, s.UserData))
	}
	return files, nil
}

type nova struct {
	in      render.Input
	aliases map[string]string // by device ID
	lines   []string          // alias lines of nova.conf
	specs   []string          // lines of device_spec
}

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
	n.lines = lists.Add(n.lines, line)
	n.specs = append(n.specs, fmt.Sprintf(`device_spec = {"address": %q}`, c.ID))
	return nil
}

//go:embed nova/*.tmpl
var novaFiles embed.FS

// oslo.config does not support a comment after a value.
var novaTemplates = template.Must(template.New("nova").Funcs(functions).Funcs(template.FuncMap{
	"network": func() string { return physicalNetwork }}).ParseFS(novaFiles, "nova/*.tmpl"))

type novaPage struct {
	render.Input
	CPUs          topology.CPUSet // of all nodes
	Held, Devices []string        // lines of nova.conf
	Fabrics       []string        // subnets of virtual functions, in the order of ports
	Servers       []novaServer
}

// A novaServer shares its flavor with equal nodes. Specs are set for the first.
type novaServer struct {
	Node, Flavor, Size string
	Notes, Specs       []string
	Ports              []novaPort
}

type novaPort struct {
	lab.NIC
	Name   string
	Fabric int // index in Fabrics
}

func (n *nova) page() novaPage {
	p := novaPage{Input: n.in, Devices: append(slices.Clone(n.specs), n.lines...)}
	for _, h := range n.in.Plan.Hugepages {
		if h.Held > 0 {
			p.Held = append(p.Held, fmt.Sprintf("reserved_huge_pages = node:%d,size:%d,count:%d", h.NUMANode,
				h.PageBytes>>10, h.Held))
		}
	}
	if m := n.in.Lab.Reserve.Memory; m != nil {
		p.Held = append(p.Held, fmt.Sprintf("reserved_host_memory_mb = %d", uint64(*m)/mib))
	}
	flavors := map[string]string{} // name by specs
	for i := range n.in.Plan.Nodes {
		node := &n.in.Plan.Nodes[i]
		p.CPUs = p.CPUs.Union(node.CPUs())
		s := novaServer{Node: node.Name, Size: fmt.Sprintf("--vcpus %d --ram %d --disk 20", len(node.VCPUs),
			node.MemoryBytes/mib)}
		s.Specs, s.Notes = n.flavor(node)
		key := s.Size + strings.Join(s.Specs, " ")
		if s.Flavor = flavors[key]; s.Flavor != "" {
			s.Specs = nil
		} else {
			s.Flavor = n.in.Plan.Lab + "-" + node.Name
			flavors[key] = s.Flavor
		}
		for _, port := range node.Ports() {
			if port.Card == nil || port.Card.Kind != plan.KindVF {
				continue
			}
			subnet := port.Addr.Masked().String()
			p.Fabrics = lists.Add(p.Fabrics, subnet)
			s.Ports = append(s.Ports, novaPort{port.NIC, fmt.Sprintf("%s-%s-%s", n.in.Plan.Lab, node.Name, port.Name),
				slices.Index(p.Fabrics, subnet)})
		}
		p.Servers = append(p.Servers, s)
	}
	return p
}

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
		policy := "preferred"
		if near(n.in.Host, node) {
			policy = "required"
		}
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
