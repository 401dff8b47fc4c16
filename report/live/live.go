// Package live serves live pages about this machine, and metrics for Prometheus: labs with an hour of their counters,
// the host, studies as they run, results.
//
// It knows nothing of how things are read: a [Source] gives them. A source may be slow, wrong or
// gone at any time; what it does not give is said where it would stand, and the rest of the page is
// there.
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

// A Source is what the pages show. Its methods are called from several goroutines, with contexts
// that end when the pages have waited long enough. What is asked for by name has been in a list of
// the source's before: nothing of a request reaches it otherwise.
type Source interface {
	// Labs returns the running labs. Those that cannot be read are in the error, beside those that can.
	Labs(ctx context.Context) ([]Lab, error)
	// Fabric returns the counters of a lab's switch.
	Fabric(ctx context.Context, lab string) (Fabric, error)
	// RDMA returns the counters of the RDMA devices in a lab's nodes. Asking costs the nodes CPU
	// time, so only a scrape of the metrics does, and the hour of a lab whose page was opened.
	RDMA(ctx context.Context, lab string) ([]NodeRDMA, error)
	// Host returns this machine. Nothing is started for it.
	Host(ctx context.Context) (Host, error)
	// Studies returns the studies that were begun, the oldest first.
	Studies(ctx context.Context) ([]Study, error)
	// Study returns what a study shows so far.
	Study(ctx context.Context, name string) (*study.Document, error)
	// Results returns the stored measurements, the latest first, with details of the first
	// [MaxResults] and of the first of each lab.
	Results(ctx context.Context) ([]Result, error)
	// Result returns one of them whole.
	Result(ctx context.Context, r Result) (record.Record, error)
}

// MaxResults is how many results a page lists.
const MaxResults = 50

// A Host is the machine that the pages are served from.
type Host struct {
	Document *hostview.Document
	Doctor   []HostUse
}

// A HostUse is what the machine can be used for, with what it has of that and what it lacks.
type HostUse struct {
	For    string
	Checks []finding.Finding
}

// A Lab is a running lab.
type Lab struct {
	Name        string
	Ready       bool // bringing it up has come to its end
	HasSwitch   bool // a switch of rackless joins the nodes, and not the host's own NICs
	Driver      string
	Accelerator string // "kvm" or "tcg"
	Reason      string // why it is not kvm
	Emulated    bool
	Created     time.Time
	Nodes       []Node
	// Findings are those of the last verify, and Checked is when it was; zero where there was none.
	Checked  time.Time
	Findings []finding.Finding
}

// States of a node.
var nodeStates = []string{"running", "paused", "dead", "no-adapter", "starting", "unknown"}

// A Node is a node of a running lab.
type Node struct {
	Name    string
	State   string // one of nodeStates
	Error   string // why it is unknown
	CPUs    int
	Memory  int64     // bytes
	Started time.Time // zero: not yet
	NICs    []NIC
}

// A NIC is one of a node.
type NIC struct {
	Name    string
	Address string // with the length of its subnet
	RDMA    string // device; empty: none
	GID     *int   // index of the RoCE v2 GID of the address; nil: it has none
}

// A Fabric is a snapshot of a switch.
type Fabric struct {
	At      time.Time
	Started time.Time // counts begin there
	Ports   []Port
}

// A Port is one port of a switch, and what is connected to it. Received is what came from the node into the switch,
// transmitted what went from the switch to the node.
type Port struct {
	fabric.PortCounters
	Node, NIC string // both empty where no node of the lab belongs to the port
	Impaired  string // how the link to the node is impaired, in words; empty: it is not
}

// rxDrops are the frames from the node that were for nobody.
func (p *Port) rxDrops() uint64 { return p.RxFiltered + p.RxNowhere }

// drops are the frames that the port dropped, for whatever reason.
func (p *Port) drops() uint64 { return p.rxDrops() + p.Drops.Total() }

// NodeRDMA is the counters of a node's RDMA devices.
type NodeRDMA struct {
	Node    string
	Err     error // why it did not answer
	Devices []RDMADevice
}

// An RDMADevice is the counters of port 1 of a device, by the kernel's names.
type RDMADevice struct {
	Name string
	Port map[string]uint64 // those that every port has: counters
	HW   map[string]uint64 // those of the device: hw_counters
}

// A Study is how far a study is.
type Study struct {
	Name, Question, Lab     string
	Created                 time.Time
	Running                 bool
	Complete                bool // no run is left to be made
	Done, Failed, Disturbed int
	Total                   int           // runs that are planned; 0 where a budget of time decides
	Left                    time.Duration // about, as runs have taken so far; 0: not known
	Cell                    string        // of the run that is made now
	Emulated                bool          // a figure of it was
	Error                   string        // why nothing but its name is known
}

// ended is the number of runs that came to their end.
func (s *Study) ended() int { return s.Done + s.Failed + s.Disturbed }

// A Result is a stored measurement.
type Result struct {
	Lab, Time string // names of its directories
	// What follows is known where Detailed is set.
	Detailed  bool
	Generated time.Time
	Emulated  bool
	Tests     []string
	Figures   int // measured values
	Failed    int // measurements without one
	Findings  []finding.Finding
	Error     string // why it cannot be read
}
