// Package top shows the rates of a running lab on a terminal: of the ports of its switch, of the RDMA devices in its
// nodes, and of their machines.
package top

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/live"
	"github.com/rackless/rackless/report/show"
)

// A Reading holds the counters of a lab at one moment. Parts that could not be read have an error instead.
type Reading struct {
	Lab         string
	Accelerator string
	Emulated    bool // the nodes or their adapters are emulated
	At          time.Time
	Nodes       []Machine

	Fabric    *live.Fabric // nil without a switch, or if it could not be read
	FabricErr error
	RDMA      []live.NodeRDMA // read more rarely than the rest, because it costs the nodes CPU time
	RDMAAt    time.Time       // zero if not read yet
	RDMAErr   error
}

// A Machine is the machine of a node.
type Machine struct {
	Name  string
	State string
	CPUs  int
	// CPUTime is the time that its process has used, in seconds, or nil if that is not known.
	CPUTime *float64
}

// A View is a lab with its rates since an earlier reading. Its JSON is the output of rackless top, see docs/json.md. A
// rate is null if it is not known: at first, or if its counter began again.
type View struct {
	Lab         string    `json:"lab"`
	Accelerator string    `json:"accelerator"`
	Emulated    bool      `json:"emulated"`
	At          time.Time `json:"at"`
	Ports       []Port    `json:"ports"`
	Nodes       []Node    `json:"nodes"`
	Notes       []string  `json:"notes,omitempty"` // on parts that could not be read
}

// A Port is a port of the switch. Rx is from the node into the switch, tx from the switch to the node.
type Port struct {
	Name       string   `json:"name"`
	Up         bool     `json:"up"`
	Link       string   `json:"link,omitempty"` // its impairments
	RxRate     *float64 `json:"rx_bits_per_second"`
	TxRate     *float64 `json:"tx_bits_per_second"`
	DropRate   *float64 `json:"drops_per_second"`      // in both directions
	MarkRate   *float64 `json:"ecn_marked_per_second"` // frames to the node that the link marked
	PauseShare *float64 `json:"paused_share"`          // of the time in which PFC held the node
	Queue      int      `json:"queue_bytes"`
	Drops      uint64   `json:"drops"`
	Marks      uint64   `json:"ecn_marked"`
}

// A Node is a node with the rates of all its RDMA devices together.
type Node struct {
	Name  string `json:"name"`
	State string `json:"state"`
	CPUs  int    `json:"cpus"`
	// CPU is the number of CPUs of this machine that the node used, on average.
	CPU     *float64 `json:"used_cpus"`
	CNPSent *float64 `json:"cnps_sent_per_second"`
	CNPs    *float64 `json:"cnps_handled_per_second"`
	Marked  *float64 `json:"ecn_marked_packets_per_second"` // packets that arrived with a mark
	Retries *float64 `json:"retries_per_second"`            // out of sequence, sequence errors and timeouts
	Sent    *float64 `json:"rdma_sent_packets_per_second"`
	Got     *float64 `json:"rdma_received_packets_per_second"`
}

// New returns the view of a reading. before is an earlier one, or nil.
func New(now, before *Reading) *View {
	v := &View{Lab: now.Lab, Accelerator: now.Accelerator, Emulated: now.Emulated, At: now.At, Ports: []Port{},
		Nodes: []Node{}}
	if before == nil {
		before = &Reading{}
	}
	if now.Fabric != nil {
		v.ports(now.Fabric, before.Fabric)
	}
	if now.FabricErr != nil {
		v.Notes = append(v.Notes, "switch: "+words.OneLine(now.FabricErr.Error()))
	}
	v.nodes(now, before)
	return v
}

func (v *View) ports(now, before *live.Fabric) {
	var was map[string]live.Port
	seconds := 0.0
	if before != nil && before.Started.Equal(now.Started) {
		was = lists.By(before.Ports, func(p live.Port) string { return p.Name })
		seconds = now.At.Sub(before.At).Seconds()
	}
	drops := func(p live.Port) uint64 { return p.RxFiltered + p.RxNowhere + p.Drops.Total() }
	for _, p := range now.Ports {
		out := Port{Name: p.Name, Up: p.Connected && !p.Link.Down, Link: p.Impaired, Queue: p.QueueBytes,
			Drops: drops(p), Marks: p.ECNMarked}
		if old, ok := was[p.Name]; ok {
			out.RxRate = rate(8*p.RxBytes, 8*old.RxBytes, seconds)
			out.TxRate = rate(8*p.TxBytes, 8*old.TxBytes, seconds)
			out.DropRate = rate(drops(p), drops(old), seconds)
			out.MarkRate = rate(p.ECNMarked, old.ECNMarked, seconds)
			out.PauseShare = rate(uint64(p.Paused), uint64(old.Paused), seconds*float64(time.Second))
		}
		v.Ports = append(v.Ports, out)
	}
}

// rate returns the increase of a counter per second, or nil if the counter began again.
func rate(now, before uint64, seconds float64) *float64 {
	if seconds <= 0 || now < before {
		return nil
	}
	return new(float64(now-before) / seconds)
}

func (v *View) nodes(now, before *Reading) {
	machines := lists.By(before.Nodes, func(m Machine) string { return m.Name })
	devices := lists.By(now.RDMA, func(n live.NodeRDMA) string { return n.Node })
	earlier := lists.By(before.RDMA, func(n live.NodeRDMA) string { return n.Node })
	seconds := now.At.Sub(before.At).Seconds()
	for _, m := range now.Nodes {
		out := Node{Name: m.Name, State: m.State, CPUs: m.CPUs}
		old, ok := machines[m.Name]
		if ok && m.CPUTime != nil && old.CPUTime != nil && seconds > 0 && *m.CPUTime >= *old.CPUTime {
			out.CPU = new((*m.CPUTime - *old.CPUTime) / seconds)
		}
		if n := devices[m.Name]; n.Err != nil {
			v.Notes = append(v.Notes, fmt.Sprintf("%s: %s", m.Name, words.OneLine(n.Err.Error())))
		}
		if !before.RDMAAt.IsZero() {
			out.rdma(devices[m.Name], earlier[m.Name], now.RDMAAt.Sub(before.RDMAAt).Seconds())
		}
		v.Nodes = append(v.Nodes, out)
	}
	if now.RDMAErr != nil {
		v.Notes = append(v.Notes, "RDMA counters: "+words.OneLine(now.RDMAErr.Error()))
	}
}

func (n *Node) rdma(now, before live.NodeRDMA, seconds float64) {
	of := func(names ...string) *float64 {
		a, ok1 := sum(now, names)
		b, ok2 := sum(before, names)
		if !ok1 || !ok2 {
			return nil
		}
		return rate(a, b, seconds)
	}
	n.CNPSent = of("np_cnp_sent")
	n.CNPs = of("rp_cnp_handled")
	n.Marked = of("np_ecn_marked_roce_packets")
	n.Retries = of("out_of_sequence", "packet_seq_err", "local_ack_timeout_err")
	// Cards count packets of the port, soft RoCE has counters of its own.
	n.Sent = of("port_xmit_packets", "sent_pkts")
	n.Got = of("port_rcv_packets", "rcvd_pkts")
}

// sum adds counters of all devices of a node. ok is false if no device has one of them.
func sum(n live.NodeRDMA, names []string) (total uint64, ok bool) {
	for _, d := range n.Devices {
		for _, name := range names {
			for _, all := range []map[string]uint64{d.Port, d.HW} {
				if value, has := all[name]; has {
					total, ok = total+value, true
				}
			}
		}
	}
	return total, ok
}

// Text returns the view as tables, followed by the notes.
func (v *View) Text() string { return strings.Join(v.lines(), "\n") + "\n" }

func (v *View) lines() []string {
	how := v.Accelerator
	if v.Emulated {
		how = "emulated, " + how
	}
	lines := []string{fmt.Sprintf("lab %s (%s), %s", v.Lab, how, v.At.Format(time.TimeOnly)), ""}
	if len(v.Ports) > 0 {
		g := show.NewGrid("port", "link", "rx>", "tx>", "drops/s>", "marks/s>", "paused>", "queue>", "drops>", "set")
		for _, p := range v.Ports {
			link := "down"
			if p.Up {
				link = "up"
			}
			paused := ""
			if p.PauseShare != nil {
				paused = fmt.Sprintf("%.0f%%", 100**p.PauseShare)
			}
			g.Add(p.Name, link, bits(p.RxRate), bits(p.TxRate), perSecond(p.DropRate), perSecond(p.MarkRate), paused,
				words.Bytes(p.Queue), count(p.Drops), p.Link)
		}
		lines = append(append(lines, gridLines(g)...), "")
	}
	g := show.NewGrid("node", "state", "cpu>", "of>", "cnp out>", "cnp in>", "ecn/s>", "retry/s>", "rdma out>",
		"rdma in>")
	for _, n := range v.Nodes {
		used := ""
		if n.CPU != nil {
			used = fmt.Sprintf("%.2f", *n.CPU)
		}
		g.Add(n.Name, n.State, used, strconv.Itoa(n.CPUs), perSecond(n.CNPSent), perSecond(n.CNPs), perSecond(n.Marked),
			perSecond(n.Retries), perSecond(n.Sent), perSecond(n.Got))
	}
	lines = append(lines, gridLines(g)...)
	if len(v.Notes) > 0 {
		lines = append(append(lines, ""), v.Notes...)
	}
	return lines
}

func gridLines(g *show.Grid) []string {
	return strings.Split(strings.TrimSuffix(g.String(), "\n"), "\n")
}

// Screen returns the view for a terminal: lines that are too long are cut, and lines that do not fit are counted. The
// notes and the last line, which says the keys, are always there.
func (v *View) Screen(width, height int, keys string) []string {
	body := v.lines()
	height = max(height, 4)
	if over := len(body) - (height - 1); over > 0 {
		tail := min(len(v.Notes), height-4)
		notes := v.Notes[len(v.Notes)-tail:]
		body = append(body[:height-2-tail:height-2-tail], fmt.Sprintf("... and %s", words.Count(over+1, "more line")))
		body = append(body, notes...)
	}
	body = append(body, keys)
	return lists.Map(body, func(line string) string { return terminal.Cut(line, width) })
}

func bits(v *float64) string {
	if v == nil {
		return ""
	}
	return words.Rate(*v)
}

// perSecond prints a rate of events, with decimals if it is small.
func perSecond(v *float64) string {
	switch {
	case v == nil:
		return ""
	case *v == 0:
		return "0"
	case *v < 10:
		return strconv.FormatFloat(*v, 'f', 1, 64)
	}
	return count(uint64(*v + 0.5))
}

// count prints a number in at most five characters.
func count(n uint64) string {
	v, units := float64(n), []string{"", "k", "M", "G", "T", "P"}
	for v >= 9999.5 && len(units) > 1 {
		v, units = v/1000, units[1:]
	}
	return strconv.FormatFloat(v, 'f', 0, 64) + units[0]
}
