package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// patience limits waits. Only a failure takes that long.
const patience = time.Minute

type testSwitch struct {
	testing.TB
	bridge *bridge
	dir    string
	client *Client
	stop   func() // checks that nothing is left; Cleanup calls it
}

func start(t testing.TB, ports int, change func(*Config)) *testSwitch {
	t.Helper()
	before := runtime.NumGoroutine()
	s := &testSwitch{TB: t, dir: t.TempDir()}
	ready := make(chan struct{})
	cfg := Config{
		Control: filepath.Join(s.dir, "control"),
		Log:     slog.New(slog.NewTextHandler(testLog{t}, nil)),
		ready:   func(b *bridge) { s.bridge = b; close(ready) },
	}
	for i := range ports {
		cfg.Ports = append(cfg.Ports, s.port(fmt.Sprintf("p%d", i)))
	}
	if change != nil {
		change(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, cfg) }()
	select {
	case <-ready:
	case err := <-done:
		cancel()
		t.Fatalf("Run: %v", err)
	}
	stopped := false
	s.stop = func() {
		t.Helper()
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		left, err := filepath.Glob(filepath.Join(s.dir, "*"))
		if err != nil || len(left) > 0 {
			t.Errorf("after Run: sockets left: %q, %v", left, err)
		}
		for end := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
			if time.Now().After(end) {
				stacks := make([]byte, 64<<10)
				t.Fatalf("after Run: %d goroutines, want %d:\n%s", runtime.NumGoroutine(), before,
					stacks[:runtime.Stack(stacks, true)])
			}
		}
	}
	t.Cleanup(s.stop)
	var err error
	if s.client, err = Dial(cfg.Control); err != nil {
		t.Fatal(err)
	}
	return s
}

type testLog struct{ testing.TB }

func (l testLog) Write(b []byte) (int, error) {
	l.Logf("%s", bytes.TrimSpace(b))
	return len(b), nil
}

func (s *testSwitch) port(name string) Port {
	return Port{Name: name, Path: filepath.Join(s.dir, name+".sock")}
}

func (s *testSwitch) counters() Counters {
	s.Helper()
	c, err := s.client.Counters(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *testSwitch) portCounters(name string) PortCounters {
	s.Helper()
	for _, p := range s.counters().Ports {
		if p.Name == name {
			return p
		}
	}
	s.Fatalf("no port %q", name)
	return PortCounters{}
}

func (s *testSwitch) until(what, name string, ok func(PortCounters) bool) PortCounters {
	s.Helper()
	for end := time.Now().Add(patience); ; {
		p := s.portCounters(name)
		if ok(p) {
			return p
		}
		if time.Now().After(end) {
			s.Fatalf("port %s: waited in vain: %s: %+v", name, what, p)
		}
	}
}

// A node is like QEMU's stream netdev.
type node struct {
	*testSwitch
	name string
	conn *net.UnixConn
	in   []byte
}

func (s *testSwitch) attach(name string) *node {
	s.Helper()
	before := s.portCounters(name).Connects
	conn, err := net.Dial("unix", s.port(name).Path)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	s.until("connected", name, func(p PortCounters) bool { return p.Connects > before && p.Connected })
	return &node{testSwitch: s, name: name, conn: conn.(*net.UnixConn)}
}

func attachAll(t testing.TB, ports int, change func(*Config)) (*testSwitch, []*node) {
	t.Helper()
	s := start(t, ports, change)
	nodes := make([]*node, ports)
	for i := range nodes {
		nodes[i] = s.attach(fmt.Sprintf("p%d", i))
	}
	return s, nodes
}

// frame returns a payload that begins with tag and depends on it.
func frame(dst, src mac, size int, tag uint32) []byte {
	f := make([]byte, size)
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(dst)<<16)
	copy(f, b[:6])
	binary.BigEndian.PutUint64(b[:], uint64(src)<<16)
	copy(f[6:], b[:6])
	f[12], f[13] = 0x88, 0xb5 // IEEE 802: local experimental
	for i := minFrame; i < size; i++ {
		f[i] = byte(tag >> (8 * (3 - i%4)))
	}
	return f
}

// station returns a locally administered unicast address.
func station(n int) mac { return 0x02_00_00_00_00_00 + mac(n) }

const broadcast mac = 0xff_ff_ff_ff_ff_ff

func framed(frames ...[]byte) []byte {
	var b []byte
	for _, f := range frames {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

func (n *node) send(frames ...[]byte) {
	n.Helper()
	n.write(framed(frames...))
}

func (n *node) write(b []byte) {
	n.Helper()
	if _, err := n.conn.Write(b); err != nil {
		n.Fatalf("%s: %v", n.name, err)
	}
}

func (n *node) receive() ([]byte, error) {
	if err := n.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	for {
		size, err := nextFrame(n.in)
		if err != nil {
			return nil, err
		}
		if size > 0 {
			f := n.in[prefixLen:size]
			n.in = n.in[size:]
			return f, nil
		}
		buf := make([]byte, 256<<10)
		got, err := n.conn.Read(buf)
		if err != nil {
			if err == io.EOF && len(n.in) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		n.in = append(n.in, buf[:got]...)
	}
}

func (n *node) expect(frames ...[]byte) {
	n.Helper()
	for i, want := range frames {
		got, err := n.receive()
		if err != nil {
			n.Fatalf("%s: frame %d of %d: %v", n.name, i+1, len(frames), err)
		}
		if !bytes.Equal(got, want) {
			n.Fatalf("%s: frame %d of %d:\n got %d bytes %x...\nwant %d bytes %x...", n.name, i+1, len(frames),
				len(got), got[:min(len(got), 32)], len(want), want[:min(len(want), 32)])
		}
	}
}

func (n *node) expectEnd() {
	n.Helper()
	// A unix stream reports a reset instead of an end if the switch closed it with unread bytes.
	if f, err := n.receive(); err == nil || os.IsTimeout(err) || err == io.ErrUnexpectedEOF {
		n.Fatalf("%s: got %d bytes, %v; want the end of the stream", n.name, len(f), err)
	}
}
