package fabric

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/golden"
)

// Other programs may use the protocol, so the test pins its lines as text.
func TestControlProtocol(t *testing.T) {
	s := start(t, 1, nil)
	conn, err := net.Dial("unix", filepath.Join(s.dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	path := filepath.Join(s.dir, "x.sock")
	tests := []struct{ name, send, want string }{
		{"ping", `{"command":"ping"}`, `{"info":{"version":1,"pid":PID,"started":"STARTED","ports":1}}`},
		{"add-port", fmt.Sprintf(`{"command":"add-port","port":"x","path":%q}`, path), `{}`},
		{"an error", fmt.Sprintf(`{"command":"add-port","port":"x","path":%q}`, path),
			`{"error":"add port \"x\": the switch has a port of this name, at \"PATH\": ` +
				`remove it first or choose another name"}`},
		{"remove-port", `{"command":"remove-port","port":"x"}`, `{}`},
		{"set-link",
			`{"command":"set-link","port":"p0","link":{"rate_bits_per_second":1000000,"delay_ns":1000,` +
				`"ecn":{"min_bytes":1,"max_bytes":2,"probability":0.5},"seed":7}}`, `{}`},
		{"set-link on all ports", `{"command":"set-link","port":"all","link":{}}`, `{}`},
		{"set-link with a wrong value", `{"command":"set-link","port":"all","link":{"loss":1.5}}`,
			`{"error":"link: loss probability 1.5: want 0 to 1"}`},
		{"set-link on no port", `{"command":"set-link","link":{}}`,
			`{"error":"link of port \"\": the switch has no such port; it has p0"}`},
		{"set-link without a link", `{"command":"set-link","port":"p0"}`,
			`{"error":"link of port \"p0\": the request has no link"}`},
		{"an unknown command", `{"command":"reboot"}`,
			`{"error":"unknown command \"reboot\": this switch knows ping, counters, flows, add-port, ` +
				`remove-port, set-link and capture"}`},
		{"no command", `{}`,
			`{"error":"unknown command \"\": this switch knows ping, counters, flows, add-port, ` +
				`remove-port, set-link and capture"}`},
		{"no JSON", `ping`, `{"error":"read request: invalid character 'p' looking for beginning of value"}`},
		{"a line that is too long ends the connection", strings.Repeat(" ", maxRequest),
			`{"error":"request is longer than 65536 bytes"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := io.WriteString(conn, tt.send+"\n"); err != nil {
				t.Fatal(err)
			}
			got, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			info, err := s.client.Ping(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			started, err := info.Started.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			got = strings.NewReplacer(fmt.Sprint(os.Getpid()), "PID", string(started), "STARTED", path,
				"PATH").Replace(got)
			if got != tt.want+"\n" {
				t.Errorf("got  %swant %s", got, tt.want)
			}
		})
	}
}

func TestCountersAsJSON(t *testing.T) {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	s, nodes := attachAll(t, 2, func(cfg *Config) { cfg.now = func() time.Time { return clock } })
	f := frame(broadcast, station(1), 100, 1)
	nodes[0].send(f)
	nodes[1].expect(f)
	c := s.counters()
	for i := range c.Ports {
		c.Ports[i].Path = strings.Replace(c.Ports[i].Path, s.dir, "/run/lab", 1)
	}
	got, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden.Check(t, filepath.Join("testdata", "counters.json"), got)
}

func TestClientsDoNotWaitForEachOther(t *testing.T) {
	s := start(t, 1, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := s.port(fmt.Sprintf("w%d", i))
			for range 20 {
				err := errors.Join(s.client.AddPort(t.Context(), p), s.client.RemovePort(t.Context(), p.Name))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := len(s.counters().Ports); got != 1 {
		t.Errorf("%d ports, want 1", got)
	}
}

func TestASwitchThatStopsEndsItsClients(t *testing.T) {
	s := start(t, 1, nil)
	conn, err := net.Dial("unix", filepath.Join(s.dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s.counters() // so that the idle connection was accepted before
	s.stop()
	if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("idle client read %d, %v; want EOF", n, err)
	}
	if _, err := s.client.Counters(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("counters of a stopped switch: %v", err)
	}
}

func fakeSwitch(t *testing.T, answer string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				if _, err := io.WriteString(c, answer); err != nil {
					t.Error(err)
				}
			}
			c.Close()
		}
	}()
	return path
}

func TestDialErrors(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"another version", `{"info":{"version":99}}` + "\n",
			"speaks protocol version 99 and this program version 1: stop the lab with the program that started it"},
		{"no answer", "", "ping: the switch closed the connection without an answer"},
		{"half an answer", `{"info`, "ping: the switch closed the connection without an answer"},
		{"no JSON", "hello\n", "ping: invalid character 'h' looking for beginning of value"},
		{"an answer to something else", `{"counters":{}}` + "\n", "ping: the answer has no info"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Dial(fakeSwitch(t, tt.answer)); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want ...%s", err, tt.want)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		if _, err := Dial(filepath.Join(t.TempDir(), "control")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("counters missing in the answer", func(t *testing.T) {
		c := &Client{path: fakeSwitch(t, "{}\n")}
		if _, err := c.Counters(t.Context()); err == nil || !strings.HasSuffix(err.Error(),
			"counters: the answer has none") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAClientStopsWaitingWhenItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", path) // connections stay in the backlog
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	c := &Client{path: path}
	if _, err := c.Counters(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	if err := c.Capture(ctx, CaptureOptions{}, io.Discard); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("capture: got %v, want %v", err, context.DeadlineExceeded)
	}
}
