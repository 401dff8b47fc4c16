package links

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/rackless/rackless/internal/words"
)

// A Neighbour is the other end of a cable, as it describes itself by LLDP.
type Neighbour struct {
	System string `json:"system,omitempty"` // name of the switch
	Port   string `json:"port,omitempty"`
	// Chassis identifies the switch if it has no name.
	Chassis string `json:"chassis,omitempty"`
}

// String returns the neighbour in a few words: "leaf1 Ethernet1/7".
func (n Neighbour) String() string {
	name := n.System
	if name == "" {
		name = n.Chassis
	}
	return words.Printable(strings.TrimSpace(name + " " + n.Port))
}

// Types of TLVs and subtypes of IDs. Source: IEEE 802.1AB-2016, sections 8.4 and 8.5.
const (
	tlvEnd         = 0
	tlvChassis     = 1
	tlvPort        = 2
	tlvPortText    = 4
	tlvSystem      = 5
	chassisMAC     = 4
	chassisAddress = 5
	portMAC        = 3
	portAddress    = 4
)

// parseLLDP reads a frame of LLDP. ok is false for other frames and damaged ones.
func parseLLDP(frame []byte) (n Neighbour, ok bool) {
	if len(frame) < headerSize || binary.BigEndian.Uint16(frame[12:]) != etherTypeLLDP {
		return n, false
	}
	text := ""
	for b := frame[headerSize:]; len(b) >= 2; {
		head := binary.BigEndian.Uint16(b)
		kind, size := head>>9, int(head&0x1ff)
		if b = b[2:]; size > len(b) {
			return n, false
		}
		value := b[:size]
		b = b[size:]
		switch kind {
		case tlvEnd:
			b = nil
		case tlvChassis:
			n.Chassis = lldpID(value, chassisMAC, chassisAddress)
		case tlvPort:
			n.Port = lldpID(value, portMAC, portAddress)
		case tlvPortText:
			text = string(value)
		case tlvSystem:
			n.System = string(value)
		}
	}
	// A port that names itself by its MAC address usually describes itself better.
	if _, err := net.ParseMAC(n.Port); err == nil && text != "" {
		n.Port = text
	}
	return n, n.Chassis != "" && n.Port != ""
}

// lldpID returns an ID after its subtype.
func lldpID(value []byte, mac, address byte) string {
	if len(value) < 2 {
		return ""
	}
	id := value[1:]
	switch {
	case value[0] == mac && len(id) == 6:
		return net.HardwareAddr(id).String()
	case value[0] == address && len(id) > 1: // after the family
		if a, ok := netip.AddrFromSlice(id[1:]); ok {
			return a.String()
		}
	}
	return string(id)
}

// ParseLLDPCtl reads the output of "lldpctl -f json0". The result has the network devices as keys.
func ParseLLDPCtl(text []byte) (map[string]Neighbour, error) {
	type value struct {
		Value string `json:"value"`
	}
	var doc struct {
		LLDP []struct {
			Interface []struct {
				Name    string `json:"name"`
				Chassis []struct {
					ID   []value `json:"id"`
					Name []value `json:"name"`
				} `json:"chassis"`
				Port []struct {
					ID    []value `json:"id"`
					Descr []value `json:"descr"`
				} `json:"port"`
			} `json:"interface"`
		} `json:"lldp"`
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("lldpctl -f json0: %w", err)
	}
	first := func(v []value) string {
		if len(v) == 0 {
			return ""
		}
		return v[0].Value
	}
	out := map[string]Neighbour{}
	for _, l := range doc.LLDP {
		for _, i := range l.Interface {
			var n Neighbour
			for _, c := range i.Chassis {
				n.Chassis, n.System = first(c.ID), first(c.Name)
			}
			for _, p := range i.Port {
				n.Port = first(p.ID)
				if _, err := net.ParseMAC(n.Port); err == nil && first(p.Descr) != "" {
					n.Port = first(p.Descr)
				}
			}
			if i.Name != "" && n != (Neighbour{}) {
				out[i.Name] = n
			}
		}
	}
	return out, nil
}
