package qapi

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func serveMux(t *testing.T, m *Mux) string {
	t.Helper()
	t.Cleanup(m.Close)
	path := serve(t, func(l *link) {
		_ = m.Serve(t.Context(), struct {
			io.Reader
			io.Writer
		}{l.r, l})
	})
	return path
}

func dialMux(t *testing.T, path string) *Conn {
	t.Helper()
	c, err := DialPlain(limited(t), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestMuxGivesManyClientsOneAgent(t *testing.T) {
	noLeaks(t)
	var mu sync.Mutex
	connections := 0
	path := serveMux(t, &Mux{Agent: serve(t, func(l *link) {
		mu.Lock()
		connections++
		mu.Unlock()
		agent(l)
	})})
	conns := make([]*Conn, 16)
	for i := range conns {
		conns[i] = dialMux(t, path)
	}
	echoes(t, len(conns), 20, func(i int) *Conn { return conns[i] })
	mu.Lock()
	defer mu.Unlock()
	if connections != 1 {
		t.Errorf("the agent saw %d connections, want 1", connections)
	}
}

func TestMuxPassesErrorsOn(t *testing.T) {
	noLeaks(t)
	c := dialMux(t, serveMux(t, &Mux{Agent: serve(t, agent)}))
	err := c.Call(limited(t), "guest-dance", nil, nil)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class != "CommandNotFound" || e.Error() != "guest-dance: The command guest-dance has not been found" {
		t.Errorf("got %#v", err)
	}
	if _, err := c.nc.Write([]byte("nonsense\n")); err != nil {
		t.Fatal(err)
	}
	if m, err := c.receive(limited(t), "answer"); err != nil || m.Error == nil || !strings.HasPrefix(m.Error.Desc,
		`parse "nonsense": `) {
		t.Errorf("a line that is no command: got %+v, %v", m.Error, err)
	}
	if err := c.Call(limited(t), "guest-ping", nil, nil); err != nil {
		t.Errorf("after both: %v", err)
	}
}

func TestMuxOutlivesAClientThatVanishesInTheMiddle(t *testing.T) {
	noLeaks(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	path := serveMux(t, &Mux{Agent: serve(t, func(l *link) {
		if l.sync() != nil {
			return
		}
		if _, _, err := l.request(); err != nil {
			return
		}
		close(asked)
		<-answer
		l.say(`{"return": "of the one who left"}` + "\n")
		agent(l)
	})})
	left := dialMux(t, path)
	go left.Call(context.Background(), "ask", nil, nil)
	<-asked
	left.Close()
	stays := dialMux(t, path)
	close(answer)
	var got string
	if err := stays.Call(limited(t), "echo", map[string]string{"text": "mine"}, &got); err != nil || got != "mine" {
		t.Errorf("the next client got %q, %v", got, err)
	}
}

func TestMuxFindsAnAgentThatComesBack(t *testing.T) {
	noLeaks(t)
	where := socketPath(t)
	path := serveMux(t, &Mux{Agent: where})
	c := dialMux(t, path)
	unreachable := func(when string) {
		t.Helper()
		err := c.Call(limited(t), "guest-ping", nil, nil)
		if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassUnreachable || !strings.Contains(e.Desc, where) {
			t.Errorf("%s: got %v, want an Error of class %s that names the socket", when, err, ClassUnreachable)
		}
	}
	unreachable("before there is an agent")
	for range 3 {
		stop := serveAt(t, where, agent)
		if err := c.Call(limited(t), "guest-ping", nil, nil); err != nil {
			t.Errorf("once it is there: %v", err)
		}
		stop()
		os.Remove(where)
		if err := c.Call(limited(t), "guest-ping", nil, nil); err == nil {
			t.Error("an agent that is gone has answered")
		}
		unreachable("after it went")
	}
}

func TestMuxAsksAnAgentAgainThatWasNotThereYet(t *testing.T) {
	noLeaks(t)
	var connections atomic.Int32
	c := dialMux(t, serveMux(t, &Mux{Again: 20 * time.Millisecond, Agent: serve(t, func(l *link) {
		if connections.Add(1) < 3 { // booting, reads nothing
			_, _ = io.Copy(io.Discard, l.r)
			return
		}
		agent(l)
	})}))
	echoes(t, 1, 2, func(int) *Conn { return c })
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections, want 3", n)
	}
}

func TestMuxLimitsACommandAndDropsItsLateAnswer(t *testing.T) {
	noLeaks(t)
	var once sync.Once
	m := &Mux{Limit: 50 * time.Millisecond}
	m.Agent = serve(t, func(l *link) {
		first := false
		once.Do(func() { first = true })
		if first {
			if l.sync() == nil {
				io.Copy(io.Discard, l)
			}
			return
		}
		l.say(`{"return": "late"}` + "\n") // kept by QEMU for the next client
		agent(l)
	})
	c := dialMux(t, serveMux(t, m))
	err := c.Call(limited(t), "ask", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "the guest agent did not answer within 50ms") {
		t.Errorf("got %v", err)
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Class == ClassUnreachable {
		t.Errorf("a command that was passed on counts as one that was not")
	}
	m.mu.Lock()
	m.Limit = testLimit
	m.mu.Unlock()
	var got string
	if err := c.Call(limited(t), "echo", map[string]string{"text": "new"}, &got); err != nil || got != "new" {
		t.Errorf("the next command: got %q, %v", got, err)
	}
}

// The client learns of it before the limit, and the next command goes to the new agent.
func TestMuxTellsThatTheGuestRestarts(t *testing.T) {
	noLeaks(t)
	var connections atomic.Int32
	var down atomic.Bool
	m := &Mux{Gone: func(context.Context) bool { return down.Swap(false) }, Agent: serve(t, func(l *link) {
		if connections.Add(1) == 1 {
			if l.sync() == nil {
				down.Store(true)
				io.Copy(io.Discard, l)
			}
			return
		}
		agent(l)
	})}
	c := dialMux(t, serveMux(t, m))
	err := c.Call(limited(t), "ask", nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassGone {
		t.Errorf("got %v, want that the agent has ended", err)
	}
	var got string
	if err := c.Call(limited(t), "echo", map[string]string{"text": "new"}, &got); err != nil || got != "new" {
		t.Errorf("the next command: got %q, %v", got, err)
	}
}

func TestMuxWaitsForThePort(t *testing.T) {
	noLeaks(t)
	var asked atomic.Int32
	m := &Mux{Gone: func(context.Context) bool { return asked.Add(1) < 3 }, Agent: serve(t, agent)}
	echoes(t, 1, 2, func(int) *Conn { return dialMux(t, serveMux(t, m)) })
	if n := asked.Load(); n < 3 {
		t.Errorf("asked %d times, want 3", n)
	}
}

func TestMuxCountsTheTimeInTheQueue(t *testing.T) {
	noLeaks(t)
	const limit = time.Second
	m := &Mux{Limit: limit, Agent: serve(t, func(l *link) { io.Copy(io.Discard, l) })}
	path := serveMux(t, m)
	began := time.Now()
	var wg sync.WaitGroup
	for range 10 {
		c := dialMux(t, path)
		wg.Go(func() {
			err := c.Call(limited(t), "guest-ping", nil, nil)
			if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassUnreachable {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 9*limit {
		t.Errorf("ten clients waited %v together, with a limit of %v each at the same time", took, limit)
	}
}

func TestMuxEndsWithItsContext(t *testing.T) {
	noLeaks(t)
	m := &Mux{Agent: serve(t, func(l *link) { io.Copy(io.Discard, l) })}
	defer m.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	ours, theirs := net.Pipe()
	defer ours.Close()
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, theirs) }()
	if _, err := ours.Write([]byte(`{"execute": "guest-ping"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	cancel(errors.New("the lab goes down"))
	b := make([]byte, 1000)
	n, err := ours.Read(b)
	if err != nil || !strings.Contains(string(b[:n]), "the lab goes down") {
		t.Errorf("got %q, %v", b[:n], err)
	}
	ours.Close()
	if err := <-done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

func TestMuxOpensWithoutAWord(t *testing.T) {
	noLeaks(t)
	opened, first := make(chan struct{}), make(chan string, 1)
	m := &Mux{Agent: serve(t, func(l *link) {
		close(opened)
		line, err := l.r.Peek(1)
		first <- string(line)
		if err == nil {
			agent(l)
		}
	})}
	c := dialMux(t, serveMux(t, m))
	for range 2 {
		if err := m.Open(limited(t)); err != nil {
			t.Fatal(err)
		}
	}
	<-opened
	select {
	case got := <-first:
		t.Errorf("the mux said %q before anybody had asked", got)
	case <-time.After(20 * time.Millisecond):
	}
	if err := c.Call(limited(t), "guest-ping", nil, nil); err != nil {
		t.Error(err)
	}
	if err := (&Mux{Agent: socketPath(t)}).Open(limited(t)); err == nil {
		t.Error("opened a socket that is not there")
	}
}
