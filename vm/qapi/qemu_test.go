package qapi

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func startQEMU(t *testing.T, machine string) (path string, exited <-chan error) {
	t.Helper()
	bin, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("qemu-system-x86_64 is not installed")
		}
		t.Skip("qemu-system-x86_64 is not installed")
	}
	path = socketPath(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, bin, "-machine", machine, "-nodefaults", "-no-user-config", "-display", "none",
		"-m", "16", "-S",
		"-accel", "tcg", "-chardev", "socket,id=qmp,fd=3,server=on,wait=off", "-mon", "chardev=qmp,mode=control")
	cmd.ExtraFiles = []*os.File{f}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	done := make(chan error, 1)
	ended := make(chan struct{})
	go func() { done <- cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Logf("QEMU said: %s", &said)
		}
	})
	return path, done
}

func TestQEMUAnswersAndQuits(t *testing.T) {
	noLeaks(t)
	path, exited := startQEMU(t, "none")
	c, err := DialQMP(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	var version struct {
		QEMU struct{ Major int } `json:"qemu"`
	}
	if err := c.Call(limited(t), "query-version", nil, &version); err != nil || version.QEMU.Major < 5 {
		t.Errorf("query-version: %+v, %v", version, err)
	}
	err = c.Call(limited(t), "make-coffee", nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != "CommandNotFound" || !strings.HasPrefix(err.Error(),
		"make-coffee: The command make-coffee") {
		t.Errorf("a command that QEMU does not know: %#v", err)
	}
	err = c.Call(limited(t), "qom-get", map[string]string{"path": "/nowhere"}, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != "GenericError" || e.Command != "qom-get" {
		t.Errorf("a wrong argument: %#v", err)
	}

	if err := c.Call(limited(t), "quit", nil, nil); err != nil {
		t.Errorf("quit: %v", err)
	}
	e, err := c.WaitEvent(limited(t), "SHUTDOWN")
	if err != nil || !strings.Contains(string(e.Data), "host-qmp-quit") {
		t.Errorf("SHUTDOWN: %s, %v", e.Data, err)
	}
	select {
	case <-c.Done():
	case <-time.After(testLimit):
		t.Error("QEMU has quit and the connection is open")
	}
	if err := <-exited; err != nil {
		t.Errorf("QEMU's end: %v", err)
	}
	if err := c.Call(limited(t), "query-version", nil, nil); err == nil {
		t.Error("a QEMU that has quit answers")
	}
}

func TestQEMUSendsEvents(t *testing.T) {
	noLeaks(t)
	path, _ := startQEMU(t, "pc")
	c, err := DialQMP(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	status := func() string {
		var st struct{ Status string }
		if err := c.Call(limited(t), "query-status", nil, &st); err != nil {
			t.Error(err)
		}
		return st.Status
	}
	if got := status(); got != "prelaunch" {
		t.Errorf("before: %s", got)
	}
	for _, step := range []struct{ command, event, status string }{
		{"cont", "RESUME", "running"}, {"stop", "STOP", "paused"}, {"cont", "RESUME", "running"},
	} {
		if err := c.Call(limited(t), step.command, nil, nil); err != nil {
			t.Fatal(err)
		}
		if e, err := c.WaitEvent(limited(t), step.event, "SHUTDOWN"); err != nil || e.Name != step.event {
			t.Errorf("after %s: got event %q, %v", step.command, e.Name, err)
		}
		if got := status(); got != step.status {
			t.Errorf("after %s: %s", step.command, got)
		}
	}
	ctx, cancel := context.WithTimeoutCause(limited(t), 50*time.Millisecond, errors.New("long enough"))
	defer cancel()
	if _, err := c.WaitEvent(ctx, "POWERDOWN"); err == nil || !strings.HasSuffix(err.Error(),
		"waiting for [POWERDOWN]: long enough") {
		t.Errorf("an event that does not come: %v", err)
	}
}

func TestQEMUServesTheNextWhenOneLeaves(t *testing.T) {
	noLeaks(t)
	path, _ := startQEMU(t, "none")
	first, err := DialQMP(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(limited(t), 50*time.Millisecond, errors.New("taken"))
	defer cancel()
	if _, err := DialQMP(ctx, path); err == nil || !strings.HasSuffix(err.Error(), "no answer: taken") {
		t.Errorf("while another is there: %v", err)
	}
	first.Close()
	second, err := DialQMP(limited(t), path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for range 20 {
		go second.Call(limited(t), "query-status", nil, nil)
	}
	var names []json.RawMessage
	if err := second.Call(limited(t), "query-commands", nil, &names); err != nil || len(names) < 50 { // a long line
		t.Errorf("%d commands, %v", len(names), err)
	}
}
