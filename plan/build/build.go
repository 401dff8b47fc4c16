// Package build makes the planner's problem from a host and a lab.
//
// [Problem] reports all requests that the host cannot satisfy at once ([RequestErrors]). A file of measurements
// ([ParseModel]) replaces published weights and path classes.
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

// Options are the inputs of [Problem] besides host and lab.
type Options struct {
	HostName string            // for messages: a file, or "this machine"
	Tenants  []topology.Tenant // if lab.Tenants names a file
	Model    *Model            // override the published weights, or nil
}

// A description beyond these limits of a Problem is a mistake or an attack.
//
// They also keep every cost within an int64. A distance is at most 245, and the means of [Weights.Of] divide the
// products in Evaluate by cores, pages and devices, so that each term of a lab node stays below 10^13. TermUnequal
// multiplies such a sum by a weight a second time, and stays below 10^18 for all classes together.
const (
	MaxHostCores   = 4096
	MaxHostNodes   = 256  // NUMA nodes
	MaxHostDevices = 1024 // GPUs and NICs
	// MaxHostMemory is in bytes: 52 bits of physical address, the maximum of x86-64 and arm64.
	MaxHostMemory = 1 << 52
	// MaxNICVFs is for one NIC. No current NIC has more.
	MaxNICVFs = 1024
	// MaxNodeDevices is for one lab node, with virtual functions.
	MaxNodeDevices = 256
	// MaxDistance is in SLIT, which ACPI stores in a byte.
	MaxDistance = 255
	// MaxWeight is for a term.
	MaxWeight = 1_000_000

	maxFunctions = 1 << 16 // addresses in a PCI domain
	maxOthers    = 4096    // disks, default routes, bonds, and tenants
)

// Problem puts assumptions about the host into Notes, and changes neither h nor l. Its error is a [RequestErrors]; each
// names the lab node, the key, the available amount and the remedy.
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
	// Later steps depend on these results and would report wrong causes.
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

// A problemBuilder's methods run in the order of Problem; each may use the results of earlier ones.
type problemBuilder struct {
	host    *topology.Host
	lab     *lab.Lab
	model   *Model
	tenants []topology.Tenant
	name    string
	tree    *topology.Tree

	p     *plan.Problem
	noted map[string]bool
	errs  RequestErrors

	nodeOf map[int]int // index in Problem.NUMANodes by ID
	// uses is in the words of Device.Refused. A device with such a function stays with the host.
	uses map[topology.PCIAddr]string
	// blocked is the subset of uses that also rules out virtual functions.
	blocked map[topology.PCIAddr]string
	holders map[topology.PCIAddr]string // tenant that holds a function
	heldVFs map[topology.PCIAddr]int    // held by tenants without known indexes
	// virtual has existing functions, and the addresses of others if known.
	virtual map[topology.PCIAddr][]vfFunction
	// virtualUses is for physical functions that are needed because of a virtual one.
	virtualUses map[topology.PCIAddr]string
	// hostUses is the subset of uses near which the host keeps its own CPUs: disks and default routes.
	hostUses []hostUse
	facts    []deviceFacts // parallel to Problem.Devices
}

// note records an assumption once.
func (b *problemBuilder) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !b.noted[text] {
		b.noted[text] = true
		b.p.Notes = append(b.p.Notes, text)
	}
}

// fail concerns the whole lab if node is empty.
func (b *problemBuilder) fail(node, key, format string, args ...any) {
	b.errs = append(b.errs, &RequestError{Node: node, Key: key, What: fmt.Sprintf(format, args...)})
}

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
			// Both are far below 2^63.
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

func (b *problemBuilder) chooseWeights() {
	b.p.Workload = cmp.Or(b.lab.Workload, lab.DefaultWorkload)
	if !slices.Contains(lab.Workloads(), b.p.Workload) { // not from the parser
		b.fail("", "workload", "no weights for workload %q", string(b.p.Workload))
		return
	}
	b.p.Weights = plan.DefaultWeights(b.p.Workload)
	if b.lab.VSphere != nil {
		b.p.Weights.CoreBalance = max(b.p.Weights.CoreBalance, equalCells)
	}
	if b.model != nil {
		b.overrideWeights()
	}
}

// equalCells is the weight of an even split in vSphere. It is the whole figure, because a virtual machine cannot be
// made of parts without a common divisor at all.
const equalCells = 10_000

// A RequestError is a request that the host, or a model, cannot satisfy.
type RequestError struct {
	Node string // empty for the whole lab or the host
	Key  string // "gpus", "host.reserve.cores"; "model" for a model's file; may be empty
	What string // problem, available amount, and remedy
}

// Error begins with "node: key: ".
func (e *RequestError) Error() string {
	text := ""
	for _, part := range []string{e.Node, e.Key} {
		if part != "" {
			text += part + ": "
		}
	}
	return text + e.What
}

// RequestErrors are never empty, and in the order of the lab. errors.As with a *RequestError finds the first.
type RequestErrors = lists.Errors[*RequestError]

const maxListed = 8

func listText(names []string) string { return words.Names(names, maxListed) }

func rowText(names []string) string {
	if len(names) > maxListed {
		return words.Names(names, maxListed)
	}
	return strings.Join(names, ", ")
}
