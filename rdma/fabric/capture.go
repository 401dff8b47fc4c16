package fabric

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rackless/rackless/internal/atomicfile"
)

// tapLimit limits captured bytes that wait. Memory holds twice as much, because one batch fills while the other is
// written.
const tapLimit = 8 << 20

// recordOverhead makes the limit count for tiny frames too.
const recordOverhead = 64

// A tap copies frames into memory for a capture. If the batch is full, they are counted as missed and forwarded as
// usual.
type tap struct {
	only    *port // nil for all ports of nodes
	snaplen int
	wake    chan struct{} // has a token if there may be something to write

	mu     sync.Mutex
	batch  batch
	ifaces []*iface // in pcapng order; only grows
	index  map[*port]int
}

// A batch holds the frames since the writer's last swap.
type batch struct {
	records []record
	data    []byte // concatenated frames of records
}

type record struct {
	iface    int
	at       int64 // Unix nanoseconds
	captured int   // bytes in data
	length   int   // bytes on the wire
}

// An iface is a port in pcapng. The difference of seen and captured frames is missing.
type iface struct {
	name           string
	seen, captured uint64 // frames
}

// newTap starts a capture at one port, or at all. It must run in the loop.
func (b *bridge) newTap(name string, snaplen int) (*tap, error) {
	t := &tap{snaplen: snaplen, wake: make(chan struct{}, 1), index: make(map[*port]int)}
	if name != AllPorts {
		i := b.portIndex(name)
		if i < 0 {
			return nil, fmt.Errorf("capture: the switch has no port %q", name)
		}
		t.only = b.ports[i]
	}
	if !slices.ContainsFunc(b.ports, t.wants) {
		return nil, fmt.Errorf("capture: the switch has no ports: add one first")
	}
	for _, p := range b.ports {
		t.addPort(p)
	}
	t.signal() // writes the stream's head, for which a viewer waits
	b.taps = append(b.taps, t)
	b.tellDirect()
	return t, nil
}

// removeTap must run in the loop.
func (b *bridge) removeTap(t *tap) {
	b.taps = slices.DeleteFunc(b.taps, func(o *tap) bool { return o == t })
	b.tellDirect()
}

// wants reports whether a capture has the frames of a port. That of a link between switches has both directions.
func (t *tap) wants(p *port) bool {
	if t.only == nil {
		return !p.between()
	}
	return t.only == p || t.only.far == p && p.between()
}

// addPort runs in the loop.
func (t *tap) addPort(p *port) {
	if !t.wants(p) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index[p] = len(t.ifaces)
	t.ifaces = append(t.ifaces, &iface{name: p.Name})
}

// capture runs in the loop and never waits for output, because the writer holds the lock only to swap batches.
func (t *tap) capture(p *port, at int64, frame []byte) {
	if !t.wants(p) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.index[p]
	t.ifaces[i].seen++
	n := min(len(frame), t.snaplen)
	if len(t.batch.data)+n+recordOverhead*len(t.batch.records) > tapLimit {
		return
	}
	t.ifaces[i].captured++
	t.batch.records = append(t.batch.records, record{i, at, n, len(frame)})
	t.batch.data = append(t.batch.data, frame[:n]...)
}

// signal wakes the writer once for all frames of a read.
func (t *tap) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *tap) swap(empty batch) (batch, []iface) {
	t.mu.Lock()
	defer t.mu.Unlock()
	full := t.batch
	t.batch = batch{empty.records[:0], empty.data[:0]}
	ifaces := make([]iface, len(t.ifaces))
	for i, f := range t.ifaces {
		ifaces[i] = *f
	}
	return full, ifaces
}

type tapWriter struct {
	tap     *tap
	snaplen int
	buf     *bufio.Writer
	ng      *pcapgo.NgWriter
	known   int
}

func newTapWriter(t *tap, w io.Writer) *tapWriter {
	// NgWriter's own bufio.Writer has 4 KiB and would make a system call for each frame.
	return &tapWriter{tap: t, snaplen: t.snaplen, buf: bufio.NewWriterSize(w, 256<<10)}
}

func (w *tapWriter) interfaces(ifaces []iface) error {
	for _, f := range ifaces[w.known:] {
		ng := pcapgo.NgInterface{Name: f.name, LinkType: layers.LinkTypeEthernet, SnapLength: uint32(w.snaplen),
			TimestampResolution: 9} // nanoseconds
		var err error
		if w.ng == nil {
			opts := pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "rackless",
				OS: "linux"}}
			w.ng, err = pcapgo.NewNgWriterInterface(w.buf, ng, opts)
		} else {
			_, err = w.ng.AddInterface(ng)
		}
		if err != nil {
			return err
		}
		w.known++
	}
	return nil
}

// run writes until done is closed, then the rest and the statistics. The last swap must come after remove has removed
// the tap from the loop.
func (w *tapWriter) run(done <-chan struct{}, remove func(), now func() time.Time) error {
	var b batch
	for more := true; more; {
		select {
		case <-w.tap.wake:
		case <-done:
			remove()
			more = false
		}
		var ifaces []iface
		b, ifaces = w.tap.swap(b)
		if err := w.packets(b, ifaces); err != nil {
			remove()
			return err
		}
		if !more {
			return w.statistics(ifaces, now())
		}
	}
	return nil
}

func (w *tapWriter) packets(b batch, ifaces []iface) error {
	if err := w.interfaces(ifaces); err != nil {
		return err
	}
	data := b.data
	for _, r := range b.records {
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(0, r.at), CaptureLength: r.captured, Length: r.length,
			InterfaceIndex: r.iface}
		if err := w.ng.WritePacket(ci, data[:r.captured]); err != nil {
			return err
		}
		data = data[r.captured:]
	}
	return w.ng.Flush()
}

func (w *tapWriter) statistics(ifaces []iface, now time.Time) error {
	for i, f := range ifaces {
		st := pcapgo.NgInterfaceStatistics{LastUpdate: now, PacketsReceived: f.seen,
			PacketsDropped: f.seen - f.captured}
		if err := w.ng.WriteInterfaceStats(i, st); err != nil {
			return err
		}
	}
	return w.ng.Flush()
}

// CaptureFile creates a capture's file, which must not exist without force. end closes it; with remove, after a failed
// capture, it deletes the new file and keeps the earlier one.
func CaptureFile(name string, force bool) (w io.Writer, end func(remove bool) error, err error) {
	// An existing capture is replaced only at the end of the new one.
	if force {
		file, err := atomicfile.Create(name, 0o644)
		if err != nil {
			return nil, nil, err
		}
		return file, func(remove bool) error {
			if remove {
				return file.Discard()
			}
			return file.Commit()
		}, nil
	}
	// O_EXCL protects a capture that starts at the same time.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, nil, fmt.Errorf("%s exists: --force overwrites it, --out names another", name)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, func(remove bool) error {
		err := file.Close()
		if remove {
			err = errors.Join(err, os.Remove(name))
		}
		return err
	}, nil
}
