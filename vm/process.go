package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
)

// A Process identifies one process of this boot; its number alone may be reused.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks after boot, field 22 of /proc/PID/stat
	BootID    string `json:"boot_id"`    // /proc/sys/kernel/random/boot_id
}

// FindProcess identifies the process that now has a number.
func FindProcess(pid int) (Process, error) {
	s, err := procStat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := BootID()
	return Process{PID: pid, StartTime: s.Starttime, BootID: boot}, err
}

// BootID returns the kernel's identifier of this boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// procStat reads /proc/PID/stat, see proc(5).
func procStat(pid int) (procfs.ProcStat, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, err
	}
	return p.Stat()
}

// Memory returns bytes, counting shared pages proportionally (Pss).
func (p Process) Memory() (int64, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return 0, err
	}
	m, err := proc.ProcSMapsRollup()
	return int64(m.Pss), err
}

// isZombie is about the first thread.
func isZombie(s procfs.ProcStat) bool { return s.State == "Z" || s.State == "X" }

// isExiting is about the first thread.
func isExiting(s procfs.ProcStat) bool {
	const pfExiting = 0x4 // PF_EXITING in the kernel's include/linux/sched.h
	return s.Flags&pfExiting != 0 || isZombie(s)
}

// isOver means that a process only waits for its parent. Only the first thread shows as a zombie; until the others have
// ended, the files stay open.
func isOver(s procfs.ProcStat) bool { return isZombie(s) && s.NumThreads <= 1 }

// Alive reports whether this very process runs. A zombie does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	if boot, err := BootID(); err != nil || boot != p.BootID {
		return false
	}
	s, err := procStat(p.PID)
	return err == nil && s.Starttime == p.StartTime && !isOver(s)
}

// Settle waits until an ending process is gone. It counts as alive until its files are closed, which takes a large QEMU
// seconds on a busy machine.
func (p Process) Settle(ctx context.Context) error {
	if s, err := procStat(p.PID); err != nil || s.Starttime != p.StartTime || !isExiting(s) {
		return nil // Alive handles processes that are gone
	}
	return p.Wait(ctx)
}

// Signal never signals another process with the number: it opens the kernel's handle (pidfd) and then compares the
// identity. If the process is gone, the error is os.ErrProcessDone.
func (p Process) Signal(sig syscall.Signal) error {
	h, err := os.FindProcess(p.PID) // a pidfd, on kernels from 5.4 on
	if err != nil {
		return err
	}
	defer h.Release()
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return h.Signal(sig)
}

// Kill sends SIGKILL and waits.
func (p Process) Kill(ctx context.Context) error {
	trace.Changes("end process %d", p.PID)
	err := p.Signal(syscall.SIGKILL)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	return p.Wait(ctx)
}

// Wait returns when the process is gone.
func (p Process) Wait(ctx context.Context) error {
	for delay := time.Millisecond; p.Alive(); delay = min(2*delay, 50*time.Millisecond) {
		if err := wait.For(ctx, delay); err != nil {
			return fmt.Errorf("wait for process %d to end: %w", p.PID, err)
		}
	}
	return nil
}

// ProcessesUsing returns processes of a program with text in an argument, by number. Users see only their own, root
// sees all.
func ProcessesUsing(program, text string) ([]Process, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, d := range dirs {
		b := commandLine(d)
		if len(b) == 0 { // gone, or a kernel thread
			continue
		}
		args := strings.Split(string(b), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), program) || !strings.Contains(strings.Join(args[1:], "\x00"),
			text) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if p, err := FindProcess(pid); err == nil && p.Alive() {
			out = append(out, p)
		}
	}
	return out, nil
}

const startLimit = time.Second

// commandLine returns the arguments of the process with a directory in /proc, or nil for a kernel thread.
//
// While the kernel executes a program, files that it does not inherit are closed, which may already free a lock, but
// there are no arguments yet. To find processes of a rackless that was killed just then, commandLine waits for them.
func commandLine(dir string) []byte {
	starting := true
	for began := time.Now(); ; {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(b) > 0 || !starting || time.Since(began) > startLimit {
			return b
		}
		// The start may have ended between the two reads.
		if starting = isStarting(dir); starting {
			time.Sleep(time.Millisecond)
		}
	}
}

// isStarting reports whether a program has no memory for arguments yet; one that cleared its arguments still has it.
func isStarting(dir string) bool {
	if _, err := os.Readlink(filepath.Join(dir, "exe")); err != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	const envEnd = 51 - 3 // set last; f[0] is field 3
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(f) > envEnd && f[envEnd] == "0"
}
