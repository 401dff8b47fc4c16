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

type command struct {
	name  string
	args  []string
	dir   string // "" means this process's
	stdin string
	env   []string // in addition to this process's
	// ownMounts needs root. The program's mounts vanish when it ends, and if it deletes files, it cannot reach mounted
	// file systems.
	ownMounts bool
	// watch, if set, receives a function that returns the last output line.
	watch func(look func() string)
}

// lastSaid splits lines at carriage returns too.
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

// stopLimit lets mmdebstrap remove its files.
const stopLimit = 30 * time.Second

// run returns standard output. Errors include the last lines of standard error.
func run(ctx context.Context, c command) ([]byte, error) {
	trace.Runs("", append([]string{c.name}, c.args...))
	runtime.LockOSThread() // Pdeathsig is bound to the thread
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

func lastLines(s string, n int) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
