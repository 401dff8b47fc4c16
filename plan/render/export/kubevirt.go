package export

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/render"
)

//go:embed kubevirt/*.tmpl
var kubeFiles embed.FS

// make test-judges checks the results against KubeVirt's definitions.
var kubeTemplates = template.Must(template.New("kubevirt").Funcs(functions).ParseFS(kubeFiles, "kubevirt/*.tmpl"))

// KubeVirt returns a VirtualMachine for each node, and the configuration of the cluster and the host. Kubernetes
// chooses the CPUs and devices itself, by the rules in kubelet.yaml, so the files only have sizes, shapes and counts.
func KubeVirt(in render.Input) ([]render.Artifact, error) {
	k := kube{in: in}
	if err := k.read(); err != nil {
		return nil, fmt.Errorf("export kubevirt: %w", err)
	}
	var files []render.Artifact
	for _, path := range []string{"kubelet.yaml", "kubevirt.yaml", "networks.yaml", "machines.yaml"} {
		data, err := filled(kubeTemplates, path, &k)
		if err != nil {
			return nil, fmt.Errorf("export kubevirt: %s: %w", path, err)
		}
		if data != "" {
			files = append(files, text(path, data))
		}
	}
	return files, nil
}

type kube struct {
	in render.Input

	Made     string // a comment
	Lab      string // value of the label rackless/lab, which selects the host
	MTU      int
	Isolated bool // each machine gets another core for QEMU's own threads
	Reserved topology.CPUSet
	SMT      bool
	Spans    bool   // some machine is on several NUMA nodes
	Policy   string // of the kubelet's topology manager

	FirstNode              int
	SystemMiB, ReservedMiB uint64

	Devices  []kubeDevice
	Networks []kubeNetwork
	Machines []kubeMachine
}

type kubeDevice struct {
	Name     string // in its machine
	Selector string // vendor and device: 10DE:20B0
	Resource string
}

// A kubeNetwork is a NIC whose virtual functions the SR-IOV network operator creates and assigns.
type kubeNetwork struct {
	PF, Vendor     string
	Name, Resource string
	Count          int
}

type kubeMachine struct {
	Name                    string
	Seed                    render.Seed
	Sockets, Cores, Threads int
	Memory, PageSize        string // PageSize is "" without hugepages
	GuestNUMA               bool
	GPUs, NICs              []kubeDevice
	Ports                   []kubePort
}

type kubePort struct{ Name, MAC, Network string }

// For a lab file without a reserve, in MiB: the host's own processes, and the kubelet's default eviction limit.
const (
	systemMiB    = 2048
	evictionHard = 100
)

func (k *kube) read() error {
	if err := check(&k.in); err != nil {
		return err
	}
	if err := unique(planned(k.in), k.name); err != nil {
		return err
	}
	p := k.in.Plan
	k.Made, k.Lab, k.MTU = made(k.in.Made), dns(p.Lab), k.in.Lab.Fabric.MTU
	k.Spans = slices.ContainsFunc(p.Nodes, func(n plan.Node) bool { return len(shares(k.in.Host, &n)) > 1 })
	k.reserve()
	k.Policy = k.policy()
	for _, pf := range p.VFs {
		if pf.Lab == 0 {
			continue
		}
		id, err := idsOf(k.in.Host, pf.PF)
		if err != nil {
			return err
		}
		name := k.network(pf.PF)
		k.Networks = append(k.Networks, kubeNetwork{PF: pf.PF, Vendor: id.vendor, Name: name,
			Resource: strings.ReplaceAll(name, "-", "_"), Count: pf.Count})
	}
	seeds, err := render.Seeds(k.in, false)
	if err != nil {
		return err
	}
	devices := map[string]kubeDevice{} // by resource
	for i := range p.Nodes {
		m, err := k.machine(&p.Nodes[i], seeds[i])
		if err != nil {
			return err
		}
		k.Machines = append(k.Machines, m)
		for _, d := range slices.Concat(m.GPUs, m.NICs) {
			devices[d.Resource] = d
		}
	}
	k.Devices = lists.Map(lists.Keys(devices), func(name string) kubeDevice { return devices[name] })
	return nil
}

// reserve takes a core per machine for QEMU's own threads: Kubernetes has no pool of shared CPUs. It takes none unless
// a core remains for the host.
func (k *kube) reserve() {
	k.Reserved = k.in.Plan.Housekeeping.CPUs
	var cores []topology.CPUSet
	for _, c := range k.in.Host.Cores {
		k.SMT = k.SMT || c.CPUs.Len() > 1
		if c.CPUs.IsSubsetOf(k.Reserved) {
			cores = append(cores, c.CPUs)
		}
	}
	if k.Isolated = len(cores) > len(k.in.Plan.Nodes); k.Isolated {
		for _, c := range cores[len(cores)-len(k.in.Plan.Nodes):] {
			k.Reserved = k.Reserved.Difference(c)
		}
	}
	k.FirstNode = lists.Find(k.in.Host.NUMANodes, func(n topology.NUMANode) bool {
		return n.CPUs.Overlaps(k.Reserved)
	}).ID
	k.SystemMiB = systemMiB
	if m := k.in.Lab.Reserve.Memory; m != nil {
		k.SystemMiB = uint64(*m) / mib
	}
	k.ReservedMiB = k.SystemMiB + evictionHard
}

func (k *kube) name(node string) string { return dns(k.in.Plan.Lab + "-" + node) }

// network uses lower case letters, digits and hyphens. The SR-IOV operator's resource of that name has underscores.
func (k *kube) network(pf string) string {
	return dns(k.in.Plan.Lab) + "-" + strings.NewReplacer(":", "-", ".", "-").Replace(pf)
}

func (k *kube) machine(n *plan.Node, seed render.Seed) (kubeMachine, error) {
	m := kubeMachine{Name: k.name(n.Name), Seed: seed, Memory: kibi(n.MemoryBytes), GuestNUMA: n.GuestNUMA}
	m.Sockets, m.Cores, m.Threads, _ = n.Topology()
	if size := pageBytes(n); size > 0 {
		m.PageSize = kibi(size)
	}
	for i, c := range whole(n) {
		id, err := idsOf(k.in.Host, c.ID)
		if err != nil {
			return m, err
		}
		d := kubeDevice{Name: fmt.Sprintf("%s%d", c.Kind, i), Selector: strings.ToUpper(id.vendor + ":" + id.device),
			Resource: "rackless/" + c.Kind + "-" + id.vendor + "-" + id.device}
		if c.Kind == plan.KindGPU {
			m.GPUs = append(m.GPUs, d)
		} else {
			m.NICs = append(m.NICs, d)
		}
	}
	for _, p := range n.Ports() {
		if p.Card != nil && p.Card.Kind == plan.KindVF {
			m.Ports = append(m.Ports, kubePort{p.Name, p.MAC, k.network(p.Card.ID)})
		}
	}
	return m, nil
}
