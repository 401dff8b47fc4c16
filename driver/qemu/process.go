package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rackless/rackless/vm"
)

// maxSocketPath is the longest path of a unix socket: sun_path of unix(7) less its final zero.
const maxSocketPath = 107

// stateFD is the descriptor under which a clone finds its state: after standard input, output and
// error and its four sockets.
const stateFD = 7

// A child is a QEMU that this process has started.
type child struct {
	cmd    *exec.Cmd
	proc   vm.Process
	exited chan struct{} // closed when it has ended and was waited for
	stderr string        // file
}

// socketPaths are the sockets of a node in its directory.
func socketPath(dir, name string) string { return filepath.Join(dir, name+".sock") }

// start runs QEMU for m in m.spec.Dir, with its sockets listening before it runs, so that whoever
// connects waits in the queue of the socket and nobody polls for its file. dieWithUs ends QEMU when
// the calling thread ends; the caller has locked itself to its thread.
func (d *Driver) start(m machine, state *os.File, dieWithUs bool) (*child, error) {
	dir := m.spec.Dir
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	const firstExtra = 3 // descriptor of ExtraFiles[0] in the child
	pass := func(f *os.File) int {
		files = append(files, f)
		return firstExtra + len(files) - 1
	}
	for _, s := range []struct {
		name string
		fd   *int
	}{{"qmp", &m.qmp}, {"ga", &m.agent}, {"console", &m.console}, {"setup", &m.setup}} {
		f, err := listen(socketPath(dir, s.name))
		if err != nil {
			return nil, err
		}
		*s.fd = pass(f)
	}
	if state != nil {
		fd, err := syscall.Dup(int(state.Fd())) // files are closed on return, the caller's stays
		if err != nil {
			return nil, err
		}
		syscall.CloseOnExec(fd)
		m.incoming = pass(os.NewFile(uintptr(fd), "state"))
		if m.incoming != stateFD {
			return nil, fmt.Errorf("the state would be descriptor %d, want %d", m.incoming, stateFD)
		}
	}
	m.log = filepath.Join(dir, "console.log")
	errFile, err := os.OpenFile(filepath.Join(dir, "qemu.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer errFile.Close()

	cmd := exec.Command(d.Binary, m.args()...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = errFile, errFile
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a group of its own: Ctrl-C is for us to handle
	if dieWithUs {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", d.Binary, err)
	}
	c := &child{cmd: cmd, exited: make(chan struct{}), stderr: errFile.Name()}
	c.proc, err = vm.FindProcess(cmd.Process.Pid)
	go func() {
		// The status says less than the log, and Wait's error is the status.
		_ = cmd.Wait()
		close(c.exited)
	}()
	if err != nil { // it ended at once, or it runs and could not be looked at
		c.kill()
		return nil, errors.Join(c.died(m.spec.Name), err)
	}
	return c, nil
}

// listen makes a listening unix socket whose file only its owner can use.
func listen(path string) (*os.File, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %s has %d bytes, at most %d are possible: set RACKLESS_RUN to a shorter "+
			"directory", path, len(path), maxSocketPath)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	return l.File()
}

// died returns the error for a QEMU that ended by itself, with the last lines that it wrote: its
// log may be removed with the node.
func (c *child) died(what string) error {
	<-c.exited
	return fmt.Errorf("QEMU for %s ended (%v); its last words: %s", what, c.cmd.ProcessState, lastLines(c.stderr))
}

// explain turns an error of a conversation with QEMU into the reason for it: QEMU's own end, which
// is noticed a moment later than the connection that broke through it, or the end of ctx.
func (c *child) explain(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.exited:
		return c.died(what)
	case <-time.After(200 * time.Millisecond):
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// kill ends the child and waits for it.
func (c *child) kill() {
	// An error means that it has ended already; then exited is or will be closed all the same.
	_ = c.cmd.Process.Kill()
	<-c.exited
}

// context returns a context that also ends, with the reason, when the child does.
func (c *child) context(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.exited:
			cancel(c.died(what))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
