package qapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// muxCallLimit bounds one agent command passed through a Mux. Agent commands return at once (guest-exec only starts a program),
// so that one that takes this long means a guest that has stopped.
const muxCallLimit = 20 * time.Second

// A Mux shares one guest agent between many clients, each of which sees an agent of its own.
//
// QEMU accepts one connection at a time on the agent's port, and qemu-ga polls ten times a second while nobody is connected, so one
// long-lived process holds the connection and others come and go through it. Commands are passed on one at a time.
// The zero value is not usable; fill in Agent.
type Mux struct {
	Agent string // path of the socket that QEMU listens on

	mu   sync.Mutex
	conn *Conn
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
			reply = errorReply(fmt.Sprintf("parse %.80q: %v", sc.Bytes(), err))
		} else if raw, err := m.forward(ctx, req, req.Execute); err != nil {
			reply = errorReply(err.Error())
			if e, ok := errors.AsType[*Error](err); ok {
				reply = map[string]any{"error": map[string]string{"class": e.Class, "desc": e.Desc}}
			}
		} else {
			reply = map[string]any{"return": raw}
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

func errorReply(desc string) any {
	return map[string]any{"error": map[string]string{"class": "GenericError", "desc": desc}}
}

// forward sends one command to the agent, connecting first if need be. After anything but an answer the connection is dropped, and
// the next command starts with a new one and a new synchronisation.
func (m *Mux) forward(ctx context.Context, req any, command string) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, muxCallLimit, fmt.Errorf("the guest agent did not answer within %v", muxCallLimit))
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		select {
		case <-m.conn.Done(): // the machine went away, and perhaps another has taken its place
			m.conn.Close()
			m.conn = nil
		default:
		}
	}
	if m.conn == nil {
		conn, err := DialAgent(ctx, m.Agent)
		if err != nil {
			return nil, err
		}
		m.conn = conn
	}
	raw, err := m.conn.roundTrip(ctx, req, command)
	if _, answered := errors.AsType[*Error](err); err != nil && !answered {
		m.conn.Close()
		m.conn = nil
	}
	return raw, err
}

// Close ends the connection to the agent. Clients that are still served open it again.
func (m *Mux) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close()
		m.conn = nil
	}
}
