package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A Client talks to a running switch; use Dial. Calls may be concurrent and need no close.
type Client struct{ path string }

// Dial returns a client for the switch at a control socket, after checking its version.
func Dial(path string) (*Client, error) {
	c := &Client{path: path}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	info, err := c.Ping(ctx)
	if err != nil {
		return nil, err
	}
	// The switch may be from an older rackless than this program.
	if info.Version != ProtocolVersion {
		return nil, fmt.Errorf("switch at %q speaks protocol version %d and this program version %d: stop the lab "+
			"with the program that started it", path, info.Version, ProtocolVersion)
	}
	return c, nil
}

// Ping returns the switch's Info.
func (c *Client) Ping(ctx context.Context) (Info, error) {
	r, err := c.ask(ctx, request{Command: commandPing})
	if err == nil && r.Info == nil {
		err = fmt.Errorf("switch at %q: ping: the answer has no info", c.path)
	}
	if err != nil {
		return Info{}, err
	}
	return *r.Info, nil
}

// Counters returns a snapshot.
func (c *Client) Counters(ctx context.Context) (Counters, error) {
	r, err := c.ask(ctx, request{Command: commandCounters})
	if err == nil && r.Counters == nil {
		err = fmt.Errorf("switch at %q: counters: the answer has none", c.path)
	}
	if err != nil {
		return Counters{}, err
	}
	return *r.Counters, nil
}

// Flows returns the flows between leaves, of which there are none with one switch.
func (c *Client) Flows(ctx context.Context) (Flows, error) {
	r, err := c.ask(ctx, request{Command: commandFlows})
	if err == nil && r.Flows == nil {
		err = fmt.Errorf("switch at %q: flows: the answer has none", c.path)
	}
	if err != nil {
		return Flows{}, err
	}
	return *r.Flows, nil
}

// AddPort adds a port. When it returns, a node can connect.
func (c *Client) AddPort(ctx context.Context, p Port) error {
	_, err := c.ask(ctx, request{Command: commandAddPort, Port: p.Name, Path: p.Path, Rate: p.Rate, MAC: p.MAC,
		Node: p.Node, Leaf: p.Leaf})
	return err
}

// RemovePort removes a port with its socket and connection.
func (c *Client) RemovePort(ctx context.Context, name string) error {
	_, err := c.ask(ctx, request{Command: commandRemovePort, Port: name})
	return err
}

// SetLink replaces all settings of a port, or of all present ports with AllPorts. On error none has changed.
func (c *Client) SetLink(ctx context.Context, port string, l Link) error {
	if err := l.Validate(); err != nil { // JSON cannot encode NaN
		return fmt.Errorf("switch at %q: %s: %w", c.path, commandSetLink, err)
	}
	_, err := c.ask(ctx, request{Command: commandSetLink, Port: port, Link: &l})
	return err
}

// CaptureOptions are those of one capture. The zero value captures all frames of all ports in full.
type CaptureOptions struct {
	Port    string // AllPorts or "" includes later ones
	Snaplen int    // bytes of each frame; 0 for all

	// Started, if set, is called when the capture has begun: it has all later frames.
	Started func()
}

// Capture writes pcapng, with one interface for each port, until ctx is done or the switch stops; neither is an error.
// Each frame appears once, at its entry, even if it is dropped later. The stream ends with the number of frames of each
// port, and of frames missing because w was too slow; without them the switch was killed.
func (c *Client) Capture(ctx context.Context, opts CaptureOptions, w io.Writer) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, _, err := c.exchange(ctx, conn, request{Command: commandCapture, Port: opts.Port, Snaplen: opts.Snaplen})
	if err != nil {
		return err
	}
	// Only the sending side is closed, so that the switch sends the rest and the statistics.
	stop := context.AfterFunc(ctx, func() {
		_ = conn.CloseWrite() // fails if the switch has closed, and then the copy ends
		_ = conn.SetReadDeadline(time.Now().Add(drainTimeout))
	})
	defer stop()
	if opts.Started != nil {
		opts.Started()
	}
	if _, err := io.Copy(w, in); err != nil {
		return fmt.Errorf("switch at %q: capture: %w", c.path, err)
	}
	return nil
}

func (c *Client) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.path)
	if err != nil {
		return nil, fmt.Errorf("switch at %q: %w", c.path, err)
	}
	return conn.(*net.UnixConn), nil
}

func (c *Client) ask(ctx context.Context, req request) (response, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	_, r, err := c.exchange(ctx, conn, req)
	return r, err
}

// exchange sends a request, and returns the response and a reader of the data after it.
func (c *Client) exchange(ctx context.Context, conn net.Conn, req request) (*bufio.Reader, response, error) {
	fail := func(err error) (*bufio.Reader, response, error) {
		if ctx.Err() != nil {
			err = ctx.Err() // hides the error of the deadline
		}
		return nil, response{}, fmt.Errorf("switch at %q: %s: %w", c.path, req.Command, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := json.Marshal(req)
	if err != nil {
		return fail(err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return fail(err)
	}
	// A capture may be in the same read.
	in := bufio.NewReaderSize(conn, 64<<10)
	line, err = in.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the switch closed the connection without an answer")
		}
		return fail(err)
	}
	var r response
	if err := json.Unmarshal(line, &r); err != nil {
		return fail(err)
	}
	if r.Error != "" {
		return fail(errors.New(r.Error))
	}
	if !stop() && ctx.Err() != nil {
		return fail(ctx.Err())
	}
	return in, r, nil
}
