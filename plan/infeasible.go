package plan

// InfeasibleSchema names the JSON form of an Infeasible.
const InfeasibleSchema = "rackless/infeasible/v1"

// Infeasible is the error that says why a lab cannot be placed: a smallest set of what is asked for
// that conflicts, the facts of the host that it conflicts with, and the nearest that would fit.
// Package plan/conflict makes it.
type Infeasible struct {
	Schema string `json:"schema"`
	// Requests are what conflicts: leave any lab node of them out and the others can be placed. In
	// the order of the lab; what is of no lab node comes last.
	Requests []Demand `json:"requests"`
	// Facts are those of the host that stand in the way: without any one of them the requests could
	// be met, or without those marked Together.
	Facts []Fact `json:"facts"`
	// Message says all that in a sentence, without the names of files or hosts.
	Message string `json:"message"`
	// Nearest says what would fit, in a sentence.
	Nearest string `json:"nearest"`
	// Minimal is set where it was tried that no lab node can be left out of Requests. It is not
	// where time or steps ran out before.
	Minimal bool `json:"minimal"`
	// Stopped says what ended the search before it found a plan or a conflict: then nothing is ruled out.
	Stopped string `json:"stopped"`
}

// Error returns the message and, on a line of its own, the nearest that would fit.
func (e *Infeasible) Error() string { return e.Message + "\n" + e.Nearest }

// What a Demand asks for.
const (
	DemandCores    = "cores"    // Count: cores
	DemandMemory   = "memory"   // Count: bytes
	DemandGPUs     = "gpus"     // Count: GPUs
	DemandNICs     = "nics"     // Count: whole NICs
	DemandVFs      = "vfs"      // Count: virtual functions
	DemandSMT      = "smt"      // Count: threads that share a core
	DemandAffinity = "affinity" // of Among
	DemandReserve  = "reserve"  // Count: cores that the host keeps
)

// A Demand is a part of what is asked for.
type Demand struct {
	Node  string   `json:"node,omitempty"`  // the lab node; empty for affinity and reserve
	Among []string `json:"among,omitempty"` // the lab nodes of an affinity
	What  string   `json:"what"`            // a Demand constant
	Count int64    `json:"count,omitempty"` // how much, in the unit of What
	Text  string   `json:"text"`            // "2 GPUs"
}

// Kinds of facts.
const (
	FactTenant  = "tenant"  // a tenant holds cores or devices
	FactBundle  = "bundle"  // devices can only go together
	FactRefused = "refused" // a device is not given away
	FactVFs     = "vfs"     // a NIC has only so many virtual functions
	FactPackage = "package" // a package keeps a core for the host
	FactMemory  = "memory"  // a NUMA node can give only so much memory
)

// A Fact is something about the host that stands in the way.
type Fact struct {
	Kind     string   `json:"kind"`                // a Fact constant
	Tenant   string   `json:"tenant,omitempty"`    // of FactTenant
	Devices  []string `json:"devices,omitempty"`   // the devices that it is about
	NUMANode *int     `json:"numa_node,omitempty"` // of FactMemory
	Package  *int     `json:"package,omitempty"`   // of FactPackage
	// Together is set where no fact alone would have to change, but all of this kind that are marked.
	Together bool   `json:"together,omitempty"`
	Text     string `json:"text"` // "tenant web holds 0000:06:00.0"
}
