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

// ProtocolVersion increases if an old client could misread a new switch.
const ProtocolVersion = 1

const (
	maxRequest   = 64 << 10        // bytes of one request line
	drainTimeout = 2 * time.Second // for the rest of a capture when the switch stops
)

const (
	commandPing       = "ping"
	commandCounters   = "counters"
	commandAddPort    = "add-port"
	commandRemovePort = "remove-port"
	commandSetLink    = "set-link"
	commandCapture    = "capture"
	commandFlows      = "flows"
)

type request struct {
	Command string `json:"command"`
	// a port's name, or AllPorts for set-link and capture, which takes "", too
	Port    string `json:"port,omitempty"`
	Path    string `json:"path,omitempty"` // add-port
	Rate    int64  `json:"rate_bits_per_second,omitempty"`
	MAC     string `json:"mac,omitempty"`
	Node    string `json:"node,omitempty"`
	Leaf    int    `json:"leaf,omitempty"`
	Snaplen int    `json:"snaplen,omitempty"` // capture: bytes of each frame, 0 for all
	Link    *Link  `json:"link,omitempty"`    // set-link: omitted fields are not impaired
}

// A response is one line with at most one field set.
type response struct {
	Error    string    `json:"error,omitempty"`
	Info     *Info     `json:"info,omitempty"`
	Counters *Counters `json:"counters,omitempty"`
	Flows    *Flows    `json:"flows,omitempty"`
	Capture  bool      `json:"capture,omitempty"` // a pcapng stream follows
}

// Info describes a switch.
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

// probe fails if a switch answers. The socket is the lock of its switch: a second one must notice before it takes over
// the first one's ports.
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
	f := os.NewFile(uintptr(sock.fd), path)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen at %q: %w", path, err), sock.unlink())
	}
	return &control{b, l, sock}, nil
}

// close leaves connections alone.
func (c *control) close() error {
	err := c.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // serve has closed it
	}
	return errors.Join(err, c.sock.unlink())
}

// serve ends all connections when ctx is done.
func (c *control) serve(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the connections before Wait
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
			// Clients wait until a descriptor is free.
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
	// When the switch stops, readers see the end of their input, as if clients had closed, and a client that does not
	// read has little time left. Errors mean that the connection has ended.
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
			return // or a broken connection
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

func (c *control) answer(req request) response {
	var r response
	var turned []string // ports set down or up
	err := c.b.do(func() error {
		switch req.Command {
		case commandPing:
			r.Info = &Info{Version: ProtocolVersion, PID: os.Getpid(), Started: c.b.started, Ports: len(c.b.ports)}
		case commandCounters:
			n := c.b.snapshot()
			r.Counters = &n
		case commandFlows:
			f := c.b.flows()
			r.Flows = &f
		case commandAddPort:
			return c.b.addPort(Port{Name: req.Port, Path: req.Path, Rate: req.Rate, MAC: req.MAC,
				Node: req.Node, Leaf: req.Leaf})
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
			return fmt.Errorf("unknown command %q: this switch knows %s, %s, %s, %s, %s, %s and %s", req.Command,
				commandPing, commandCounters, commandFlows, commandAddPort, commandRemovePort, commandSetLink,
				commandCapture)
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

// capture streams pcapng until the client closes. A client that closes only its sending side gets the rest and the
// statistics.
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
		// A loop that has ended (errStopped) fills no tap.
		_ = c.b.do(func() error { c.b.removeTap(t); return nil })
	}
	if !c.reply(out, response{Capture: true}) {
		remove()
		return
	}
	// Only a read notices that the client closes its side.
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, in) // until the client closes or the connection breaks
	}()
	if err := newTapWriter(t, conn).run(done, remove, c.b.now); err != nil {
		c.b.log.Info("fabric: capture ended by its reader", "port", req.Port, "error", err)
	}
	conn.Close() // ends the copy above
	<-done
}
