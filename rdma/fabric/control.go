package fabric

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/wait"
)

// ProtocolVersion is the version of the control protocol. It increases if an old client could misread a new switch.
const ProtocolVersion = 1

const (
	maxRequest   = 64 << 10        // bytes of one request line
	drainTimeout = 2 * time.Second // for the last bytes of a capture when the switch stops
)

// Commands of the control socket.
const (
	commandPing       = "ping"
	commandCounters   = "counters"
	commandAddPort    = "add-port"
	commandRemovePort = "remove-port"
	commandSetLink    = "set-link"
	commandCapture    = "capture"
)

// A request is one line from the client.
type request struct {
	Command string `json:"command"`
	// name; set-link also accepts AllPorts; capture accepts AllPorts or nothing for all ports
	Port    string `json:"port,omitempty"`
	Path    string `json:"path,omitempty"` // add-port
	Rate    int64  `json:"rate_bits_per_second,omitempty"`
	MAC     string `json:"mac,omitempty"`
	Node    string `json:"node,omitempty"`
	Snaplen int    `json:"snaplen,omitempty"` // capture: bytes kept of each frame, 0 for all
	Link    *Link  `json:"link,omitempty"`    // set-link: the whole link; omitted fields are not impaired
}

// A response is one line to the client. Exactly one field is set, or none for a command that only succeeds.
type response struct {
	Error    string    `json:"error,omitempty"`
	Info     *Info     `json:"info,omitempty"`
	Counters *Counters `json:"counters,omitempty"`
	Capture  bool      `json:"capture,omitempty"` // a pcapng stream follows from the next byte on
}

// Info describes the switch at a control socket.
type Info struct {
	Version int       `json:"version"` // ProtocolVersion of the switch
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
	Ports   int       `json:"ports"`
}

type control struct {
	b        *bridge
	listener net.Listener
	sock     *boundSocket
}

// probe fails if a switch answers at a control socket. The socket is the lock of its switch: a second switch must
// notice before it takes over the first one's ports.
func probe(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return nil // no switch, or an error that bind will report
	}
	c.Close()
	return fmt.Errorf("listen at %q: another switch answers there: stop it first or choose another directory", path)
}

func listenControl(b *bridge, path string) (*control, error) {
	sock, err := bind(path)
	if err != nil {
		return nil, err
	}
	// The runtime's poller takes the descriptor over, because control connections are few and goroutines are easier
	// to read.
	f := os.NewFile(uintptr(sock.fd), path)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %q: %w", path, err), sock.unlink())
	}
	return &control{b, l, sock}, nil
}

// close removes the socket and leaves connections alone.
func (c *control) close() error {
	err := c.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // serve has closed it
	}
	return errors.Join(err, c.sock.unlink())
}

// serve answers requests until ctx is done, and then ends all connections.
func (c *control) serve(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // runs before Wait and ends the connections
	stop := context.AfterFunc(ctx, func() { c.listener.Close() })
	defer stop()
	for {
		conn, err := c.listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return nil
		}
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			// The nodes' traffic continues, and waiting clients are served when a descriptor is free again.
			c.b.log.Error("fabric: control: accept", "error", err)
			_ = wait.For(ctx, 100*time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		wg.Go(func() { c.handle(ctx, conn.(*net.UnixConn)) })
	}
}

func (c *control) handle(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	// When the switch stops, every reader sees the end of its input, as if the client had closed the connection. A
	// client that does not read has little time left for pending data. Errors here mean that the connection has
	// ended.
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetWriteDeadline(time.Now().Add(drainTimeout))
		_ = conn.CloseRead()
	})
	defer stop()
	in := bufio.NewReaderSize(conn, maxRequest)
	out := json.NewEncoder(conn)
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			c.reply(out, response{Error: fmt.Sprintf("request is longer than %d bytes", maxRequest)})
			return
		}
		if err != nil {
			return // end of input, or a broken connection
		}
		var req request
		if err := json.Unmarshal(line, &req); err != nil {
			if !c.reply(out, response{Error: fmt.Sprintf("read request: %v", err)}) {
				return
			}
			continue
		}
		if req.Command == commandCapture {
			c.capture(req, conn, in, out)
			return
		}
		if !c.reply(out, c.answer(req)) {
			return
		}
	}
}

func (c *control) reply(out *json.Encoder, r response) bool {
	if err := out.Encode(r); err != nil {
		c.b.log.Warn("fabric: control: reply", "error", err)
		return false
	}
	return true
}

// answer runs one command other than capture.
func (c *control) answer(req request) response {
	var r response
	var turned []string // ports that were set down or up
	// Only the loop may access the state of the switch.
	err := c.b.do(func() error {
		switch req.Command {
		case commandPing:
			r.Info = &Info{Version: ProtocolVersion, PID: os.Getpid(), Started: c.b.started, Ports: len(c.b.ports)}
		case commandCounters:
			n := c.b.snapshot()
			r.Counters = &n
		case commandAddPort:
			return c.b.addPort(Port{Name: req.Port, Path: req.Path, Rate: req.Rate, MAC: req.MAC,
				Node: req.Node})
		case commandRemovePort:
			return c.b.removePort(req.Port)
		case commandSetLink:
			if req.Link == nil {
				return fmt.Errorf("link of port %q: the request has no link", req.Port)
			}
			for _, p := range c.b.ports {
				if (req.Port == AllPorts || req.Port == p.Name) && p.link.Down != req.Link.Down {
					turned = append(turned, p.Name)
				}
			}
			return c.b.setLink(req.Port, *req.Link)
		default:
			return fmt.Errorf("unknown command %q: this switch knows %s, %s, %s, %s, %s and %s", req.Command,
				commandPing, commandCounters, commandAddPort, commandRemovePort, commandSetLink, commandCapture)
		}
		return nil
	})
	if err == nil {
		err = c.b.tellDown(turned)
	}
	if err != nil {
		return response{Error: err.Error()}
	}
	return r
}

// capture streams pcapng until the client closes its side or the connection. A client that closes only its sending
// side gets the rest and the statistics.
func (c *control) capture(req request, conn *net.UnixConn, in io.Reader, out *json.Encoder) {
	req.Port = cmp.Or(req.Port, AllPorts)
	if req.Snaplen < 0 {
		c.reply(out, response{Error: fmt.Sprintf("capture: snaplen %d is negative", req.Snaplen)})
		return
	}
	if req.Snaplen == 0 || req.Snaplen > MaxFrame {
		req.Snaplen = MaxFrame
	}
	var t *tap
	err := c.b.do(func() (err error) {
		t, err = c.b.newTap(req.Port, req.Snaplen)
		return err
	})
	if err != nil {
		c.reply(out, response{Error: err.Error()})
		return
	}
	remove := func() {
		// errStopped is fine, because a loop that has ended fills no tap.
		_ = c.b.do(func() error { c.b.removeTap(t); return nil })
	}
	if !c.reply(out, response{Capture: true}) {
		remove()
		return
	}
	// The client ends a capture by closing its side, which only a read notices.
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, in) // ends when the client closes or the connection breaks, and so ends the capture
	}()
	if err := newTapWriter(t, conn).run(done, remove, c.b.now); err != nil {
		c.b.log.Info("fabric: capture ended by its reader", "port", req.Port, "error", err)
	}
	conn.Close() // ends the copy above, before waiting for it
	<-done
}
