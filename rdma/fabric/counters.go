package fabric

import "time"

// Counters is a snapshot, taken between two reads, so that it contains all changes of a frame or none.
type Counters struct {
	At        time.Time      `json:"at"`
	Started   time.Time      `json:"started"`
	Addresses int            `json:"addresses"` // known MAC addresses
	Captures  int            `json:"captures"`  // running captures
	Ports     []PortCounters `json:"ports"`     // in the order of addition
}

// PortCounters count since a port's addition, across reconnects. Rx is from the node into the switch. Bytes are without
// FCS and length prefix. Frames of Plug.Copied count, too.
type PortCounters struct {
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	Rate      int64     `json:"rate_bits_per_second,omitzero"` // of a NIC that obeys pauses
	MAC       string    `json:"mac,omitempty"`                 // of its NIC, if told
	Switch    string    `json:"switch,omitempty"`              // of the port, if there are several
	Peer      string    `json:"peer,omitempty"`                // the switch at the other end, of a link between two
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`      // Connected's last change, or the addition
	Connects  uint64    `json:"connects"`   // accepted connections
	Replaced  uint64    `json:"replaced"`   // connections replaced by newer ones
	BadFrames uint64    `json:"bad_frames"` // wrong prefixes; each ended a connection

	RxFrames uint64 `json:"rx_frames"`
	RxBytes  uint64 `json:"rx_bytes"`
	TxFrames uint64 `json:"tx_frames"` // completely written to the socket
	TxBytes  uint64 `json:"tx_bytes"`

	RxFlooded  uint64 `json:"rx_flooded"`  // rx sent to all ports: broadcast, multicast or unknown address
	RxFiltered uint64 `json:"rx_filtered"` // rx whose receiver is behind the same port
	RxNowhere  uint64 `json:"rx_nowhere"`  // rx to flood without other ports, or of a down port
	Drops      Drops  `json:"drops"`

	// Addresses learned on this port, including aged ones until their room is needed
	Addresses  int    `json:"addresses"`
	Unlearned  uint64 `json:"unlearned"`   // rx of sources beyond the limit of addresses
	Moves      uint64 `json:"moves"`       // addresses from another port
	Foreign    uint64 `json:"foreign"`     // rx from the address of another machine's NIC
	QueueBytes int    `json:"queue_bytes"` // waiting for the node, with prefixes
	QueuePeak  int    `json:"queue_peak"`  // maximum of waiting bytes
	Reads      uint64 `json:"reads"`       // system calls
	Writes     uint64 `json:"writes"`      // system calls

	Link      Link   `json:"link,omitzero"`   // to the node; omitted without impairments and seed
	InFlight  int    `json:"in_flight_bytes"` // delayed by the link, with prefixes
	Reordered uint64 `json:"reordered"`       // overtook others on the link
	ECNMarked uint64 `json:"ecn_marked"`      // frames that the link marked
	// Pauses counts how often the node was held because a receiver with PFC did not keep up: its socket was not read,
	// or its NIC was paused
	Pauses      uint64        `json:"pauses"`
	Paused      time.Duration `json:"paused_ns"`    // total time of the pauses
	PauseFrames uint64        `json:"pause_frames"` // to its NIC, also in tx_frames
}

// Drops counts frames that did not reach a port's node.
type Drops struct {
	QueueFull    uint64 `json:"queue_full"`   // because the node did not read
	Disconnected uint64 `json:"disconnected"` // before the frame was sent
	BufferFull   uint64 `json:"buffer_full"`  // of the impaired link
	Lost         uint64 `json:"lost"`         // by the link's loss
}

// Total returns the frames dropped for any reason.
func (d Drops) Total() uint64 { return d.QueueFull + d.Disconnected + d.BufferFull + d.Lost }

// snapshot must run in the loop.
func (b *bridge) snapshot() Counters {
	now := b.now()
	c := Counters{
		At:        now,
		Started:   b.started,
		Addresses: b.table.size(now.UnixNano()),
		Captures:  len(b.taps),
		Ports:     make([]PortCounters, 0, len(b.ports)),
	}
	for _, p := range b.ports {
		pc := p.counters
		pc.Name, pc.Path, pc.Rate, pc.MAC = p.Name, p.Path, p.Rate, p.MAC
		pc.RxFrames, pc.RxBytes = pc.RxFrames+p.copied[0].Load(), pc.RxBytes+p.copied[1].Load()
		pc.TxFrames, pc.TxBytes = pc.TxFrames+p.copied[2].Load(), pc.TxBytes+p.copied[3].Load()
		pc.Addresses = p.macs
		pc.Link = p.link
		if p.shape != nil {
			pc.QueueBytes = p.shape.waiting()
			pc.InFlight = p.shape.flight.bytes
		}
		if b.net != nil {
			pc.Switch = b.net.name(p.sw)
		}
		if p.between() {
			pc.Peer = b.net.name(p.far.sw)
		}
		if p.conn != nil {
			pc.Connected = !p.between() || p.alive()
			pc.QueueBytes += p.conn.queue.bytes
			if p.conn.held() != 0 {
				pc.Paused += time.Duration(b.mono() - p.conn.heldSince)
			}
		}
		c.Ports = append(c.Ports, pc)
	}
	return c
}
