package qapi

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/rackless/rackless/internal/wait"
)

// Defaults of a Mux.
const (
	muxLimit = 20 * time.Second
	muxAgain = 10 * time.Second
)

// ClassUnreachable is a Mux's Error without a connection to the agent. The command was not forwarded, so repeating it
// is safe.
const ClassUnreachable = "AgentUnreachable"

// ClassGone is a Mux's Error if the guest restarted or stopped. The command may or may not have been executed.
const ClassGone = "AgentGone"

// A Mux shares one guest agent among many clients. Agent is required.
//
// QEMU accepts one connection at a time on the agent's port, and qemu-ga polls ten times a second without one, so a
// long-lived process holds it. Commands are forwarded one at a time.
type Mux struct {
	Agent string // path of QEMU's socket

	// Limit limits one command, with queue and connecting. Agent commands return at once (guest-exec only starts a
	// program), so exceeding it means that the guest has stopped. 0 means 20 s.
	Limit time.Duration
	// Again is the time without an answer to a first command after which the Mux reconnects and asks again, because
	// data sent to a booting guest is lost. 0 means 10 s, for agents on a busy machine.
	Again time.Duration
	// Gone, if set, reports whether the guest has closed the agent's port. It delays a connection's first command until
	// the port is open, and is called every second during a command, which then fails if the port is closed.
	Gone func(context.Context) bool

	mu     sync.Mutex
	conn   *Conn
	synced bool // conn has been synchronised
}

// Serve forwards a client's commands until it hangs up.
func (m *Mux) Serve(ctx context.Context, nc io.ReadWriter) error {
	sc := bufio.NewScanner(nc)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	for sc.Scan() {
		var req struct {
			Execute   string          `json:"execute"`
			Arguments json.RawMessage `json:"arguments,omitempty"`
		}
		var reply any
		if err := json.Unmarshal(sc.Bytes(), &req); err != nil {
			reply = errorReply(classGeneric, fmt.Sprintf("parse %.80q: %v", sc.Bytes(), err))
		} else if raw, err := m.forward(ctx, req, req.Execute); err == nil {
			reply = map[string]any{"return": raw}
		} else if e, ok := errors.AsType[*Error](err); ok {
			reply = errorReply(e.Class, e.Desc)
		} else if errors.Is(err, errGone) {
			reply = errorReply(ClassGone, errGone.Error())
		} else {
			reply = errorReply(classGeneric, err.Error())
		}
		b, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		if _, err := nc.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return sc.Err()
}

const classGeneric = "GenericError"

func errorReply(class, desc string) any {
	return map[string]any{"error": map[string]string{"class": class, "desc": desc}}
}

// forward connects if necessary. On any failure it drops the connection, so that the next command synchronises again.
func (m *Mux) forward(ctx context.Context, req any, command string) (json.RawMessage, error) {
	limit := cmp.Or(m.Limit, muxLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the guest agent did not answer within %v", limit))
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil { // in the queue: the connection may still be good
		return nil, &Error{Command: command, Class: ClassUnreachable, Desc: context.Cause(ctx).Error()}
	}
	if err := m.ready(ctx); err != nil {
		return nil, &Error{Command: command, Class: ClassUnreachable, Desc: err.Error()}
	}
	raw, err := m.answer(ctx, req, command)
	if _, answered := errors.AsType[*Error](err); err != nil && !answered {
		m.hangUp()
	}
	return raw, err
}

var errGone = errors.New("the guest agent has ended: the guest restarts, or is off")

func (m *Mux) answer(ctx context.Context, req any, command string) (json.RawMessage, error) {
	if m.Gone == nil {
		return m.conn.roundTrip(ctx, req, command)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		for wait.For(ctx, time.Second) == nil {
			if m.Gone(ctx) {
				cancel(errGone)
			}
		}
	})
	return m.conn.roundTrip(ctx, req, command)
}

func (m *Mux) ready(ctx context.Context) error {
	for {
		if err := m.open(ctx); err != nil {
			return err
		}
		if m.synced {
			return nil
		}
		if err := m.awaitPort(ctx); err != nil {
			return err
		}
		again, cancel := context.WithTimeout(ctx, cmp.Or(m.Again, muxAgain))
		err := m.conn.sync(again)
		timedOut := again.Err() != nil
		cancel()
		if err == nil {
			m.synced = true
			return nil
		}
		m.hangUp()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !timedOut {
			return err
		}
	}
}

// awaitPort waits for the guest, because earlier data is lost.
func (m *Mux) awaitPort(ctx context.Context) error {
	return wait.Until(ctx, 200*time.Millisecond, func() (bool, error) { return m.Gone == nil || !m.Gone(ctx), nil })
}

// Open connects to the agent's port without sending anything. Before a clone runs, this keeps its agent asleep, which
// otherwise wakes ten times a second.
func (m *Mux) Open(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(ctx)
}

func (m *Mux) open(ctx context.Context) error {
	if m.conn != nil {
		select {
		case <-m.conn.Done(): // another may have replaced it
			m.hangUp()
		default:
			return nil
		}
	}
	conn, err := dial(ctx, m.Agent, session{unsynced: true})
	if err != nil {
		return err
	}
	m.conn, m.synced = conn, false
	return nil
}

func (m *Mux) hangUp() {
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}

// Close ends the connection. Clients still served reopen it.
func (m *Mux) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangUp()
}
