package fabric

import "time"

// Counters is a snapshot of the switch, taken between two reads: what one frame changed is either
// all in it or not at all.
type Counters struct {
	At        time.Time      `json:"at"`
	Started   time.Time      `json:"started"`
	Addresses int            `json:"addresses"` // MAC addresses known
	Captures  int            `json:"captures"`  // captures running
	Ports     []PortCounters `json:"ports"`     // in the order in which they were added
}

// PortCounters is what one port did since it was added. Counts go on over reconnects. Rx is from the node into
// the switch, tx from the switch to the node. Bytes are Ethernet bytes without FCS and without the length prefix.
// Frames that NICs of the switch's process did not need to send are among them: see Plug.Copied.
type PortCounters struct {
	Name      string    `json:"name"`
	Path      string    `json:"path"`
	Rate      int64     `json:"rate_bits_per_second,omitzero"` // of a NIC that obeys pauses
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since"`      // when Connected last changed; when the port was added if it never did
	Connects  uint64    `json:"connects"`   // connections accepted
	Replaced  uint64    `json:"replaced"`   // connections pushed out by a newer one
	BadFrames uint64    `json:"bad_frames"` // wrong length prefixes; each cost the port its connection

	RxFrames uint64 `json:"rx_frames"`
	RxBytes  uint64 `json:"rx_bytes"`
	TxFrames uint64 `json:"tx_frames"` // handed to the node's socket to the last byte
	TxBytes  uint64 `json:"tx_bytes"`

	RxFlooded  uint64 `json:"rx_flooded"`  // rx frames sent to all ports: broadcast, multicast or unknown address
	RxFiltered uint64 `json:"rx_filtered"` // rx frames not forwarded as their receiver is behind the same port
	RxNowhere  uint64 `json:"rx_nowhere"`  // rx frames to flood while no other port was connected, or of a shut port
	Drops      Drops  `json:"drops"`

	// MAC addresses learned on this port, aged ones included until their room is needed
	Addresses  int    `json:"addresses"`
	Unlearned  uint64 `json:"unlearned"`   // rx frames whose source was not learned as the port has too many addresses
	Moves      uint64 `json:"moves"`       // addresses taken over from another port
	QueueBytes int    `json:"queue_bytes"` // waiting for the node now, prefixes included
	QueuePeak  int    `json:"queue_peak"`  // most that ever waited
	Reads      uint64 `json:"reads"`       // system calls that read from the node
	Writes     uint64 `json:"writes"`      // system calls that wrote to the node

	Link      Link   `json:"link,omitzero"`   // to the node; left out if it has no impairments and no seed
	InFlight  int    `json:"in_flight_bytes"` // on the way for the link's delay now, prefixes included
	Reordered uint64 `json:"reordered"`       // frames that overtook others on the link
	ECNMarked uint64 `json:"ecn_marked"`      // frames that the link marked
	// how often the node was held as a receiver with PFC did not keep up: it was not read from, or its NIC was paused
	Pauses      uint64        `json:"pauses"`
	Paused      time.Duration `json:"paused_ns"`    // for how long in all
	PauseFrames uint64        `json:"pause_frames"` // sent to its NIC, counted by tx_frames too
}

// Drops counts the frames for a port that did not reach its node, by reason.
type Drops struct {
	QueueFull    uint64 `json:"queue_full"`   // the node did not read and its queue was at the limit
	Disconnected uint64 `json:"disconnected"` // the connection ended before the frame was sent
	BufferFull   uint64 `json:"buffer_full"`  // the buffer of the impaired link was full
	Lost         uint64 `json:"lost"`         // by the link's loss
}

// Total is the number of frames dropped for any reason.
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
		pc.Name, pc.Path, pc.Rate = p.Name, p.Path, p.Rate
		pc.RxFrames, pc.RxBytes = pc.RxFrames+p.copied[0].Load(), pc.RxBytes+p.copied[1].Load()
		pc.TxFrames, pc.TxBytes = pc.TxFrames+p.copied[2].Load(), pc.TxBytes+p.copied[3].Load()
		pc.Addresses = p.macs
		pc.Link = p.link
		if p.shape != nil {
			pc.QueueBytes = p.shape.waiting()
			pc.InFlight = p.shape.flight.bytes
		}
		if p.conn != nil {
			pc.Connected = true
			pc.QueueBytes += p.conn.queue.bytes
			if p.conn.held() != 0 {
				pc.Paused += time.Duration(b.mono() - p.conn.heldSince)
			}
		}
		c.Ports = append(c.Ports, pc)
	}
	return c
}
