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

// A Process is one process of this boot, for good: its number alone may be given to another one later.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks after boot, field 22 of /proc/PID/stat
	BootID    string `json:"boot_id"`    // /proc/sys/kernel/random/boot_id
}

// FindProcess returns the identity of the process that has the number now.
func FindProcess(pid int) (Process, error) {
	s, err := procStat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := BootID()
	return Process{PID: pid, StartTime: s.Starttime, BootID: boot}, err
}

// BootID returns the kernel's identifier of the present boot.
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

// Memory returns the bytes that the process takes of the machine's memory; of pages that it shares with others, its
// share (Pss).
func (p Process) Memory() (int64, error) {
	proc, err := procfs.NewProc(p.PID)
	if err != nil {
		return 0, err
	}
	m, err := proc.ProcSMapsRollup()
	return int64(m.Pss), err
}

// isZombie reports whether the first thread of a process has ended.
func isZombie(s procfs.ProcStat) bool { return s.State == "Z" || s.State == "X" }

// isExiting reports whether the first thread of a process has ended or is about to.
func isExiting(s procfs.ProcStat) bool {
	const pfExiting = 0x4 // PF_EXITING in the kernel's include/linux/sched.h
	return s.Flags&pfExiting != 0 || isZombie(s)
}

// isOver reports whether a process has ended and waits for nothing but its parent. While other
// threads than the first, which alone shows as a zombie, are on their way out, it still has its
// files open.
func isOver(s procfs.ProcStat) bool { return isZombie(s) && s.NumThreads <= 1 }

// Alive reports whether this very process still runs. A zombie does not.
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

// Settle waits for the process to be gone if it is on its way out: it is alive until its files are
// closed, which takes a QEMU with its memory seconds on a busy machine, and will never answer
// again. It returns at once where the process runs, or is gone.
func (p Process) Settle(ctx context.Context) error {
	if s, err := procStat(p.PID); err != nil || s.Starttime != p.StartTime || !isExiting(s) {
		return nil // Alive knows of those that are gone
	}
	return p.Wait(ctx)
}

// Signal sends sig to this very process and never to another that has its number: the kernel's
// handle (pidfd) is taken first and the identity compared while it is held. A process that is gone
// is os.ErrProcessDone.
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

// Kill ends the process with SIGKILL and waits until it is gone.
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

// ProcessesUsing returns the processes whose program has the name and one of whose arguments holds the text, by number.
// Only processes of the same user can be seen, or all for root.
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

// startLimit bounds the wait for the arguments of a program that is just being started.
const startLimit = time.Second

// commandLine returns the arguments of the process with a directory in /proc: none of one that is
// gone, and of a kernel thread.
//
// While the kernel starts a program, it has closed the files that the program does not inherit, so
// that a lock of the one who starts it may be free, and there are no arguments yet. Who looks for
// the processes of a rackless that was killed right then would miss one, so it waits until they are
// there.
func commandLine(dir string) []byte {
	starting := true
	for began := time.Now(); ; {
		b, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(b) > 0 || !starting || time.Since(began) > startLimit {
			return b
		}
		// The start may have ended between the two reads: then the arguments are read once more, at once. Most of what
		// has no arguments is kernel threads, of which there are hundreds.
		if starting = isStarting(dir); starting {
			time.Sleep(time.Millisecond)
		}
	}
}

// isStarting reports whether a process has a program and no place for arguments yet. A kernel
// thread has no program; a process that has removed its arguments has their place.
func isStarting(dir string) bool {
	if _, err := os.Readlink(filepath.Join(dir, "exe")); err != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	const envEnd = 51 - 3 // end of the environment, which is set last; the first field here is number 3
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	return len(f) > envEnd && f[envEnd] == "0"
}
