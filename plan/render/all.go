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

// All returns every artefact of a plan, in the order in which they are used, README.md first. Paths
// are below the directory of the plan and unique. The same input gives the same bytes.
//
// A plan whose kernel arguments no boot loader could carry, and one that [Domains] cannot render, is an error.
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

// PlanFile returns the plan itself as a file for people, too: indented, with < and > as they are. A directory with
// it is known to be of a plan.
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

// A view is a plan as the artefacts of host, guests and network look at it. Domains have a model of their own, the
// machine: they refuse plans that all other artefacts can be written for, such as one for a host that is known by a
// matrix of devices only.
type view struct {
	in    Input
	plan  *plan.Plan
	host  *topology.Host
	lab   string // the lab's name, safe in names of files and units
	made  string // what made the files, in one line
	nics  map[string]*topology.NIC
	given topology.CPUSet    // all CPUs of cores of lab nodes, idle siblings too
	whole []topology.PCIAddr // functions that go to lab nodes, in the order of the plan
	ports [][]port           // of each lab node
}

// A port is a network port of a lab node: a NIC that it has whole, a virtual function, or an emulated one.
type port struct {
	node string
	nic  lab.NIC
	card *plan.NodeDevice // nil: emulated
	pf   *topology.PCIAddr
}

// isVF reports whether the port is a virtual function with a known physical one.
func (p *port) isVF() bool {
	return p.card != nil && p.card.Kind == plan.KindVF && p.card.VF != nil && p.pf != nil
}

// newView refuses only what would make a wrong file: kernel arguments that a boot loader would cut or split, and CPUs
// that the host does not have. What is not known is left out of the artefacts.
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
				// Names that are no addresses are of a host that is known by a matrix; Domains
				// refuses it with the reason.
				if a, err := topology.ParsePCIAddr(f); err == nil && !seen[a] {
					seen[a] = true
					v.whole = append(v.whole, a)
				}
			}
		}
	}
	return v, nil
}

// portsOf returns the ports of a lab node, with the addresses of the NICs that they are on.
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

// allPorts returns the ports of all lab nodes in order.
func (v *view) allPorts() []port { return slices.Concat(v.ports...) }

// hasVFs reports whether the plan makes virtual functions.
func (v *view) hasVFs() bool {
	return slices.ContainsFunc(v.allPorts(), func(p port) bool { return p.isVF() })
}

// isolated returns the CPUs that the kernel arguments isolate; empty where they isolate none.
func (v *view) isolated() topology.CPUSet {
	for _, arg := range v.plan.KernelArgs {
		if list, ok := cmdline.Isolcpus(arg); ok {
			return list
		}
	}
	return topology.CPUSet{}
}

// header is the comment at the top of a file in which # begins one.
func (v *view) header(what string) string { return comment("# ", v.made) + comment("# ", what) }

func text(path string, data string) Artifact {
	return Artifact{Path: path, Mode: 0o644, Data: []byte(data)}
}

// An Artifact is a file to write: nothing here writes it.
type Artifact struct {
	Path string // below the directory of the plan, with forward slashes: "domains/vm00.xml"
	Mode fs.FileMode
	Data []byte
}

// Input is what artefacts are made of.
type Input struct {
	Plan *plan.Plan
	Lab  *lab.Lab
	Host *topology.Host
	// Made says what made the files and from what: "rackless v1 plan of lab epyc-pair
	// (examples/epyc-pair.yaml) for epyc-7551p.ttar".
	Made string

	// Steps prepare the host by hand, and Kernel are the ways to give it the kernel arguments, one for each kind of
	// boot loader, as [github.com/rackless/rackless/host.Artifacts] makes them of the ops that prepare a host.
	Kernel, Steps []Step

	// What follows is for Domains alone: the other artefacts are about nodes of a cloud image on a real host.

	// Boot is what nodes boot; nil means a disk with a cloud image, by UEFI.
	Boot *Boot
	// Seeds are paths on the machine of libvirt, by node: disks that cloud-init reads (NoCloud) in nodes without Boot.
	Seeds map[string]string
	// ConsoleDir is a directory on the machine of libvirt for what the consoles of nodes print; ""
	// keeps nothing. See [ConsolePath].
	ConsoleDir string
	// Emulated makes domains that need no KVM: QEMU translates what they execute (TCG). Pinning,
	// NUMA nodes and hugepages are as planned.
	Emulated bool
}

// A Boot is a kernel that QEMU starts by itself, with a root file system in memory: the node has no
// disk, no firmware to wait for, and no network but the lab's.
type Boot struct {
	Kernel    string // path on the machine of libvirt
	Initramfs string // path on the machine of libvirt
	Args      string // the kernel's command line
}
