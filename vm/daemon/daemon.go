// Package daemon runs the parts of rackless that outlive the command that starts them, as separate processes of the
// same program that serve unix sockets.
package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/vm"
)

// Ready is the line that a daemon prints when it is ready.
const Ready = "ready"

// startLimit is generous: a start normally takes milliseconds.
const startLimit = 20 * time.Second

const envDaemon = "RACKLESS_DAEMON"

// Start runs this program with args as a daemon until it has printed Ready. Errors name it by what; its standard error
// is appended to the file log.
func Start(ctx context.Context, what, log string, args ...string) (vm.Process, error) {
	if os.Getenv(envDaemon) != "" {
		// A program that uses this package without a daemon command would start itself endlessly.
		return vm.Process{}, fmt.Errorf("start %s: this process was started as a daemon: %s takes no %q", what,
			os.Args[0], args)
	}
	p, err := start(ctx, log, args)
	if err != nil {
		said, _ := vm.ReadEnd(log, 64<<10) // if the log is unreadable, the message is only shorter
		return p, fmt.Errorf("start %s: %w; its log %s: %s", what, err, log, strings.TrimSpace(string(said)))
	}
	return p, nil
}

func start(ctx context.Context, log string, args []string) (p vm.Process, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	logFile, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return p, err
	}
	defer logFile.Close()
	trace.Runs("", append([]string{self}, args...))
	cmd := exec.Command(self, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Env = "/", append(os.Environ(), envDaemon+"=1")
	cmd.Stderr = logFile
	// Against Ctrl-C in the starting terminal.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return p, err
	}
	if err := cmd.Start(); err != nil {
		return p, err
	}
	if p, err = vm.FindProcess(cmd.Process.Pid); err != nil {
		return p, fmt.Errorf("it ended at once: %w", err)
	}
	ready := make(chan error, 1)
	go func() {
		line, err := bufio.NewReader(out).ReadString('\n')
		if err == nil && line != Ready+"\n" {
			err = fmt.Errorf("it said %q", line)
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(startLimit):
		err = fmt.Errorf("not ready within %v", startLimit)
	}
	if err != nil {
		return p, errors.Join(err, p.Kill(context.WithoutCancel(ctx)))
	}
	return p, cmd.Process.Release()
}

// Listen makes a unix socket for its owner only, replacing one left by a killed daemon.
func Listen(path string) (net.Listener, error) {
	// The caller knows that no daemon is alive.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve calls handle concurrently for each connection until ctx is done. Then it waits for the handlers.
func Serve(ctx context.Context, l net.Listener, handle func(net.Conn)) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			handle(conn)
		})
	}
}
