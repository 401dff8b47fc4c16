package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/trace"
)

// A command is a program to run on this machine.
type command struct {
	name  string
	args  []string
	dir   string // to run in; empty means this process's
	stdin string
	env   []string // beside this process's
	// ownMounts gives the program a mount namespace of its own, which takes root: what it mounts
	// goes when it ends, however it does, and nothing that removes files can come to what is
	// mounted.
	ownMounts bool
	// watch is given what returns the last line that the program has printed so far; nil is allowed.
	watch func(look func() string)
}

// lastSaid keeps the last line that a program has printed on either of its outputs. Some end it with a carriage
// return, to write another one over it.
type lastSaid struct {
	mu         sync.Mutex
	line, rest string
}

func (l *lastSaid) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := strings.FieldsFunc(l.rest+string(b), func(r rune) bool { return r == '\n' || r == '\r' })
	l.rest = ""
	if n := len(lines); n > 0 && !strings.ContainsRune("\r\n", rune(b[len(b)-1])) {
		l.rest, lines = lines[n-1], lines[:n-1]
		l.rest = l.rest[:min(len(l.rest), 1<<10)]
	}
	if n := len(lines); n > 0 {
		l.line = strings.TrimSpace(lines[n-1])
	}
	return len(b), nil
}

func (l *lastSaid) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}

// stopLimit is how long a program that was asked to end has for that: mmdebstrap removes what it made.
const stopLimit = 30 * time.Second

// run executes a command and returns its standard output; an error carries the last lines of its standard error.
func run(ctx context.Context, c command) ([]byte, error) {
	trace.Runs("", append([]string{c.name}, c.args...))
	runtime.LockOSThread() // Pdeathsig is bound to the thread that starts the child
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.name, c.args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"), c.env...)
	cmd.Dir = c.dir
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if c.ownMounts {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if c.watch != nil {
		var last lastSaid
		cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, &last), io.MultiWriter(&stderr, &last)
		c.watch(last.text)
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if said := lastLines(stderr.String(), 8); said != "" {
			return nil, fmt.Errorf("%s: %w: %s", c.name, err, said)
		}
		return nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return stdout.Bytes(), nil
}

// lastLines returns the last n lines of a text, in one.
func lastLines(s string, n int) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
