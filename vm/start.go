package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// Sockets that machines have in their directories. QEMU serves one client of each at a time.
const (
	SocketQMP     = "qmp.sock"
	SocketAgent   = "ga.sock" // the port of the guest agent
	SocketConsole = "console.sock"
)

// Files in the directory of a machine.
const (
	FileConsole = "console.log" // what the serial port printed, in all boots
	FileLog     = "qemu.log"    // what QEMU printed, in the last one
)

// maxSocketPath is the longest path of a unix socket: sun_path of unix(7) less its final zero.
const maxSocketPath = 107

// firstDescriptor is the file descriptor of a child's first socket: 0 to 2 are its standard streams.
const firstDescriptor = 3

// Sockets are the names of the sockets on which a machine listens, in the order in which QEMU is given them.
type Sockets []string

// Chardev returns the value of QEMU's option -chardev that gives one of the sockets an identifier.
func (s Sockets) Chardev(id, socket string) string {
	return fmt.Sprintf("socket,id=%s,fd=%d,server=on,wait=off", id, firstDescriptor+slices.Index(s, socket))
}

// SharedMemory is the path of one of a machine's files of shared memory, by its place there, for MemoryFile.
func (s Sockets) SharedMemory(i int) string {
	return fmt.Sprintf("/proc/self/fd/%d", firstDescriptor+len(s)+i)
}

// niceShared returns the priority of QEMUs with shared memory, below that of the threads that emulate their devices: a
// guest that polls such a device waits for its thread, which otherwise waits for the end of the guest's time slice. As
// root those threads are above all others (vfiouser.Nice), and a QEMU need not be below other work of the machine.
func niceShared() int {
	if os.Geteuid() == 0 {
		return 0
	}
	return 5
}

// A Machine is one QEMU as it is to be started.
type Machine struct {
	Name    string   // in errors: "QEMU for NAME ended"
	Binary  string   // the emulator
	Lead    []string // see Emulator
	Dir     string   // of its sockets and its log
	Sockets Sockets
	Args    []string
	// Bound machines end with this process, whatever ends that.
	Bound bool
	// SharedMemory is the guest's memory where other processes emulate devices, which map it. Args name it by
	// Sockets.SharedMemory. Start closes it.
	SharedMemory []*os.File
	// Restore, if not nil, is called when a machine that goes on from a template has taken its state, before its CPUs
	// run: it restores what the state lacks.
	Restore func(ctx context.Context) error
}

// A Child is a QEMU that this process has started.
type Child struct {
	Process Process

	machine Machine
	stateFD int              // that it goes on from, or 0
	state   *os.ProcessState // valid once exited is closed
	exited  chan struct{}    // closed when it has ended and was waited for
}

// Start runs QEMU. Its sockets listen before it runs, so that whoever connects waits in the queue of
// the socket and nobody polls for its file. From a template, if that is not nil, it runs on once
// [Child.Resume] is called.
func (m Machine) Start(from *Template) (*Child, error) {
	c := &Child{machine: m, exited: make(chan struct{})}
	var files []*os.File
	defer func() {
		for _, f := range append(files, m.SharedMemory...) {
			f.Close()
		}
	}()
	// QEMU gets the sockets as open files, in the order that Sockets.Chardev counts.
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
		// It waits until it is told over QMP to leave the memory out.
		args = append(args, "-incoming", "defer")
		if m.Restore != nil {
			args = append(args, "-S")
		}
	}
	log, err := os.OpenFile(c.log(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	trace.Runs("", append([]string{m.Binary}, args...))
	cmd := exec.Command(m.Binary, args...)
	cmd.Dir = m.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a group of its own: Ctrl-C is for us to handle
	if err := c.run(cmd); err != nil {
		return nil, err
	}
	return c, nil
}

// run starts the command and waits for its end in the background.
func (c *Child) run(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		if c.machine.Bound {
			// The signal is sent when the thread ends that started the child, prctl(2): this one
			// stays for as long as the child does.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
		}
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", c.machine.Binary, err)
			return
		}
		if len(c.machine.SharedMemory) > 0 {
			// Now, before QEMU has started its threads, which inherit it. One that has ended already needs none.
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, niceShared())
		}
		var err error
		c.Process, err = FindProcess(cmd.Process.Pid)
		started <- err
		// The status says less than the log, and Wait's error is the status.
		_ = cmd.Wait()
		c.state = cmd.ProcessState
		close(c.exited)
	}()
	err := <-started
	if err != nil && cmd.Process != nil { // it ended at once, or it runs and could not be looked at
		_ = cmd.Process.Kill()
		err = errors.Join(c.died(), err)
	}
	return err
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

func (c *Child) log() string { return filepath.Join(c.machine.Dir, FileLog) }

// died returns the error for a QEMU that ended by itself, with the last lines that it wrote: its
// log may be removed with its directory.
func (c *Child) died() error {
	<-c.exited
	return fmt.Errorf("QEMU for %s ended (%v); its last words: %s", c.machine.Name, c.state, LastLines(c.log()))
}

// Kill ends the child and waits for it.
func (c *Child) Kill() {
	// An error means that it has ended already; then exited is or will be closed all the same.
	_ = c.Process.Signal(syscall.SIGKILL)
	<-c.exited
}

// Wait waits until the machine has ended by itself. An exit status other than 0 is an error.
func (c *Child) Wait(ctx context.Context) error {
	select {
	case <-c.exited:
	case <-ctx.Done():
		select {
		case <-c.exited: // which may be what has ended ctx, see Bind
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

// Explain turns an error of a conversation with QEMU into the reason for it: QEMU's own end, which
// is noticed a moment later than the connection that broke through it, or the end of ctx.
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

// LastLine is the last line of a log that says something, while it is being written; empty if there is none.
func LastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const tail = 4096 // the console of a machine that boots has thousands of lines, and is looked at again and again
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-tail), io.SeekStart)
	}
	b, _ := io.ReadAll(io.LimitReader(f, tail))
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

// LastLines returns the end of a log on one line, for an error message.
func LastLines(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return "(nothing)"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}

// Escape protects a value in QEMU's comma-separated options: a comma is written twice.
func Escape(v string) string { return strings.ReplaceAll(v, ",", ",,") }

// OnOff is a boolean as QEMU's options have it.
func OnOff(b bool) string {
	if b {
		return "on"
	}
	return "off"
}
