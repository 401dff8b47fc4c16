package emulate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/vm"
)

// maxSocketPath is the longest path of a unix socket: sun_path of unix(7) less its final zero.
const maxSocketPath = 107

// Sockets in a host's directory. QEMU serves one client of each at a time.
const (
	socketQMP     = "qmp.sock"
	socketAgent   = "ga.sock"      // the guest agent's port itself, see agentsSocket
	socketSerial  = "serial.sock"  // ttyS0
	socketConsole = "console.sock" // hvc0
)

// Files in a host's directory.
const (
	fileSerialLog = "console.log" // what ttyS0 printed, of all boots
	fileQEMULog   = "qemu.log"    // what QEMU printed, of the last boot
	fileDisk      = "disk.qcow2"  // what differs from the image
)

// A child is a QEMU that this process has started.
type child struct {
	proc   vm.Process
	state  *os.ProcessState // valid once exited is closed
	exited chan struct{}    // closed when it has ended and was waited for
	log    string
}

// startQEMU runs QEMU for m in dir, with its sockets listening before it runs, so that whoever
// connects waits in the queue of the socket and nobody polls for its file. state, if not nil, is
// what m goes on from. With dieWithUs the kernel ends QEMU when this process ends, whatever ends
// that.
func startQEMU(binary, dir string, m machine, state *os.File, dieWithUs bool) (*child, error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	const firstExtra = 3 // descriptor of ExtraFiles[0] in the child
	for _, s := range []struct {
		name string
		fd   *int
	}{{socketQMP, &m.qmp}, {socketAgent, &m.agent}, {socketSerial, &m.serial}, {socketConsole, &m.console}} {
		f, err := listen(filepath.Join(dir, s.name))
		if err != nil {
			return nil, err
		}
		*s.fd = firstExtra + len(files)
		files = append(files, f)
	}
	extra := files
	if state != nil {
		extra = append(extra, state) // which is its caller's to close
		m.incoming = true
		if fd := firstExtra + len(extra) - 1; fd != stateFD {
			return nil, fmt.Errorf("the state would be descriptor %d, want %d", fd, stateFD)
		}
	}
	m.log = filepath.Join(dir, fileSerialLog)
	log, err := os.OpenFile(filepath.Join(dir, fileQEMULog), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(binary, m.args()...)
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = extra
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a group of its own: Ctrl-C is for us to handle
	if dieWithUs {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	c := &child{exited: make(chan struct{}), log: log.Name()}
	started := make(chan error, 1)
	go func() {
		// The signal at our death is bound to the thread that starts the child, prctl(2): this one
		// stays for as long as the child does.
		runtime.LockOSThread()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", binary, err)
			return
		}
		var err error
		c.proc, err = vm.FindProcess(cmd.Process.Pid)
		started <- err
		// The status says less than the log, and Wait's error is the status.
		_ = cmd.Wait()
		c.state = cmd.ProcessState
		close(c.exited)
	}()
	if err := <-started; err != nil {
		if cmd.Process == nil {
			return nil, err
		}
		_ = cmd.Process.Kill() // it ended at once, or it runs and could not be looked at
		return nil, errors.Join(c.died(), err)
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

// died returns the error for a QEMU that ended by itself, with the last lines that it wrote.
func (c *child) died() error {
	<-c.exited
	return fmt.Errorf("QEMU ended (%v); its last words: %s", c.state, lastLines(c.log))
}

// kill ends the child and waits for it.
func (c *child) kill() {
	// An error means that it has ended already; then exited is or will be closed all the same.
	_ = c.proc.Signal(syscall.SIGKILL)
	<-c.exited
}

// bind returns a context that also ends, with the reason, when the child does.
func (c *child) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.exited:
			cancel(c.died())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// explain prefers QEMU's own end, which is noticed a moment later than the connection that broke
// through it, to what followed from it.
func (c *child) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-c.exited:
		return c.died()
	case <-time.After(200 * time.Millisecond):
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unplug takes the link from the ports that have no wire: a port that is connected to nothing has one in QEMU.
func unplug(ctx context.Context, dir string, ports []string) error {
	if len(ports) == 0 {
		return nil
	}
	q, err := qapi.DialQMP(ctx, filepath.Join(dir, socketQMP))
	if err != nil {
		return err
	}
	defer q.Close()
	for _, id := range ports {
		if err := q.Call(ctx, "set_link", map[string]any{"name": id, "up": false}, nil); err != nil {
			return fmt.Errorf("unplug %s: %w", id, err)
		}
	}
	return nil
}

// lastLines returns the end of a log on one line, for an error message.
func lastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "(nothing)"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) > 3 {
		lines = lines[len(lines)-3:]
	}
	return strings.Join(lines, " | ")
}
