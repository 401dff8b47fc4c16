package fabric

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gopacket/gopacket/pcapgo"
)

type capturing struct {
	*testSwitch
	buf    bytes.Buffer
	cancel context.CancelFunc
	done   chan error
}

func (s *testSwitch) startCapture(opts CaptureOptions) *capturing {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &capturing{testSwitch: s, cancel: cancel, done: make(chan error, 1)}
	s.Cleanup(cancel)
	started := make(chan struct{})
	opts.Started = func() { close(started) }
	go func() { c.done <- s.client.Capture(ctx, opts, &c.buf) }()
	select {
	case <-started:
	case err := <-c.done:
		s.Fatalf("capture: %v", err)
	}
	return c
}

type packet struct {
	Port   string
	Length int
	Data   []byte
}

type statistics struct {
	Port          string
	Seen, Dropped uint64
}

func (c *capturing) end() ([]packet, []statistics) {
	c.Helper()
	c.cancel()
	if err := <-c.done; err != nil {
		c.Fatalf("capture: %v", err)
	}
	return readCapture(c, &c.buf)
}

func readCapture(t testing.TB, from io.Reader) (packets []packet, stats []statistics) {
	t.Helper()
	r, err := pcapgo.NewNgReader(from, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	for {
		data, ci, err := r.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		iface, err := r.Interface(ci.InterfaceIndex)
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(ci.Timestamp); age < 0 || age > patience {
			t.Errorf("time stamp %v is %v ago", ci.Timestamp, age)
		}
		packets = append(packets, packet{iface.Name, ci.Length, data})
	}
	for i := range r.NInterfaces() {
		iface, err := r.Interface(i)
		if err != nil {
			t.Fatal(err)
		}
		st := iface.Statistics
		stats = append(stats, statistics{iface.Name, st.PacketsReceived, st.PacketsDropped})
	}
	return packets, stats
}

func TestCaptureOfAllPortsHasEachFrameOnceWhereItEntered(t *testing.T) {
	s, nodes := attachAll(t, 3, nil)
	c := s.startCapture(CaptureOptions{})
	one := frame(broadcast, station(1), 64, 1)
	nodes[0].send(one)
	nodes[1].expect(one)
	nodes[2].expect(one)
	two := frame(station(1), station(2), 9216, 2)
	nodes[1].send(two)
	nodes[0].expect(two)
	packets, stats := c.end()
	if diff := cmp.Diff([]packet{{"p0", 64, one}, {"p1", 9216, two}}, packets); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]statistics{{"p0", 1, 0}, {"p1", 1, 0}, {"p2", 0, 0}}, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
}

func TestCaptureOfOnePortCutsAtSnaplen(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	c := s.startCapture(CaptureOptions{Port: "p1", Snaplen: 20})
	if got := s.counters().Captures; got != 1 {
		t.Errorf("%d captures running, want 1", got)
	}
	f := frame(broadcast, station(1), 1000, 1)
	nodes[0].send(f)
	nodes[1].expect(f)
	nodes[1].send(f)
	nodes[0].expect(f)
	packets, stats := c.end()
	if diff := cmp.Diff([]packet{{"p1", 1000, f[:20]}}, packets); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]statistics{{"p1", 1, 0}}, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
	if got := s.counters().Captures; got != 0 {
		t.Errorf("after its end: %d captures running, want 0", got)
	}
}

func TestCaptureHasPortsThatAreAddedLater(t *testing.T) {
	s, nodes := attachAll(t, 1, nil)
	c := s.startCapture(CaptureOptions{Port: AllPorts})
	if err := s.client.AddPort(t.Context(), s.port("late")); err != nil {
		t.Fatal(err)
	}
	late := s.attach("late")
	f := frame(broadcast, station(1), 60, 1)
	late.send(f)
	nodes[0].expect(f)
	packets, stats := c.end()
	if diff := cmp.Diff([]packet{{"late", 60, f}}, packets); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]statistics{{"p0", 0, 0}, {"late", 1, 0}}, stats); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
}

func TestCaptureStartsWithTheInterfacesBeforeAnyFrame(t *testing.T) {
	s := start(t, 2, nil)
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.client.Capture(ctx, CaptureOptions{}, w) }()
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil || binary.LittleEndian.Uint32(head) != 0x0a0d0d0a {
		t.Errorf("stream starts with %x, %v; want a pcapng section header", head, err)
	}
	rest := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r)
		rest <- err
	}()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.Close()
	if err := <-rest; err != nil {
		t.Error(err)
	}
}

func TestCaptureIsCompleteWhenTheSwitchStops(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	c := s.startCapture(CaptureOptions{})
	f := frame(broadcast, station(1), 60, 1)
	nodes[0].send(f)
	nodes[1].expect(f)
	s.stop()
	if err := <-c.done; err != nil {
		t.Fatal(err)
	}
	packets, stats := readCapture(t, &c.buf)
	if len(packets) != 1 || len(stats) != 2 {
		t.Errorf("got %d packets and %d statistics, want 1 and 2", len(packets), len(stats))
	}
}

func TestCaptureWithASlowReaderCountsWhatItMissesAndForwardsAll(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	conn, err := net.Dial("unix", filepath.Join(s.dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, `{"command":"capture"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, len(`{"capture":true}`+"\n"))
	if _, err := io.ReadFull(conn, reply); err != nil || string(reply) != `{"capture":true}`+"\n" {
		t.Fatalf("reply %q, %v", reply, err)
	}
	// Without a reader, two batches and the sockets' buffers overflow.
	const size = 9000
	const frames = 4 * tapLimit / size
	for i := range frames {
		f := frame(broadcast, station(1), size, uint32(i))
		nodes[0].send(f)
		nodes[1].expect(f)
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	packets, stats := readCapture(t, conn)
	if stats[0].Seen != frames || stats[0].Dropped == 0 || uint64(len(packets))+stats[0].Dropped != frames {
		t.Errorf("sent %d, in the capture %d, statistics %+v", frames, len(packets), stats)
	}
	if c := s.portCounters("p1"); c.TxFrames != frames || c.Drops.Total() != 0 {
		t.Errorf("forwarded %d of %d, dropped %+v", c.TxFrames, frames, c.Drops)
	}
}

func TestCaptureErrors(t *testing.T) {
	s := start(t, 1, nil)
	empty := start(t, 0, nil)
	tests := []struct {
		name string
		s    *testSwitch
		opts CaptureOptions
		want string
	}{
		{"a port that is not there", s, CaptureOptions{Port: "p9"}, `capture: the switch has no port "p9"`},
		{"a negative length", s, CaptureOptions{Snaplen: -1}, `capture: snaplen -1 is negative`},
		{"no port at all", empty, CaptureOptions{}, `capture: the switch has no ports: add one first`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.s.client.Capture(t.Context(), tt.opts, io.Discard)
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want ...%s", err, tt.want)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestCaptureReportsThatItCannotWrite(t *testing.T) {
	s := start(t, 1, nil)
	done := make(chan error, 1)
	go func() {
		done <- s.client.Capture(t.Context(), CaptureOptions{}, brokenWriter{})
	}()
	if err := <-done; err == nil || !strings.Contains(err.Error(), io.ErrShortWrite.Error()) {
		t.Errorf("got %v, want %v", err, io.ErrShortWrite)
	}
	for end := time.Now().Add(patience); s.counters().Captures > 0; {
		if time.Now().After(end) {
			t.Fatal("the switch did not notice that the client has gone")
		}
	}
}

// roceFrame returns a RoCE v2 "RC SEND Only" packet (opcode 4) with a zero ICRC (InfiniBand Architecture Specification,
// volume 1, section 9.2 and annex A17).
func roceFrame(qp, psn uint32, payload []byte) []byte {
	f := frame(station(2), station(1), minFrame, 0)
	f[12], f[13] = 0x08, 0x00
	bth := []byte{4, 0x40, 0xff, 0xff, 0, byte(qp >> 16), byte(qp >> 8), byte(qp), 0x80, byte(psn >> 16),
		byte(psn >> 8), byte(psn)}
	udp := 8 + len(bth) + len(payload) + 4
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+udp))
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
	f = append(f, ip...)
	f = binary.BigEndian.AppendUint16(f, 0xc000)
	f = binary.BigEndian.AppendUint16(f, 4791)
	f = binary.BigEndian.AppendUint16(f, uint16(udp))
	f = append(f, 0, 0) // no checksum, as allowed for RoCE
	f = append(f, bth...)
	f = append(f, payload...)
	return append(f, 0, 0, 0, 0)
}

// v1Frame returns one of RoCE v1: a global route header after EtherType 0x8915 (annex A16).
func v1Frame(qp, psn uint32, payload []byte) []byte {
	v2 := roceFrame(qp, psn, payload)
	f := frame(station(2), station(1), minFrame, 0)
	f[12], f[13] = 0x89, 0x15
	bth := v2[minFrame+20+8:]
	f = append(f, 0x60, 0, 0, 0, 0, byte(len(bth)), 0x1b, 64)
	f = append(f, make([]byte, 32)...)
	return append(f, bth...)
}

func TestCaptureOfRoCEIsDecodedByTshark(t *testing.T) {
	tshark := needTool(t, "tshark")
	s, nodes := attachAll(t, 2, nil)
	c := s.startCapture(CaptureOptions{})
	f := roceFrame(0x11, 0x123456, []byte("sixteen bytes ok"))
	nodes[0].send(f)
	nodes[1].expect(f)
	nodes[1].send(f)
	nodes[0].expect(f)
	v1 := v1Frame(0x11, 0x123456, []byte("sixteen bytes ok"))
	nodes[0].send(v1)
	nodes[1].expect(v1)
	c.cancel()
	if err := <-c.done; err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "roce.pcapng")
	if err := os.WriteFile(file, c.buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tshark, "-n", "-r", file, "-T", "fields", "-e", "frame.interface_name", "-e", "frame.protocols",
		"-e", "udp.dstport", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.destqp", "-e", "infiniband.bth.psn")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	const bth = "\t4\t0x000011\t1193046"
	for i, want := range []string{"p0\teth:ethertype:ip:udp:infiniband:data\t4791" + bth,
		"p1\teth:ethertype:ip:udp:infiniband:data\t4791" + bth, "p0\teth:ethertype:infiniband:data\t" + bth} {
		if i >= len(lines) || lines[i] != want {
			t.Errorf("tshark printed\n%s\nwant in line %d\n%s", out, i+1, want)
		}
	}
}
