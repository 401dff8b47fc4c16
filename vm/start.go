package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/internal/trace"
)

// SocketQMP and the others: QEMU serves one client of each at a time.
const (
	SocketQMP     = "qmp.sock"
	SocketAgent   = "ga.sock" // guest agent's port
	SocketConsole = "console.sock"
)

// FileConsole and FileLog are in the directory of a machine.
const (
	FileConsole = "console.log"
	FileLog     = "qemu.log" // of QEMU, last boot
)

// FileDaemonLog is in the directory above the machines'.
const FileDaemonLog = "daemon.log"

// maxSocketPath is sun_path of unix(7) without its final zero.
const maxSocketPath = 107

const firstDescriptor = 3

// Sockets are a machine's listening sockets, in the order in which QEMU receives them.
type Sockets []string

// Chardev returns the value of QEMU's -chardev for a socket.
func (s Sockets) Chardev(id, socket string) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, firstDescriptor+slices.Index(s, socket))
}

// SharedMemory returns the path of a machine's i-th file of shared memory, for MemoryFile.
func (s Sockets) SharedMemory(i int) string {
	return fmt.Sprintf("/proc/self/fd/%d", firstDescriptor+len(s)+i)
}

// niceShared puts QEMUs with shared memory below the threads that emulate their devices: a polling guest waits for such
// a thread, which would otherwise wait for the end of the guest's time slice. Root's threads have priority over
// everything (vfiouser.Nice).
func niceShared() int {
	if os.Geteuid() == 0 {
		return 0
	}
	return 5
}

// A Machine is one QEMU process to start.
type Machine struct {
	Name    string   // "QEMU for NAME ended"
	Binary  string   // the emulator
	Lead    []string // see Emulator
	Dir     string   // for its sockets and log
	Sockets Sockets
	Args    []string
	// Bound machines end with this process, however it ends.
	Bound bool
	// SharedMemory is the guest's memory if other processes, which map it, emulate devices. Args name it by
	// Sockets.SharedMemory; Start closes it.
	SharedMemory []*os.File
	// Restore, if set, restores anything that a template's state lacks. It is called before the CPUs run.
	Restore func(ctx context.Context) error
}

// A Child is a QEMU of this process.
type Child struct {
	Process Process

	machine Machine
	stateFD int
	state   *os.ProcessState // valid once exited is closed
	exited  chan struct{}    // closed when waited for
}

// Start runs QEMU. Its sockets listen before, so connections wait in their queue. With from, it continues from the
// template at [Child.Resume].
func (m Machine) Start(from *Template) (*Child, error) {
	c := &Child{machine: m, exited: make(chan struct{})}
	var files []*os.File
	defer func() {
		for _, f := range append(files, m.SharedMemory...) {
			f.Close()
		}
	}()
	for _, name := range m.Sockets {
		f, err := listen(filepath.Join(m.Dir, name))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	files = append(files, m.SharedMemory...)
	args := append(slices.Clone(m.Lead), m.Args...)
	if from != nil {
		state, err := from.pipe()
		if err != nil {
			return nil, err
		}
		c.stateFD = firstDescriptor + len(files)
		files = append(files, state)
		// QEMU waits for a command that excludes the memory.
		args = append(args, "-incoming", "defer")
		if m.Restore != nil {
			args = append(args, "-S")
		}
	}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	trace.Runs("", append([]string{m.Binary}, args...))
	cmd := exec.Command(m.Binary, args...)
	cmd.Dir = m.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // this process handles Ctrl-C
	if err := c.run(cmd); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Child) run(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		if c.machine.Bound {
			// The signal is sent when the starting thread ends (prctl(2)), so it lives as long as the child.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		}
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", c.machine.Binary, err)
			return
		}
		if len(c.machine.SharedMemory) > 0 {
			// QEMU's threads inherit the value. If QEMU has already ended, the error does not matter.
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, niceShared())
		}
		var err error
		c.Process, err = FindProcess(cmd.Process.Pid)
		started <- err
		// The log says more than Wait's error.
		_ = cmd.Wait()
		c.state = cmd.ProcessState
		close(c.exited)
	}()
	err := <-started
	if err != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		err = errors.Join(c.died(), err)
	}
	return err
}

// listen makes a socket for its owner only.
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

func (c *Child) log() string { return filepath.Join(c.machine.Dir, FileLog) }

// died includes the last lines of the log, which may be removed with the directory.
func (c *Child) died() error {
	<-c.exited
	return fmt.Errorf("QEMU for %s ended (%v); its last words: %s", c.machine.Name, c.state, LastLines(c.log()))
}

// Kill also waits.
func (c *Child) Kill() {
	// It may have ended; exited is closed anyway.
	_ = c.Process.Signal(syscall.SIGKILL)
	<-c.exited
}

// Wait waits for the machine's end. An exit status other than 0 is an error.
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-c.exited:
	case <-ctx.Done():
		select {
		case <-c.exited: // its end may be the reason; see Bind
		default:
			return context.Cause(ctx)
		}
	}
	if c.state.Success() {
		return nil
	}
	return c.died()
}

// Bind returns a context that also ends, with the reason, when the child does.
func (c *Child) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
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

// Explain replaces a communication error by QEMU's end, which is noticed slightly later, or the end of ctx.
func (c *Child) Explain(ctx context.Context, err error) error {
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

// Escape doubles commas, for QEMU's options.
func Escape(v string) string { return strings.ReplaceAll(v, ",", ",,") }

// OnOff formats a boolean for QEMU's options.
func OnOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
