// Package live serves live pages about this machine, and metrics for Prometheus: labs with an hour of their counters,
// the host, studies in progress, and results.
//
// It gets all data from a [Source], which may be slow, wrong or gone at any time. A page reports missing data in its
// place and shows the rest.
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

// A Source supplies the data of the pages. Its methods are called from several goroutines, with contexts that end
// when the pages have waited long enough. Names passed to it always come from its own lists, never directly from a
// request.
type Source interface {
	// Labs returns the running labs. Its error covers labs that could not be read; the others are still returned.
	Labs(ctx context.Context) ([]Lab, error)
	// Fabric returns the counters of a lab's switch.
	Fabric(ctx context.Context, lab string) (Fabric, error)
	// RDMA returns the counters of the RDMA devices in a lab's nodes. It costs the nodes CPU time, so it is only
	// called for a scrape of the metrics, and for labs with recently opened pages.
	RDMA(ctx context.Context, lab string) ([]NodeRDMA, error)
	// Host returns this machine without starting anything.
	Host(ctx context.Context) (Host, error)
	// Studies returns the started studies, oldest first.
	Studies(ctx context.Context) ([]Study, error)
	// Study returns the current state of a study.
	Study(ctx context.Context, name string) (*study.Document, error)
	// Results returns the stored measurements, latest first, with details of the first [MaxResults] and of the first
	// of each lab.
	Results(ctx context.Context) ([]Result, error)
	// Result returns one stored measurement in full.
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
	Ready       bool // the lab has been brought up
	HasSwitch   bool // a rackless switch joins the nodes, not the host's own NICs
	Driver      string
	Accelerator string // "kvm" or "tcg"
	Reason      string // reason that Accelerator is not kvm
	Emulated    bool
	Created     time.Time
	Nodes       []Node
	// Checked is the time of the last verify, or zero, and Findings are its findings.
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
	GID     *int   // index of the address's RoCE v2 GID, or nil
}

// A Fabric is a snapshot of a switch.
type Fabric struct {
	At      time.Time
	Started time.Time // start of the switch and of its counters
	Ports   []Port
}

// A Port is one port of a switch with its node. Rx counts frames from the node to the switch, Tx frames from the
// switch to the node.
type Port struct {
	fabric.PortCounters
	Node, NIC string // both empty if the port belongs to no node of the lab
	Impaired  string // impairments of the link in words, or ""
}

// rxDrops counts the frames from the node that were not forwarded.
func (p *Port) rxDrops() uint64 { return p.RxFiltered + p.RxNowhere }

func (p *Port) drops() uint64 { return p.rxDrops() + p.Drops.Total() }

// NodeRDMA holds the counters of a node's RDMA devices.
type NodeRDMA struct {
	Node    string
	Err     error // set if the node did not answer
	Devices []RDMADevice
}

// An RDMADevice holds the counters of port 1 of a device, by their kernel names.
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
	Total                   int           // planned runs; 0 if a time budget decides
	Left                    time.Duration // estimate from the runs so far; 0 if unknown
	Cell                    string        // of the current run
	Emulated                bool          // it has an emulated figure
	Error                   string        // reason that only its name is known
}

func (s *Study) ended() int { return s.Done + s.Failed + s.Disturbed }

// A Result is a stored measurement.
type Result struct {
	Lab, Time string // names of its directories
	// The following fields are set if Detailed is set.
	Detailed  bool
	Generated time.Time
	Emulated  bool
	Tests     []string
	Figures   int // measured values
	Failed    int // failed measurements
	Findings  []finding.Finding
	Error     string // reason that it cannot be read
}
