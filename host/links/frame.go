package links

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"time"
)

// etherType is the first of the EtherTypes that IEEE 802 leaves for local experiments, which no protocol uses. Source:
// IEEE 802-2014, section 9.2.4.
const etherType = 0x88b5

// etherTypeLLDP is that of IEEE 802.1AB.
const etherTypeLLDP = 0x88cc

const (
	headerSize = 14
	leastFrame = 60 // of Ethernet, without the check sequence
)

var (
	// nearest is the group of the nearest bridge, to which no bridge and no switch forwards. Source: IEEE 802.1Q-2018,
	// table 8-1.
	nearest   = net.HardwareAddr{0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e}
	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

// magic begins each frame's payload.
const magic = "rackless links\n"

// A greeting is the content of a frame.
type greeting struct {
	Run  string `json:"run"`  // random, so that frames of another probe are told apart
	Port int    `json:"port"` // number of the sending port in this probe
	Way  Way    `json:"way"`
}

// frame returns the Ethernet frame of a greeting.
func (g greeting) frame(from net.HardwareAddr) ([]byte, error) {
	to := broadcast
	if g.Way == Cable {
		to = nearest
	}
	text, err := json.Marshal(g)
	if err != nil {
		return nil, err
	}
	if len(from) != 6 {
		return nil, errors.New("the port has no MAC address")
	}
	b := append(append([]byte(nil), to...), from...)
	b = binary.BigEndian.AppendUint16(b, etherType)
	b = append(append(b, magic...), text...)
	return append(b, make([]byte, max(0, leastFrame-len(b)))...), nil
}

// parseGreeting reads a frame. ok is false for frames of others.
func parseGreeting(b []byte) (g greeting, ok bool) {
	if len(b) < headerSize || binary.BigEndian.Uint16(b[12:]) != etherType {
		return g, false
	}
	text, ok := bytes.CutPrefix(b[headerSize:], []byte(magic))
	if !ok {
		return g, false
	}
	// The padding are zeros.
	err := json.Unmarshal(bytes.TrimRight(text, "\x00"), &g)
	return g, err == nil
}

// A socket sends and receives frames at one port.
type socket interface {
	Address() net.HardwareAddr
	Send(frame []byte) error
	// Receive returns the next frame that arrived, or nil if none did before the deadline.
	Receive(deadline time.Time) ([]byte, error)
	Close() error
}
