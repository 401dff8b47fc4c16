package simulate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rackless/rackless/rdma/roce"
)

// noData follows the headers, as far as a packet has data or a checksum: without a byte of them, tshark says that the
// packet is malformed.
var noData [4]byte

// A Capture writes the packets of a link in both directions as pcapng, each when it is complete at the other end of
// the link. Packets have their headers only; their length on the cable is as with data.
type Capture struct {
	link  string
	buf   *bufio.Writer
	ng    *pcapgo.NgWriter
	frame []byte
	err   error // the first one; nothing is written after it
}

// NewCapture captures a link of the next run of a configuration: that of a host, or of a port of a switch such as
// s0:2.
func NewCapture(c *Config, link string, w io.Writer) (*Capture, error) {
	if c.Level == FlowLevel {
		return nil, errors.New("a simulation with level: flow has no packets")
	}
	l := c.Topology.layout()
	ports := l.ports()
	if !slices.ContainsFunc(l.hosts, func(h attached) bool { return h.name == link }) && !isPort(link, ports) {
		return nil, fmt.Errorf("no such link: %q (want a host such as %s, or a port of a switch such as s0:%d)", link,
			l.hosts[0].name, ports[0]-1)
	}
	k := &Capture{link: link, buf: bufio.NewWriterSize(w, 256<<10)}
	c.capture = k
	return k, nil
}

// open writes the head of the file, and lets both directions of the link report their packets.
func (k *Capture) open(n *network) {
	for _, p := range n.ports {
		here, there := p.name, ""
		var back *link
		if h := p.out.host; h != nil {
			there, back = h.name, h.out
		} else {
			there, back = p.out.port.name, p.out.port.out
		}
		if here != k.link && there != k.link {
			continue
		}
		for i, l := range []*link{p.out, back} {
			l.tap, l.way = k, i
		}
		k.begin(here+" to "+there, there+" to "+here)
		return
	}
}

// begin writes the head of a file with an interface for each direction.
func (k *Capture) begin(names ...string) {
	for _, name := range names {
		ng := pcapgo.NgInterface{Name: name, LinkType: layers.LinkTypeEthernet,
			SnapLength: uint32(maxHead + len(noData)), TimestampResolution: 9} // nanoseconds
		switch {
		case k.err != nil:
		case k.ng == nil:
			k.ng, k.err = pcapgo.NewNgWriterInterface(k.buf, ng, pcapgo.NgWriterOptions{
				SectionInfo: pcapgo.NgSectionInfo{Application: "rackless simulate"}})
		default:
			_, k.err = k.ng.AddInterface(ng)
		}
	}
}

// packet writes a packet at a time of the simulation.
func (k *Capture) packet(now int64, way int, p *packet) {
	if k.err != nil {
		return
	}
	frame := p.data()
	full := max(len(frame), roce.FullSize(frame))
	k.frame = append(k.frame[:0], frame...)
	k.frame = append(k.frame, noData[:min(len(noData), full-len(frame))]...)
	k.err = k.ng.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(0, now), CaptureLength: len(k.frame),
		Length: full, InterfaceIndex: way}, k.frame)
}

// Close writes the rest, and returns the first error.
func (k *Capture) Close() error {
	if k.err == nil && k.ng != nil {
		k.err = k.ng.Flush()
	}
	if k.err == nil {
		k.err = k.buf.Flush()
	}
	return k.err
}
