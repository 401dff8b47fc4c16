//go:build linux

package tables

import (
	"slices"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/show"
)

// A FabricSnapshot is the JSON output of rackless link show, see docs/json.md.
type FabricSnapshot struct {
	Lab       string       `json:"lab"`
	At        time.Time    `json:"at"`
	Started   time.Time    `json:"started"`   // start of the switch and of its counters
	Addresses int          `json:"addresses"` // learned MAC addresses
	Captures  int          `json:"captures"`  // captures that run
	Ports     []FabricPort `json:"ports"`
}

// A FabricPort is a port of the switch. Rx is from the node into the switch.
type FabricPort struct {
	Name       string `json:"name"`
	Switch     string `json:"switch,omitempty"`              // of the port, if there are several
	Peer       string `json:"peer,omitempty"`                // switch at the other end, if it is none of a node
	Rate       int64  `json:"rate_bits_per_second,omitzero"` // of a link between switches, without Link
	Connected  bool   `json:"connected"`
	RxFrames   uint64 `json:"rx_frames"`
	RxBytes    uint64 `json:"rx_bytes"`
	TxFrames   uint64 `json:"tx_frames"`
	TxBytes    uint64 `json:"tx_bytes"`
	RxDrops    uint64 `json:"rx_drops"` // frames that were not forwarded
	TxDrops    uint64 `json:"tx_drops"` // frames that did not reach it
	QueueBytes int    `json:"queue_bytes"`
	QueuePeak  int    `json:"queue_peak_bytes"`
	Reconnects uint64 `json:"reconnects"`

	// Link is omitted if unimpaired.
	Link       fabric.Link `json:"link,omitzero"`
	InFlight   int         `json:"in_flight_bytes"`
	BufferFull uint64      `json:"buffer_full"` // part of TxDrops, like Lost
	Lost       uint64      `json:"lost"`
	Reordered  uint64      `json:"reordered"`
	ECNMarked  uint64      `json:"ecn_marked"`
	Pauses     uint64      `json:"pauses"` // for a slow PFC receiver
	Paused     float64     `json:"paused_seconds"`

	// Rates since the previous snapshot; absent in the first.
	RxRate *float64 `json:"rx_bits_per_second,omitempty"`
	TxRate *float64 `json:"tx_bits_per_second,omitempty"`
}

// DescribeFabric reads counters, with rates since an earlier snapshot of the same switch.
func DescribeFabric(name string, c fabric.Counters, before *FabricSnapshot) *FabricSnapshot {
	out := &FabricSnapshot{Lab: name, At: c.At, Started: c.Started, Addresses: c.Addresses, Captures: c.Captures,
		Ports: []FabricPort{}}
	var was map[string]FabricPort
	var elapsed float64 // seconds
	if before != nil && before.Started.Equal(c.Started) {
		elapsed = c.At.Sub(before.At).Seconds()
		was = lists.By(before.Ports, func(p FabricPort) string { return p.Name })
	}
	for _, p := range c.Ports {
		f := FabricPort{Name: p.Name, Connected: p.Connected, RxFrames: p.RxFrames, RxBytes: p.RxBytes,
			TxFrames: p.TxFrames, TxBytes: p.TxBytes, RxDrops: p.RxFiltered + p.RxNowhere, TxDrops: p.Drops.Total(),
			QueueBytes: p.QueueBytes, QueuePeak: p.QueuePeak, Link: p.Link, InFlight: p.InFlight,
			BufferFull: p.Drops.BufferFull, Lost: p.Drops.Lost, Reordered: p.Reordered, ECNMarked: p.ECNMarked,
			Pauses: p.Pauses, Paused: p.Paused.Seconds()}
		if f.Switch, f.Peer = p.Switch, p.Peer; p.Peer != "" {
			f.Rate = p.Rate
		}
		// The first connection is no reconnect.
		if p.Connects > 0 {
			f.Reconnects = p.Connects - 1
		}
		// A port that was added again counts from zero.
		if o, ok := was[p.Name]; ok && elapsed > 0 && p.RxBytes >= o.RxBytes && p.TxBytes >= o.TxBytes {
			rx, tx := 8*float64(p.RxBytes-o.RxBytes)/elapsed, 8*float64(p.TxBytes-o.TxBytes)/elapsed
			f.RxRate, f.TxRate = &rx, &tx
		}
		out.Ports = append(out.Ports, f)
	}
	return out
}

// Text returns a drawing of several switches, a table of the nodes' ports, and one of impaired links.
func (s *FabricSnapshot) Text() string {
	text := s.drawing()
	if text != "" {
		text += "\n"
	}
	text += fabricGrid(s).String()
	if g := impairedGrid(s.Ports); g != nil {
		text += "\n" + g.String()
	}
	return text
}

// fabricGrid has exact frames, because users compare them, and rounded bytes. Rates have columns if known.
func fabricGrid(out *FabricSnapshot) *show.Grid {
	head := []string{"port", "link", "rx frames>", "rx bytes>", "tx frames>", "tx bytes>", "drops>", "queue>"}
	rates := slices.ContainsFunc(out.Ports, func(p FabricPort) bool { return p.RxRate != nil })
	if rates {
		head = append(head, "rx rate>", "tx rate>")
	}
	g := show.NewGrid(head...)
	rate := func(r *float64) string {
		if r == nil {
			return ""
		}
		return words.Rate(*r)
	}
	for _, p := range out.Ports {
		if p.Peer != "" {
			continue
		}
		row := []string{p.Name, linkState(p), strconv.FormatUint(p.RxFrames, 10), words.Bytes(p.RxBytes),
			strconv.FormatUint(p.TxFrames, 10), words.Bytes(p.TxBytes),
			strconv.FormatUint(p.RxDrops+p.TxDrops, 10), words.Bytes(p.QueueBytes)}
		if rates {
			row = append(row, rate(p.RxRate), rate(p.TxRate))
		}
		g.Add(row...)
	}
	return g
}

// Links are the JSON output of rackless link set, see docs/json.md.
type Links struct {
	Lab   string            `json:"lab"`
	Ports []fabric.PortLink `json:"ports"` // in the order of addition
}

// DescribeLinks returns the links of c.
func DescribeLinks(name string, c fabric.Counters) *Links {
	out := &Links{Lab: name, Ports: []fabric.PortLink{}}
	for _, p := range c.Ports {
		out.Ports = append(out.Ports, fabric.PortLink{Name: p.Name, Link: p.Link})
	}
	return out
}

// Text returns a row for each port, in the format of the flags, with the settings of any port as columns.
func (l *Links) Text() string {
	if !slices.ContainsFunc(l.Ports, func(p fabric.PortLink) bool { return p.Link != (fabric.Link{}) }) {
		return "nothing is set on the links of lab " + words.Plain(l.Lab) + "\n"
	}
	g := show.NewGrid(append(linkHead(), "link")...)
	for _, p := range l.Ports {
		state := ""
		if p.Link.Down {
			state = "set down"
		}
		g.Add(append(append([]string{p.Name}, linkCells(p.Link)...), state)...)
	}
	return g.WithoutEmpty().String()
}

// linkHead is named after the flags of rackless link set.
func linkHead() []string {
	head := []string{"port"}
	head = append(head, lists.Map(fabric.LinkKeys(), func(key string) string { return key + ">" })...)
	return head
}

func linkCells(l fabric.Link) []string {
	var cells []string
	for _, key := range fabric.LinkKeys() {
		text := l.Get(key)
		// Zeros would hide the one or two settings of a link.
		if text == "0" {
			text = ""
		}
		cells = append(cells, text)
	}
	return cells
}

// impairedGrid may be nil. It includes ports with paused senders.
func impairedGrid(ports []FabricPort) *show.Grid {
	g := show.NewGrid(append(linkHead(), "buffer full>", "lost>", "reordered>", "marked>", "held>")...)
	// A receiver that pauses senders counts, although it is no setting.
	for _, p := range ports {
		if !p.Link.Impaired() && p.Pauses == 0 {
			continue
		}
		n := func(v uint64) string { return strconv.FormatUint(v, 10) }
		cells := append([]string{p.Name}, linkCells(p.Link)...)
		g.Add(append(cells, n(p.BufferFull), n(p.Lost), n(p.Reordered), n(p.ECNMarked),
			words.Seconds(time.Duration(p.Paused*float64(time.Second))))...)
	}
	if g.Empty() {
		return nil
	}
	return g.WithoutEmpty()
}
