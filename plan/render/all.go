package render

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/cmdline"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// All returns artefacts in the order of use, README.md first, with unique relative paths. It returns an error for
// kernel arguments that no boot loader can carry, and for plans that [Domains] cannot render.
func All(in Input) ([]Artifact, error) {
	v, err := newView(in)
	if err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	domains, err := Domains(in)
	if err != nil {
		return nil, err
	}
	topologies, err := ncclTopologies(in)
	if err != nil {
		return nil, err
	}
	planFile, err := PlanFile(in.Plan)
	if err != nil {
		return nil, err
	}
	all := []Artifact{
		{Path: "README.md", Mode: 0o644, Data: v.readme()},
		planFile,
		{Path: "lab.yaml", Mode: 0o644, Data: in.Lab.YAML()},
	}
	return slices.Concat(all, v.commands(), v.firmware(), v.kernel(), v.tuned(), domains, v.guests(topologies),
		topologies, v.switches()), nil
}

// PlanFile returns the plan itself, indented, with < and > unescaped. It marks a directory as one of a plan.
func PlanFile(p *plan.Plan) (Artifact, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p); err != nil {
		return Artifact{}, fmt.Errorf("render plan.json: %w", err)
	}
	return Artifact{Path: "plan.json", Mode: 0o644, Data: b.Bytes()}, nil
}

// A view is for host, guests and network. Domains have their own model, machine, because they refuse plans for which
// all other artefacts can be written, such as one for a host known only by a matrix of devices.
type view struct {
	in    Input
	plan  *plan.Plan
	host  *topology.Host
	lab   string // safe in names of files and units
	made  string
	nics  map[string]*topology.NIC
	given topology.CPUSet    // including idle siblings of cores
	whole []topology.PCIAddr // functions passed through, in the order of the plan
	ports [][]port           // by lab node
}

// A port is a whole NIC, a virtual function, or an emulated port.
type port struct {
	node string
	nic  lab.NIC
	card *plan.NodeDevice // nil if emulated
	pf   *topology.PCIAddr
}

func (p *port) isVF() bool {
	return p.card != nil && p.card.Kind == plan.KindVF && p.card.VF != nil && p.pf != nil
}

// newView refuses kernel arguments that a boot loader would cut or split, and CPUs that the host lacks.
func newView(in Input) (*view, error) {
	if in.Plan == nil || in.Lab == nil {
		return nil, errors.New("no plan or no lab")
	}
	v := &view{
		in: in, plan: in.Plan, host: cmp.Or(in.Host, &topology.Host{}), lab: safeName(in.Plan.Lab),
		made: cmp.Or(oneLine(in.Made), "Made by rackless."), nics: map[string]*topology.NIC{},
	}
	if err := cmdline.Check(v.plan.KernelArgs, cmdline.Limit(v.host.System.Arch)); err != nil {
		return nil, err
	}
	for i := range v.host.NICs {
		v.nics[v.host.NICs[i].ID()] = &v.host.NICs[i]
	}
	var err error
	if v.given, err = v.plan.GivenCPUs(v.host); err != nil {
		return nil, err
	}
	seen := map[topology.PCIAddr]bool{}
	for i := range v.plan.Nodes {
		n := &v.plan.Nodes[i]
		v.ports = append(v.ports, portsOf(n))
		for _, c := range n.Cards {
			if c.Kind == plan.KindVF {
				continue
			}
			for _, f := range c.Functions {
				// IDs that are not addresses come from a host known by a matrix, which Domains refuses.
				if a, err := topology.ParsePCIAddr(f); err == nil && !seen[a] {
					seen[a] = true
					v.whole = append(v.whole, a)
				}
			}
		}
	}
	return v, nil
}

func portsOf(n *plan.Node) []port {
	var ports []port
	for _, p := range n.Ports() {
		own := port{node: n.Name, nic: p.NIC, card: p.Card}
		if p.Card != nil {
			if a, err := topology.ParsePCIAddr(p.Card.ID); err == nil {
				own.pf = &a
			}
		}
		ports = append(ports, own)
	}
	return ports
}

func (v *view) allPorts() []port { return slices.Concat(v.ports...) }

func (v *view) hasVFs() bool {
	return slices.ContainsFunc(v.allPorts(), func(p port) bool { return p.isVF() })
}

func (v *view) isolated() topology.CPUSet { return isolatedBy(v.plan) }

func isolatedBy(p *plan.Plan) topology.CPUSet {
	for _, arg := range p.KernelArgs {
		if list, ok := cmdline.Isolcpus(arg); ok {
			return list
		}
	}
	return topology.CPUSet{}
}

func (v *view) header(what string) string { return comment("# ", v.made) + comment("# ", what) }

func text(path string, data string) Artifact {
	return Artifact{Path: path, Mode: 0o644, Data: []byte(data)}
}

// An Artifact is a file for the caller to write.
type Artifact struct {
	Path string // relative to the directory of the plan: "domains/vm00.xml"
	Mode fs.FileMode
	Data []byte
}

// Input is for all artefacts.
type Input struct {
	Plan *plan.Plan
	Lab  *lab.Lab
	Host *topology.Host
	// Made names the program and its input: "rackless v1 plan of lab epyc-pair (examples/epyc-pair.yaml) for
	// epyc-7551p.ttar".
	Made string

	// Kernel lists the ways to set the kernel arguments, one per kind of boot loader; Steps prepare the host by hand.
	// Both come from [github.com/rackless/rackless/host.Artifacts].
	Kernel, Steps []Step

	// Boot may be nil: a disk with a cloud image then boots by UEFI.
	Boot *Boot
	// Seeds are paths on libvirt's machine, by node, of disks for cloud-init (NoCloud) in nodes without Boot.
	Seeds map[string]string
	// ConsoleDir is on libvirt's machine, or "" to discard the output. See [ConsolePath].
	ConsoleDir string
	// Emulated needs no KVM: QEMU translates the guest's code (TCG). Pinning, NUMA nodes and hugepages stay as planned.
	Emulated bool
}

// A Boot has its root in memory. The node has no disk, no firmware, and no network other than the lab's.
type Boot struct {
	Kernel    string // path on libvirt's machine
	Initramfs string // path on libvirt's machine
	Args      string // the kernel's command line
}
