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

// ClassUnreachable is the class of the Error that a Mux answers with while it has no connection to
// the agent: the guest boots, has stopped, or is gone. The command was not passed on, so that
// sending it again is safe.
const ClassUnreachable = "AgentUnreachable"

// ClassGone is the class of the Error that a Mux answers with when the guest restarted or went off under a command.
// Whether it was carried out is not known.
const ClassGone = "AgentGone"

// A Mux shares one guest agent between many clients, each of which sees an agent of its own.
//
// QEMU accepts one connection at a time on the agent's port, and qemu-ga polls ten times a second
// while nobody is connected, so one long-lived process holds the connection and others come and go
// through it. Commands are passed on one at a time. The zero value is not usable; fill in Agent.
type Mux struct {
	Agent string // path of the socket that QEMU listens on

	// Limit bounds one command, with the time that it waits for others' and for a connection. Agent
	// commands return at once (guest-exec only starts a program), so that one that takes this long
	// means a guest that has stopped. The zero value means 20 s.
	Limit time.Duration
	// Again is when an agent that has not answered the first command of a connection is asked
	// again, over a new one: what is sent while the guest boots is lost. The zero value means 10 s,
	// which is how long an agent that is there may take on a busy machine.
	Again time.Duration
	// Gone says whether the guest has its end of the agent's port closed. It is asked before the
	// first command of a connection, which waits, and every second for as long as a command has no
	// answer, which then never comes. nil: nobody is asked.
	Gone func(context.Context) bool

	mu     sync.Mutex
	conn   *Conn
	synced bool // conn has been synchronised
}

// Serve passes one client's commands on until it hangs up.
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

// classGeneric is QEMU's class of errors that have none of their own.
const classGeneric = "GenericError"

func errorReply(class, desc string) any {
	return map[string]any{"error": map[string]string{"class": class, "desc": desc}}
}

// forward sends one command to the agent, connecting first if need be. After anything but an answer
// the connection is dropped, and the next command starts with a new one and a new synchronisation.
func (m *Mux) forward(ctx context.Context, req any, command string) (json.RawMessage, error) {
	limit := cmp.Or(m.Limit, muxLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the guest agent did not answer within %v", limit))
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil { // spent in the queue, so that the connection may still be good
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

// errGone is what ClassGone stands for.
var errGone = errors.New("the guest agent has ended: the guest restarts, or is off")

// answer sends one command and waits for what the agent answers, for as long as there is an agent.
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

// ready connects to the agent and synchronises with it.
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

// awaitPort returns when the guest has opened its end of the port: what is sent before is lost.
func (m *Mux) awaitPort(ctx context.Context) error {
	return wait.Until(ctx, 200*time.Millisecond, func() (bool, error) { return m.Gone == nil || !m.Gone(ctx), nil })
}

// Open connects to the agent's port unless it is connected, without a word to the agent. A clone
// whose port is connected before it runs leaves its agent asleep; else the agent wakes ten times a
// second to look for somebody.
func (m *Mux) Open(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(ctx)
}

func (m *Mux) open(ctx context.Context) error {
	if m.conn != nil {
		select {
		case <-m.conn.Done(): // the machine went away, and perhaps another has taken its place
			m.hangUp()
		default:
			return nil
		}
	}
	conn, err := dial(ctx, m.Agent, true, nil)
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

// Close ends the connection to the agent. Clients that are still served open it again.
func (m *Mux) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hangUp()
}
