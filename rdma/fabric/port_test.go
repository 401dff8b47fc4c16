package fabric

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestAWrongLengthPrefixCostsThePortItsConnectionAndNobodyElse(t *testing.T) {
	good := framed(frame(broadcast, station(1), 60, 1))
	tests := []struct {
		name string
		send []byte
		good int // number of frames before it
	}{
		{"zero", []byte{0, 0, 0, 0}, 0},
		{"shorter than a header", []byte{0, 0, 0, 13}, 0},
		{"longer than the longest frame", []byte{0, 0, 0x40, 1}, 0},
		{"another protocol", []byte("GET / HTTP/1.1\r\n\r\n"), 0},
		{"after a good frame", append(append([]byte{}, good...), 0xff, 0xff, 0xff, 0xff), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, nodes := attachAll(t, 3, nil)
			nodes[0].write(tt.send)
			for range tt.good {
				nodes[1].expect(good[prefixLen:])
				nodes[2].expect(good[prefixLen:])
			}
			nodes[0].expectEnd()
			c := s.until("disconnected", "p0", func(p PortCounters) bool { return !p.Connected })
			if c.BadFrames != 1 || c.RxFrames != uint64(tt.good) || c.Addresses != 0 {
				t.Errorf("got %+v", c)
			}
			f := frame(broadcast, station(2), 60, 2)
			nodes[1].send(f)
			nodes[2].expect(f)

			again := s.attach("p0")
			again.send(f)
			nodes[1].expect(f)
			nodes[2].expect(f)
		})
	}
}

func TestReconnect(t *testing.T) {
	s, nodes := attachAll(t, 3, nil)
	old := nodes[0]
	hello := frame(broadcast, station(1), 60, 1)
	old.send(hello)
	nodes[1].expect(hello)
	nodes[2].expect(hello)
	old.write(framed(hello)[:20]) // half a frame must not reach the next connection

	t.Run("a new connection replaces the old one", func(t *testing.T) {
		again := s.attach("p0")
		old.expectEnd()
		f := frame(station(1), station(2), 60, 2)
		nodes[1].send(f)
		again.expect(f)
		nodes[2].expect(f)
		again.send(hello)
		nodes[1].expect(hello)
		nodes[2].expect(hello)
		if c := s.portCounters("p0"); c.Connects != 2 || c.Replaced != 1 || c.BadFrames != 0 || c.RxFrames != 2 {
			t.Errorf("got %+v", c)
		}
		old = again
	})
	t.Run("a connection that ends leaves room for the next", func(t *testing.T) {
		was := s.portCounters("p0").Since
		old.conn.Close()
		c := s.until("disconnected", "p0", func(p PortCounters) bool { return !p.Connected })
		if !c.Since.After(was) {
			t.Errorf("disconnected since %v, connected since %v", c.Since, was)
		}
		f := frame(station(1), station(2), 60, 3)
		nodes[1].send(f)
		nodes[2].expect(f)
		again := s.attach("p0")
		again.send(hello)
		nodes[1].expect(hello)
		if c := s.portCounters("p0"); c.Connects != 3 || c.Replaced != 1 || c.TxFrames != 1 {
			t.Errorf("got %+v", c)
		}
	})
	t.Run("a frame to flood while nobody else is there is counted", func(t *testing.T) {
		lonely := start(t, 2, nil)
		n := lonely.attach("p0")
		n.send(hello)
		lonely.until("counted", "p0", func(p PortCounters) bool { return p.RxNowhere == 1 && p.RxFlooded == 0 })
	})
}

func TestPortsComeAndGoWhileOthersForward(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	ctx := t.Context()
	if err := s.client.AddPort(ctx, s.port("new")); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(s.port("new").Path)
	if err != nil || fi.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket has mode %v, %v; want 0600", fi.Mode(), err)
	}
	added := s.attach("new")
	f := frame(broadcast, station(1), 60, 1)
	added.send(f)
	nodes[0].expect(f)
	nodes[1].expect(f)

	if err := s.client.RemovePort(ctx, "new"); err != nil {
		t.Fatal(err)
	}
	added.expectEnd()
	if _, err := os.Lstat(s.port("new").Path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	f = frame(station(1), station(2), 60, 2)
	nodes[0].send(f)
	nodes[1].expect(f)
	if got := len(s.counters().Ports); got != 2 {
		t.Errorf("%d ports, want 2", got)
	}
	if err := s.client.AddPort(ctx, s.port("new")); err != nil { // the name is free again
		t.Error(err)
	}
}

func TestAddPortErrors(t *testing.T) {
	s := start(t, 1, nil)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := "/" + strings.Repeat("x", maxPath)
	tests := []struct {
		name string
		port Port
		want string
	}{
		{"no name", Port{Name: "", Path: "/a"}, `add port at "/a": the name is empty`},
		{"the name for all", Port{Name: "all", Path: "/a"},
			`add port "all": this name stands for all ports: choose another`},
		{"a relative path", Port{Name: "x", Path: "a"}, `add port "x": path "a" is not absolute`},
		{"a name twice", Port{Name: "p0", Path: "/a"},
			fmt.Sprintf(`add port "p0": the switch has a port of this name, at %q: `+
				`remove it first or choose another name`, s.port("p0").Path)},
		{"a path twice", Port{Name: "x", Path: s.port("p0").Path},
			fmt.Sprintf(`add port "x": port "p0" listens at %q already: choose another path`, s.port("p0").Path)},
		{"a path that is too long", Port{Name: "x", Path: long},
			`the path has 108 bytes and a unix socket's may have 107: use a directory with a shorter name`},
		{"a file in the way", Port{Name: "x", Path: file},
			`the path exists and is not a socket (mode -rw-------): remove it or choose another path`},
		{"a directory that is not there", Port{Name: "x", Path: "/no/such/directory/x"},
			`listen at "/no/such/directory/x": bind: no such file or directory`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := s.client.AddPort(t.Context(), tt.port)
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant ...%s", err, tt.want)
			}
		})
	}
	if err := s.client.RemovePort(t.Context(), "x"); err == nil || !strings.HasSuffix(err.Error(),
		`remove port "x": the switch has no such port`) {
		t.Errorf("remove: got %v", err)
	}
	if got := len(s.counters().Ports); got != 1 {
		t.Errorf("%d ports, want 1", got)
	}
}

func TestRunRefusesABadConfig(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "control")
	tests := []struct {
		name string
		cfg  Config
		want string
	}{
		{"no control socket", Config{}, "start switch: no path for the control socket"},
		{"a negative queue", Config{Control: control, QueueBytes: -1}, "start switch: queue of -1 bytes"},
		{"a port twice",
			Config{Control: control, Ports: []Port{{Name: "a", Path: dir + "/a"}, {Name: "a", Path: dir + "/b"}}},
			"choose another name"},
		{"a control socket in no directory",
			Config{Control: dir + "/no/control", Ports: []Port{{Name: "a", Path: dir + "/a"}}},
			"no such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Run(t.Context(), tt.cfg)
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want ...%s", err, tt.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left in the directory: %v, %v", left, err)
			}
		})
	}
}

func TestASecondSwitchDoesNotTakeTheFirstOnesSockets(t *testing.T) {
	s, nodes := attachAll(t, 2, nil)
	err := Run(t.Context(), Config{Control: filepath.Join(s.dir, "control"), Ports: []Port{s.port("p0")}})
	if err == nil || !strings.Contains(err.Error(), "another switch answers there") {
		t.Fatalf("got %v", err)
	}
	f := frame(broadcast, station(1), 60, 1)
	nodes[0].send(f)
	nodes[1].expect(f)
	s.attach("p0")
}

func TestSocketsOfAKilledSwitchAreReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"control", "p0.sock"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg := Config{Control: filepath.Join(dir, "control"),
		Ports: []Port{{Name: "p0", Path: filepath.Join(dir, "p0.sock")}},
		ready: func(*bridge) {
			cancel()
		}}
	if err := Run(ctx, cfg); err != nil {
		t.Error(err)
	}
}

func TestASocketThatIsNoLongerOursIsNotRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	ours, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := bind(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the other's socket is gone: %v", err)
	}
	if err := theirs.close(); err != nil {
		t.Error(err)
	}
	if err := theirs.unlink(); err != nil {
		t.Errorf("second removal: %v", err)
	}
}

func TestWithoutDescriptorsAConnectionIsRefusedAndDoesNotSpin(t *testing.T) {
	b, err := newBridge(slog.New(slog.NewTextHandler(testLog{t}, nil)), time.Now, DefaultQueueBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.close(); err != nil {
			t.Error(err)
		}
	}()
	path := filepath.Join(t.TempDir(), "s")
	if err := b.addPort(Port{Name: "p", Path: path}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b.ports[0].shed() // as ready does at EMFILE
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read %d, %v; want EOF", n, err)
	}
	if b.spare < 0 {
		t.Error("no descriptor is in reserve any more")
	}
	if _, _, err := unix.Accept4(b.ports[0].sock.fd, 0); err != unix.EAGAIN {
		t.Errorf("accept: %v; want that nobody waits", err)
	}
}
