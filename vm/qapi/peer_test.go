package qapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const testLimit = 5 * time.Minute

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), testLimit, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

// noLeaks finds goroutines of this package; the test cannot be parallel.
func noLeaks(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		deadline := time.Now().Add(testLimit)
		for {
			buf := make([]byte, 1<<20)
			all := string(buf[:runtime.Stack(buf, true)])
			if !strings.Contains(all, "qapi.(*Conn)") && !strings.Contains(all, "qapi.(*Mux)") {
				return
			}
			if time.Now().After(deadline) {
				t.Errorf("goroutines are left:\n%s", all)
				return
			}
			time.Sleep(time.Millisecond) // not signaled
		}
	})
}

// socketPath is short.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "qapi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

type link struct {
	net.Conn
	r *bufio.Reader
}

func (l *link) request() (name string, args map[string]any, err error) {
	line, err := l.r.ReadBytes('\n')
	if err != nil {
		return "", nil, err
	}
	var req struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments"`
	}
	err = json.Unmarshal(bytes.TrimLeft(line, "\xff"), &req)
	return req.Execute, req.Arguments, err
}

func (l *link) say(format string, args ...any) {
	fmt.Fprintf(l, format, args...)
}

// sync answers guest-sync-delimited like qemu-ga.
func (l *link) sync() error {
	name, args, err := l.request()
	if err == nil && name != "guest-sync-delimited" {
		err = fmt.Errorf("first command is %s", name)
	}
	if err == nil {
		l.say("\xff{\"return\": %.0f}\n", args["id"])
	}
	return err
}

func serve(t *testing.T, script func(*link)) string {
	t.Helper()
	path := socketPath(t)
	serveAt(t, path, script)
	return path
}

func serveAt(t *testing.T, path string, script func(*link)) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, nc)
			mu.Unlock()
			wg.Go(func() {
				defer nc.Close()
				script(&link{nc, bufio.NewReader(nc)})
			})
		}
	})
	stop = sync.OnceFunc(func() {
		l.Close()
		mu.Lock()
		for _, nc := range open {
			nc.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	t.Cleanup(stop)
	return stop
}

func agent(l *link) {
	for {
		name, args, err := l.request()
		if err != nil {
			return
		}
		switch name {
		case "guest-sync-delimited":
			l.say("\xff{\"return\": %.0f}\n", args["id"])
		case "guest-ping":
			l.say("{\"return\": {}}\n")
		case "echo":
			b, _ := json.Marshal(args["text"])
			l.say("{\"return\": %s}\n", b)
		default:
			l.say("{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"The command %s has not been found\"}}\n",
				name)
		}
	}
}

func TestAgentIsSynchronisedWhateverIsInItsPipe(t *testing.T) {
	noLeaks(t)
	for name, before := range map[string]string{
		"nothing":     "",
		"empty lines": "\n\n  \n",
		"a whole answer of an earlier conversation": `{"return": {"pid": 7}}` + "\n",
		"many of them":                       strings.Repeat(`{"return": {}}`+"\n", 20),
		"an earlier client's number":         "\xff" + `{"return": 12345}` + "\n",
		"the second half of an answer":       `-data": "aGVsbG8="}}` + "\n",
		"half an answer without its newline": `{"return": {"out-da`,
		"an error, since 0xff is no JSON": `{"error": {"class": "GenericError", "desc": ` +
			`"JSON parse error"}}` + "\n",
		"an error without class, and with a number":  `{"error": {"desc": "x"}, "id": 3}` + "\n",
		"JSON that is no object":                     "[]\n3\n\"x\"\nnull\n",
		"bytes that are no text":                     "\x00\x01\xfe\n",
		"a long line of a console that shares a tty": strings.Repeat("x", 200_000) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(l *link) {
				l.say("%s", before)
				agent(l)
			})
			c, err := DialAgent(limited(t), path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var got string
			if err := c.Call(limited(t), "echo", map[string]string{"text": "hello"}, &got); err != nil ||
				got != "hello" {
				t.Errorf("first command after it: got %q, %v, want hello", got, err)
			}
		})
	}
}

func TestConversationsThatGoWrong(t *testing.T) {
	noLeaks(t)
	for name, tt := range map[string]struct {
		script func(*link)
		want   string // in the call's error
		lasts  bool   // the connection stays usable
	}{
		"an error is an Error": {
			func(l *link) {
				l.say(`{"error": {"class": "GenericError", "desc": "no such file"}}` + "\n")
			}, "ask: no such file", true,
		},
		"an error without a class": {
			func(l *link) { l.say(`{"error": {"desc": "no"}}` + "\n") }, "ask: no", true,
		},
		"neither return nor error": {
			func(l *link) { l.say("{}\n") }, "ask: an answer without return or error", true,
		},
		"a return of another type": {
			func(l *link) {
				l.say(`{"return": "text"}` + "\n")
			}, `ask: decode "\"text\"": json: cannot unmarshal string`, true,
		},
		"the end in place of an answer": {
			func(*link) {}, "connection closed by the other side", false,
		},
		"the end in the middle of an answer": {
			func(l *link) {
				l.say(`{"return": {"out-da`)
			}, `read "{\"return\": {\"out-da": unexpected end of JSON input`, false,
		},
		"no JSON": {
			func(l *link) { l.say("hello\n") }, `read "hello": invalid character 'h'`, false,
		},
		"a message that never ends": {
			func(l *link) { io.Copy(l, endless{}) }, "a message of more than 64 MiB", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := serve(t, func(l *link) {
				if l.sync() != nil {
					return
				}
				if _, _, err := l.request(); err != nil {
					return
				}
				tt.script(l)
				if tt.lasts {
					agent(l)
				}
			})
			c, err := DialAgent(limited(t), path)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var result struct{}
			err = c.Call(limited(t), "ask", nil, &result)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got error %v, want one with %q", err, tt.want)
			}
			if _, isError := errors.AsType[*Error](err); isError != strings.Contains(name, "an error") {
				t.Errorf("got %T", err)
			}
			err = c.Call(limited(t), "guest-ping", nil, nil)
			if tt.lasts != (err == nil) {
				t.Errorf("the next command: got %v, want it to work: %v", err, tt.lasts)
			}
			if !tt.lasts {
				if !strings.Contains(err.Error(), path) {
					t.Errorf("error %q does not name the socket", err)
				}
				<-c.Done()
			}
		})
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

func TestAnswersThatFillTheBufferDoNotBlockClose(t *testing.T) {
	noLeaks(t)
	path := serve(t, func(l *link) {
		if l.sync() == nil {
			l.say("%s", strings.Repeat(`{"return": {}}`+"\n", 1000)) // without requests
			io.Copy(io.Discard, l)
		}
	})
	c, err := DialAgent(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestLimits(t *testing.T) {
	noLeaks(t)
	silent := func(l *link) { io.Copy(io.Discard, l) }

	t.Run("an agent that does not answer", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(limited(t), 50*time.Millisecond, errors.New("the guest has stopped"))
		defer cancel()
		c, err := DialAgent(ctx, serve(t, silent))
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.HasSuffix(err.Error(), "guest-sync-delimited: no answer: the guest has stopped") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a QMP socket that does not greet", func(t *testing.T) {
		ctx, cancel := context.WithTimeoutCause(limited(t), 50*time.Millisecond, errors.New("too slow"))
		defer cancel()
		if _, err := DialQMP(ctx, serve(t, silent)); err == nil || !strings.HasSuffix(err.Error(),
			"greeting: no answer: too slow") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an agent's socket is not QMP", func(t *testing.T) {
		path := serve(t, func(l *link) { l.say(`{"return": {}}` + "\n"); silent(l) })
		if _, err := DialQMP(limited(t), path); err == nil || !strings.HasSuffix(err.Error(),
			"no greeting: not a QMP socket?") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a command without an answer ends the connection, since the answer may still come", func(t *testing.T) {
		c := dialSynced(t, silent)
		ctx, cancel := context.WithTimeoutCause(limited(t), 50*time.Millisecond, errors.New("too slow"))
		defer cancel()
		if err := c.Call(ctx, "ask", nil, nil); err == nil || !strings.HasSuffix(err.Error(),
			"ask: no answer: too slow") {
			t.Errorf("got %v", err)
		}
		<-c.Done()
	})
	t.Run("the limit of one command is not the next one's", func(t *testing.T) {
		c := dialSynced(t, agent)
		ctx, cancel := context.WithTimeout(limited(t), time.Hour)
		if err := c.Call(ctx, "guest-ping", nil, nil); err != nil {
			t.Fatal(err)
		}
		cancel()
		deadline, cancel := context.WithDeadline(t.Context(), time.Now().Add(20*time.Millisecond))
		defer cancel()
		if err := c.Call(deadline, "guest-ping", nil, nil); err != nil {
			t.Fatal(err)
		}
		<-deadline.Done()
		if err := c.Call(t.Context(), "guest-ping", nil, nil); err != nil {
			t.Errorf("a command without a limit: %v", err)
		}
	})
	t.Run("a ctx that has ended costs nobody the connection", func(t *testing.T) {
		c := dialSynced(t, agent)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("interrupted"))
		for range 20 { // a select chooses at random
			if err := c.Call(ctx, "guest-ping", nil, nil); err == nil || err.Error() != "guest-ping: interrupted" {
				t.Fatalf("got %v", err)
			}
		}
		if err := c.Call(limited(t), "guest-ping", nil, nil); err != nil {
			t.Errorf("another's command: %v", err)
		}
	})
	t.Run("a peer that does not read", func(t *testing.T) {
		hold := make(chan struct{})
		c := dialSynced(t, func(*link) { <-hold })
		t.Cleanup(func() { close(hold) })
		ctx, cancel := context.WithCancelCause(limited(t)) // without a deadline
		time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("interrupted")) })
		err := c.Call(ctx, "ask", strings.Repeat("x", 8<<20), nil) // more than a socket buffers
		if err == nil || !strings.HasSuffix(err.Error(), "ask: interrupted") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no such socket", func(t *testing.T) {
		path := socketPath(t)
		for _, dial := range []func(context.Context, string) (*Conn, error){DialQMP, DialAgent} {
			if _, err := dial(limited(t), path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want the path in it", err)
			}
		}
	})
	t.Run("a hello that fails", func(t *testing.T) {
		want := errors.New("not today")
		if _, err := DialPlain(limited(t), serve(t, silent), func(net.Conn) error {
			return want
		}); !errors.Is(err, want) {
			t.Errorf("got %v", err)
		}
	})
}

func dialSynced(t *testing.T, script func(*link)) *Conn {
	t.Helper()
	path := serve(t, func(l *link) {
		if l.sync() == nil {
			script(l)
		}
	})
	c, err := DialAgent(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestCallsOfManyGoroutinesGetTheirOwnAnswers(t *testing.T) {
	noLeaks(t)
	c := dialSynced(t, agent)
	echoes(t, 8, 50, func(int) *Conn { return c })
}

func echoes(t *testing.T, clients, times int, conn func(client int) *Conn) {
	t.Helper()
	ctx := limited(t)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for j := range times {
				want := fmt.Sprintf("%d of %d", j, i)
				var got string
				if err := conn(i).Call(ctx, "echo", map[string]string{"text": want}, &got); err != nil || got != want {
					t.Errorf("client %d: got %q, %v, want %q", i, got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestEventThatComesWithTheEndIsNotLost(t *testing.T) {
	noLeaks(t)
	path := serve(t, func(l *link) {
		l.say(`{"QMP": {"version": {}, "capabilities": []}}` + "\n")
		if _, _, err := l.request(); err == nil {
			l.say(`{"return": {}}` + "\n" + `{"event": "STOP", "data": {}}` + "\n" +
				`{"event": "SHUTDOWN", "data": {"guest": true}}` + "\n")
		}
	})
	for range 50 {
		c, err := DialQMP(limited(t), path)
		if err != nil {
			t.Fatal(err)
		}
		e, err := c.WaitEvent(limited(t), "RESET", "SHUTDOWN")
		if err != nil || e.Name != "SHUTDOWN" || string(e.Data) != `{"guest": true}` {
			t.Fatalf("got %v %s, %v", e.Name, e.Data, err)
		}
		if _, err := c.WaitEvent(limited(t), "STOP"); err == nil || !strings.Contains(err.Error(),
			"closed by the other side") {
			t.Fatalf("an event that will not come: got %v", err)
		}
		c.Close()
	}
}

// An endless answer does not hold the client, and events are not kept.
func TestAnAgentWithoutEnd(t *testing.T) {
	noLeaks(t)
	said := strings.Repeat(`{"return": {}}`+"\n"+`{"event": "x", "data": {}}`+"\n", 100)
	path := serve(t, func(l *link) {
		for {
			if _, err := io.WriteString(l, said); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := DialAgent(ctx, path); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	m := &Mux{Agent: path, Limit: 50 * time.Millisecond}
	defer m.Close()
	if _, err := m.forward(t.Context(), request{Execute: "guest-ping"}, "guest-ping"); err == nil {
		t.Error("a command was answered")
	}
}

func TestEventsAreBounded(t *testing.T) {
	noLeaks(t)
	path := serve(t, func(l *link) {
		l.say(`{"QMP": {}}` + "\n")
		if _, _, err := l.request(); err != nil {
			return
		}
		for i := range 3 * maxEvents {
			l.say(`{"event": "e%d"}`+"\n", i)
		}
		l.say(`{"event": "large", "data": %q}`+"\n", strings.Repeat("x", maxEventData))
		l.say(`{"return": {}}` + "\n")
		agent(l)
	})
	c, err := DialQMP(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(c.events) != maxEvents {
		t.Errorf("%d events are kept, want %d", len(c.events), maxEvents)
	}
	want := fmt.Sprintf("e%d", 3*maxEvents-1) // the newest
	if e, err := c.WaitEvent(limited(t), "large", want); err != nil || e.Name != want {
		t.Errorf("got event %q, %v, want %s", e.Name, err, want)
	}
}
