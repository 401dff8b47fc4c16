// Package live serves live pages about this machine, and metrics for Prometheus.
//
// All data is from a [Source], which may be slow, wrong or gone at any time. A page reports missing data in its place.
package live

import (
	"context"
	"time"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
)

// A Source supplies the data of the pages. Several goroutines call it, with contexts that end when pages have waited
// long enough. Names are from its own lists, never from a request.
type Source interface {
	// Labs returns the running labs. Its error is for unreadable labs; the others are still returned.
	Labs(ctx context.Context) ([]Lab, error)
	// Fabric returns the counters of a lab's switch.
	Fabric(ctx context.Context, lab string) (Fabric, error)
	// RDMA costs the nodes CPU time, so it is only called for a scrape, and for labs with recently opened pages.
	RDMA(ctx context.Context, lab string) ([]NodeRDMA, error)
	// Host returns this machine without starting anything.
	Host(ctx context.Context) (Host, error)
	// Studies returns the started ones, oldest first.
	Studies(ctx context.Context) ([]Study, error)
	// Study returns the current state.
	Study(ctx context.Context, name string) (*study.Document, error)
	// Results are latest first, with details of the first [MaxResults] and of the first of each lab.
	Results(ctx context.Context) ([]Result, error)
	// Result returns one in full.
	Result(ctx context.Context, r Result) (record.Record, error)
}

// MaxResults limits the results listed on a page.
const MaxResults = 50

// A Host is the machine that serves the pages.
type Host struct {
	Document *hostview.Document
	Doctor   []HostUse
}

// A HostUse is a possible use of the machine, with the checks of its requirements.
type HostUse struct {
	For    string
	Checks []finding.Finding
}

// A Lab is a running lab.
type Lab struct {
	Name        string
	Ready       bool
	HasSwitch   bool
	Driver      string
	Accelerator string // "kvm" or "tcg"
	Reason      string // reason that Accelerator is not kvm
	Emulated    bool
	Created     time.Time
	Nodes       []Node
	// Checked is the time of the last verify, or zero.
	Checked  time.Time
	Findings []finding.Finding
}

var nodeStates = []string{"running", "paused", "dead", "no-adapter", "starting", "unknown"}

// A Node is a node of a running lab.
type Node struct {
	Name    string
	State   string // one of nodeStates
	Error   string // reason that State is unknown
	CPUs    int
	Memory  int64     // bytes
	Started time.Time // zero if not started
	NICs    []NIC
}

// A NIC is a NIC of a node.
type NIC struct {
	Name    string
	Address string // with prefix length
	RDMA    string // RDMA device, or ""
	GID     *int   // of RoCE v2, or nil
}

// A Fabric is a snapshot of a switch.
type Fabric struct {
	At      time.Time
	Started time.Time // start of the switch and of its counters
	Ports   []Port
	Flows   []fabric.FlowCounters // between leaves, busiest first
}

// A Port is a switch's port. Rx is from the node to the switch.
type Port struct {
	fabric.PortCounters
	Node, NIC string // "" if the port belongs to no node
	Impaired  string // in words, or ""
}

// rxDrops counts frames from the node that were not forwarded.
func (p *Port) rxDrops() uint64 { return p.RxFiltered + p.RxNowhere }

func (p *Port) drops() uint64 { return p.rxDrops() + p.Drops.Total() }

// NodeRDMA holds the counters of a node's RDMA devices.
type NodeRDMA struct {
	Node    string
	Err     error // the node did not answer
	Devices []RDMADevice
}

// An RDMADevice holds the counters of port 1, by their kernel names.
type RDMADevice struct {
	Name string
	Port map[string]uint64 // from counters, which every port has
	HW   map[string]uint64 // from hw_counters, specific to the device
}

// A Study is the progress of a study.
type Study struct {
	Name, Question, Lab     string
	Created                 time.Time
	Running                 bool
	Complete                bool // no runs are left
	Done, Failed, Disturbed int
	Total                   int           // 0 with a time budget
	Left                    time.Duration // 0 if unknown
	Cell                    string        // of the current run
	Emulated                bool          // it has an emulated figure
	Error                   string        // reason that only its name is known
}

func (s *Study) ended() int { return s.Done + s.Failed + s.Disturbed }

// A Result is a stored measurement.
type Result struct {
	Lab, Time string // names of its directories
	// Set if Detailed is set.
	Detailed  bool
	Generated time.Time
	Emulated  bool
	Tests     []string
	Figures   int // measured values
	Failed    int // failed measurements
	Findings  []finding.Finding
	Error     string // reason that it cannot be read
}
