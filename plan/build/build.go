// Package build makes the planner's problem from a host and a lab.
//
// [Problem] decides what may be given away and what the host keeps: cores beside tenants, memory by
// NUMA node, devices that are tied by IOMMU groups, virtual functions that are free. It reports
// everything at once that a lab asks for and the host does not have ([RequestErrors]). A file of
// measurements ([ParseModel]) replaces published weights and path classes.
package build

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// Options are what [Problem] needs beside host and lab.
type Options struct {
	HostName string            // for messages: a file, or "this machine"
	Tenants  []topology.Tenant // in place of the host's, where lab.Tenants names a file
	Model    *Model            // measurements that override the published weights; nil for none
}

// Limits of a Problem. They are far above any machine of today; a description beyond them is a slip
// or an attack, and is refused with the limit named.
//
// They also keep every cost within an int64. By what Evaluate multiplies: a distance is at most
// 245, and the means of [Weights.Of] take cores, pages and devices out of the products again, so
// that each term of a lab node stays below 10^13; TermUnequal, which multiplies such a sum by a
// weight a second time, below 10^18 for all classes together.
const (
	MaxHostCores   = 4096
	MaxHostNodes   = 256  // NUMA nodes
	MaxHostDevices = 1024 // GPUs and NICs
	// MaxHostMemory is in bytes: what 52 bits of physical address reach, the most that x86-64 and
	// arm64 processors have.
	MaxHostMemory = 1 << 52
	// MaxNICVFs is the most virtual functions of one NIC that are planned with; no NIC of today offers more.
	MaxNICVFs = 1024
	// MaxNodeDevices is the most devices and virtual functions that a lab node may ask for.
	MaxNodeDevices = 256
	// MaxDistance is the largest SLIT distance. ACPI keeps one in a byte.
	MaxDistance = 255
	// MaxWeight is the largest weight of a term.
	MaxWeight = 1_000_000

	maxFunctions = 1 << 16 // what a PCI domain has addresses for
	maxOthers    = 4096    // of disks, default routes, bonds and tenants
)

// Problem makes a planner's problem of a host and a lab. Errors are about what the lab asks for and the host has
// not; they name the lab node, the key, what is there and what to do. All errors of a run come
// together, as [RequestErrors].
//
// What the host does not tell is assumed, and Problem.Notes says so. Neither h nor l is changed.
func Problem(h *topology.Host, l *lab.Lab, o Options) (*plan.Problem, error) {
	b := &problemBuilder{
		host: h, lab: l, model: o.Model, noted: map[string]bool{},
		name: cmp.Or(o.HostName, h.Provenance.Name, "the host"),
		tree: topology.NewTree(h),
		p: &plan.Problem{
			Schema: plan.ProblemSchema, Lab: l.Name,
			// empty lists, not null, in JSON
			Packages: []plan.Package{}, Devices: []plan.Device{}, Paths: []plan.PairPath{},
		},
	}
	b.p.Host = b.name
	b.name = words.Plain(b.name)
	// What follows builds on these. With errors here, later ones would be about things that are not so:
	// a lab that asks for too many cores of a host whose cores could not be read.
	b.checkLimits()
	b.chooseWeights()
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	b.tenants = b.chooseTenants(o.Tenants)
	b.addNodes()
	b.addCores()
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	b.holdCores()
	b.findUses()
	b.addPackages()
	b.reserveCores()
	b.addDevices()
	b.addLinks()
	b.addPaths()
	b.applyMeasurements()
	b.addRequests()
	b.addAffinity()
	b.numberClasses()
	if len(b.errs) > 0 {
		return nil, b.errs
	}
	return b.p, nil
}

// A problemBuilder is a Problem in the making. Its methods are called in the order of Problem: each may
// use what those before it have set.
type problemBuilder struct {
	host    *topology.Host
	lab     *lab.Lab
	model   *Model
	tenants []topology.Tenant
	name    string // of the host, fit for messages
	tree    *topology.Tree

	p     *plan.Problem
	noted map[string]bool
	errs  RequestErrors

	nodeOf map[int]int // index of Problem.NUMANodes by ID
	// uses says, in the words of Device.Refused, what a PCI function is needed for. A device with
	// such a function is not given away.
	uses map[topology.PCIAddr]string
	// blocked are those of uses that leave no virtual functions either: a tenant has the function whole, or it is dead.
	blocked map[topology.PCIAddr]string
	holders map[topology.PCIAddr]string // which tenant holds a function
	heldVFs map[topology.PCIAddr]int    // how many virtual functions tenants hold that are not told apart
	// virtual are the virtual functions of each physical one: those that exist, and as far as it is
	// known where the others would be.
	virtual map[topology.PCIAddr][]vfFunction
	// virtualUses says what uses does of physical functions, for the sake of a virtual one that would be gone with it.
	virtualUses map[topology.PCIAddr]string
	// hostUses are those of uses that keep the host's own CPUs near: disks and default routes, in
	// the order in which they were found.
	hostUses []hostUse
	facts    []deviceFacts // of Problem.Devices, by index
}

// note says what was assumed. A note is made once, whichever lab nodes it was found for.
func (b *problemBuilder) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !b.noted[text] {
		b.noted[text] = true
		b.p.Notes = append(b.p.Notes, text)
	}
}

// fail adds an error about a key of a lab node, or of the whole lab where node is empty.
func (b *problemBuilder) fail(node, key, format string, args ...any) {
	b.errs = append(b.errs, &RequestError{Node: node, Key: key, What: fmt.Sprintf(format, args...)})
}

// checkLimits refuses hosts and labs that are too large to be meant.
func (b *problemBuilder) checkLimits() {
	h := b.host
	limit := func(n, most int, what string) {
		if n > most {
			b.fail("", "", "%s: %d %s, and at most %d can be planned with", b.name, n, what, most)
		}
	}
	limit(len(h.NUMANodes), MaxHostNodes, "NUMA nodes")
	limit(len(h.Cores), MaxHostCores, "cores")
	limit(len(h.PCI), maxFunctions, "PCI functions")
	limit(len(h.GPUs)+len(h.NICs), maxFunctions, "GPUs and NICs with virtual functions")
	limit(len(h.Storage), maxOthers, "disks")
	limit(len(h.Routes), maxOthers, "default routes")
	limit(len(h.Bonds), maxOthers, "bonds")
	limit(len(h.Tenants), maxOthers, "tenants")
	devices := len(h.GPUs)
	devices += lists.Count(h.NICs, func(n topology.NIC) bool { return n.PF == nil })
	limit(devices, MaxHostDevices, "GPUs and NICs")
	limit(len(b.lab.Nodes), lab.MaxNodes, "lab nodes")
	total := uint64(0)
	for i := range h.NUMANodes {
		if m := h.NUMANodes[i].MemoryBytes; m != nil {
			// Both are far below 2^63, so that their sum does not wrap.
			total = min(total, MaxHostMemory+1) + min(*m, MaxHostMemory+1)
		}
	}
	if m := h.Memory.TotalBytes; total > MaxHostMemory || m != nil && *m > MaxHostMemory {
		b.fail("", "", "%s: more than %s of memory, and no more can be planned with", b.name, lab.Bytes(MaxHostMemory))
	}
	if len(b.lab.Nodes) == 0 {
		b.fail("", "nodes", "the lab has no nodes: give it at least one")
	}
}

// chooseWeights takes the published weights of the workload, and those of the model in their place.
func (b *problemBuilder) chooseWeights() {
	b.p.Workload = cmp.Or(b.lab.Workload, lab.DefaultWorkload)
	if !slices.Contains(lab.Workloads(), b.p.Workload) { // a Lab that no parser made
		b.fail("", "workload", "no weights for workload %q", string(b.p.Workload))
		return
	}
	b.p.Weights = plan.DefaultWeights(b.p.Workload)
	if b.model != nil {
		b.overrideWeights()
	}
}

// A RequestError is something that the lab asks for and that the host, or a model, does not allow.
type RequestError struct {
	Node string // the lab node; empty for what concerns the whole lab or the host
	Key  string // the key of the lab file: "gpus", "host.reserve.cores"; "model" for a model's file; may be empty
	What string // what is wrong, what is there and what to do
}

// Error returns "node: key: what".
func (e *RequestError) Error() string {
	text := ""
	for _, part := range []string{e.Node, e.Key} {
		if part != "" {
			text += part + ": "
		}
	}
	return text + e.What
}

// RequestErrors are all errors of one call of [Problem], in the order of the lab; it never returns an
// empty one. errors.As with a *RequestError finds the first.
type RequestErrors = lists.Errors[*RequestError]

// maxListed bounds lists of devices and names in messages.
const maxListed = 8

// listText joins names: "a", "a and b", "a, b and c", and counts those past a few.
func listText(names []string) string { return words.Names(names, maxListed) }

// rowText joins names by commas, and counts those past a few.
func rowText(names []string) string {
	if len(names) > maxListed {
		return words.Names(names, maxListed)
	}
	return strings.Join(names, ", ")
}
