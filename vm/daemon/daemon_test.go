package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv(envDaemon) == "" {
		os.Exit(m.Run())
	}
	switch os.Args[1] {
	case "good":
		fmt.Println(Ready)
		time.Sleep(time.Minute) // it is ended before that
	case "chatty":
		fmt.Println("hello")
		time.Sleep(time.Minute)
	case "broken":
		fmt.Fprintln(os.Stderr, "it is broken")
		os.Exit(1)
	case "nested":
		_, err := Start(context.Background(), "another", os.Args[2], "good")
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func TestStart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"good":   "",
		"chatty": `start the daemon: it said "hello\n"; its log `,
		"broken": ": it is broken",
		"nested": "start another: this process was started as a daemon",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			p, err := Start(t.Context(), "the daemon", log, name, log)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %s", err, want)
				}
				if p.Alive() {
					t.Error("it is left running")
				}
				return
			}
			if err != nil || !p.Alive() {
				t.Fatalf("alive %v, %v", p.Alive(), err)
			}
			if err := p.Kill(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStartThatIsGivenUp(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no patience"))
	p, err := Start(ctx, "the daemon", filepath.Join(t.TempDir(), "log"), "chatty")
	if err == nil || p.Alive() {
		t.Errorf("alive %v, %v", p.Alive(), err)
	}
}

func TestServe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil { // left by a killed daemon
		t.Fatal(err)
	}
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, l, func(c net.Conn) { _, _ = io.Copy(c, c) }) }() // until it is closed
	var conns []net.Conn
	for range 2 { // concurrently
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	for i, c := range conns {
		text := fmt.Sprint("client ", i)
		got := make([]byte, len(text))
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
			t.Errorf("got %q, %v", got, err)
		}
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conns[0]); err != nil {
		t.Errorf("the connection is open: %v", err)
	}
}
