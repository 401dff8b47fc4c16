// Package qapi is the client of both JSON-lines protocols of a virtual machine: QEMU's (QMP), and the guest agent's, by
// qemu-ga inside. QEMU's docs/interop describes both (qmp-spec, qemu-ga).
//
// Only the start of a session differs: QMP sends a greeting and negotiates capabilities. The agent sends nothing, may
// still hold half of an earlier session, and is synchronised with guest-sync-delimited.
package qapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// maxLine allows a guest-exec-status with the 16 MiB of output that qemu-ga keeps, in base64.
const maxLine = 64 << 20

// An Error is returned by QEMU or the agent.
type Error struct {
	Command string // as sent, e.g. "migrate-incoming"
	Class   string // e.g. "GenericError", "CommandNotFound"
	Desc    string // readable description
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Command, e.Desc) }

// An Event is sent unasked by QEMU, e.g. "SHUTDOWN".
type Event struct {
	Name string
	Data json.RawMessage
}

// A Conn is one session, safe for concurrent use. Calls are sent one at a time, as the agent requires.
type Conn struct {
	nc   net.Conn
	name string // socket path, for messages

	call    chan struct{} // a token for the command in flight
	replies chan message  // from the reader, in order
	done    chan struct{} // by the reader
	err     error         // valid once done is closed

	unsynced atomic.Bool // data may belong to an earlier session

	mu     sync.Mutex
	events []Event
	notify chan struct{} // buffered 1: events was extended
}

type message struct {
	Greeting json.RawMessage `json:"QMP"`
	Return   json.RawMessage `json:"return"` // nil only if absent; a null is "null"
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	Data  json.RawMessage `json:"data"`
}

// parseLine's ok is false for an empty line. The agent sends 0xff, which JSON never contains, before its answer to
// guest-sync-delimited, possibly after the remains of an interrupted answer.
func parseLine(line []byte) (m message, ok bool, err error) {
	if i := bytes.LastIndexByte(line, 0xff); i >= 0 {
		line = line[i+1:]
	}
	if len(bytes.TrimSpace(line)) == 0 {
		return message{}, false, nil
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return message{}, false, fmt.Errorf("read %.80q: %w", line, err)
	}
	return m, true, nil
}

type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// DialQMP connects to QEMU's socket at path and negotiates capabilities.
func DialQMP(ctx context.Context, path string) (*Conn, error) {
	c, err := dial(ctx, path, session{events: true})
	if err != nil {
		return nil, err
	}
	m, err := c.receive(ctx, "greeting")
	if err == nil && m.Greeting == nil {
		err = fmt.Errorf("qmp %s: no greeting: not a QMP socket?", path)
	}
	if err == nil {
		err = c.Call(ctx, "qmp_capabilities", nil, nil)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// DialAgent synchronises with the agent at the socket path. It waits for the answer, so ctx should have a deadline.
func DialAgent(ctx context.Context, path string) (*Conn, error) {
	c, err := dial(ctx, path, session{unsynced: true})
	if err != nil {
		return nil, err
	}
	if err := c.sync(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// DialPlain connects to a server, such as a Mux, that needs no synchronising. hello, if set, is called first.
func DialPlain(ctx context.Context, path string, hello func(net.Conn) error) (*Conn, error) {
	return dial(ctx, path, session{hello: hello})
}

type session struct {
	unsynced bool                 // malformed lines are skipped first
	events   bool                 // the other side sends events
	hello    func(net.Conn) error // if set, called first
}

func dial(ctx context.Context, path string, how session) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err // includes operation and path
	}
	if how.hello != nil {
		if err := how.hello(nc); err != nil {
			nc.Close()
			return nil, err
		}
	}
	c := &Conn{
		nc: nc, name: path,
		call:    make(chan struct{}, 1),
		replies: make(chan message, 4),
		done:    make(chan struct{}),
		notify:  make(chan struct{}, 1),
	}
	c.unsynced.Store(how.unsynced)
	c.call <- struct{}{}
	go c.read(how.events)
	return c, nil
}

// A guest can cause events of QEMU: the oldest are dropped.
const (
	maxEvents    = 1024
	maxEventData = 64 << 10 // a larger one is dropped
)

func (c *Conn) read(events bool) {
	defer close(c.done)
	sc := bufio.NewScanner(c.nc)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	for sc.Scan() {
		m, ok, err := parseLine(sc.Bytes())
		if err != nil && !c.unsynced.Load() {
			c.err = fmt.Errorf("qapi %s: %w", c.name, err)
			return
		}
		if err != nil || !ok {
			continue
		}
		if m.Event != "" && (!events || len(m.Event)+len(m.Data) > maxEventData) {
			continue
		}
		if m.Event != "" {
			c.mu.Lock()
			if len(c.events) == maxEvents {
				c.events = slices.Delete(c.events, 0, 1)
			}
			c.events = append(c.events, Event{Name: m.Event, Data: m.Data})
			c.mu.Unlock()
			select {
			case c.notify <- struct{}{}:
			default:
			}
			continue
		}
		c.replies <- m
	}
	switch err := sc.Err(); {
	case err == nil:
		c.err = fmt.Errorf("qapi %s: connection closed by the other side", c.name)
	case errors.Is(err, bufio.ErrTooLong):
		c.err = fmt.Errorf("qapi %s: a message of more than %d MiB", c.name, maxLine>>20)
	default:
		c.err = fmt.Errorf("qapi %s: %w", c.name, err)
	}
}

func (c *Conn) receive(ctx context.Context, what string) (message, error) {
	select { // a reply comes before any end
	case m := <-c.replies:
		return m, nil
	default:
	}
	select {
	case m := <-c.replies:
		return m, nil
	case <-c.done:
		select { // arrived with the end
		case m := <-c.replies:
			return m, nil
		default:
		}
		return message{}, c.err
	case <-ctx.Done():
		return message{}, fmt.Errorf("qapi %s: %s: no answer: %w", c.name, what, context.Cause(ctx))
	}
}

// Call decodes a command's result, unless result is nil; an error answer is an *Error. If ctx ends first, Call closes
// the connection, because the late answer would be taken for the next command's.
func (c *Conn) Call(ctx context.Context, command string, args, result any) error {
	raw, err := c.roundTrip(ctx, request{Execute: command, Arguments: args}, command)
	if err != nil || result == nil {
		return err
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("%s: decode %.200q: %w", command, raw, err)
	}
	return nil
}

func (c *Conn) roundTrip(ctx context.Context, req any, command string) (json.RawMessage, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("%s: encode: %w", command, err)
	}
	unlock, err := c.take(ctx, command)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.send(ctx, append(b, '\n'), command); err != nil {
		return nil, err
	}
	m, err := c.receive(ctx, command)
	if err != nil {
		c.nc.Close()
		return nil, err
	}
	switch {
	case m.Error != nil:
		return nil, &Error{Command: command, Class: m.Error.Class, Desc: m.Error.Desc}
	case m.Return == nil:
		return nil, fmt.Errorf("%s: an answer without return or error", command)
	}
	return m.Return, nil
}

// take waits for its turn. It fails if ctx is already done, so that the connection is not lost for nothing.
func (c *Conn) take(ctx context.Context, command string) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
	select {
	case <-c.call:
		return func() { c.call <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", command, context.Cause(ctx))
	}
}

// send writes one line. The end of ctx interrupts it; then the connection is unusable, because half a command may have
// been sent.
func (c *Conn) send(ctx context.Context, line []byte, command string) error {
	stop := context.AfterFunc(ctx, func() {
		_ = c.nc.SetWriteDeadline(time.Unix(1, 0)) // only on a closed connection
	})
	_, err := c.nc.Write(line)
	if !stop() && err == nil {
		err = context.Cause(ctx) // the deadline may come late
	}
	if err == nil {
		return nil
	}
	c.nc.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("qapi %s: %s: %w", c.name, command, err)
}

// sync ensures that the next reply belongs to the next command, whatever an earlier client left in the agent's pipe. A
// 0xff byte makes the agent drop a half-sent command; replies are skipped until one has our number.
func (c *Conn) sync(ctx context.Context) error {
	const name = "guest-sync-delimited"
	id := rand.Int64N(1 << 52) // survives a float64
	line, err := json.Marshal(request{Execute: name, Arguments: map[string]int64{"id": id}})
	if err != nil {
		return err
	}
	unlock, err := c.take(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.send(ctx, append(append([]byte{0xff}, line...), '\n'), name); err != nil {
		return err
	}
	for {
		m, err := c.receive(ctx, name)
		if err != nil {
			return err
		}
		var got int64
		if m.Return != nil && json.Unmarshal(m.Return, &got) == nil && got == id {
			c.unsynced.Store(false)
			return nil
		}
		if ctx.Err() != nil { // the guest answers without end
			return fmt.Errorf("qapi %s: %s: no answer: %w", c.name, name, context.Cause(ctx))
		}
	}
}

// WaitEvent returns the first event with one of the names since the last call. It drops earlier others, so only one
// goroutine should wait.
func (c *Conn) WaitEvent(ctx context.Context, names ...string) (Event, error) {
	for ended := false; ; {
		c.mu.Lock()
		if i := slices.IndexFunc(c.events, func(e Event) bool { return slices.Contains(names, e.Name) }); i >= 0 {
			e := c.events[i]
			c.events = c.events[i+1:]
			c.mu.Unlock()
			return e, nil
		}
		c.events = nil
		c.mu.Unlock()
		if ended {
			return Event{}, c.err
		}
		select {
		case <-c.notify:
		case <-c.done:
			ended = true // check once more
		case <-ctx.Done():
			return Event{}, fmt.Errorf("qmp %s: waiting for %v: %w", c.name, names, context.Cause(ctx))
		}
	}
}

// Done is closed when the other side is gone.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close waits for the session's reader.
func (c *Conn) Close() error {
	err := c.nc.Close()
	for {
		select {
		case <-c.replies: // unblock a reader that holds an unwanted answer
		case <-c.done:
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return err
		}
	}
}
