package driver

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
)

// A Process is one process of this boot, for good: its number alone may be given to another one later.
type Process struct {
	PID       int    `json:"pid"`
	StartTime uint64 `json:"start_time"` // clock ticks after boot, field 22 of /proc/PID/stat
	BootID    string `json:"boot_id"`    // /proc/sys/kernel/random/boot_id
}

// FindProcess returns the identity of the process that has the number now.
func FindProcess(pid int) (Process, error) {
	start, _, err := procStat(pid)
	if err != nil {
		return Process{}, err
	}
	boot, err := BootID()
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, StartTime: start, BootID: boot}, nil
}

// BootID returns the kernel's identifier of the present boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(b)), nil
}

// procStat returns the start time and the state letter of a process.
func procStat(pid int) (start uint64, state byte, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	start, state, err = parseStat(b)
	if err != nil {
		return 0, 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return start, state, nil
}

// parseStat picks start time and state out of the text of /proc/PID/stat.
func parseStat(b []byte) (start uint64, state byte, err error) {
	// The command in parentheses may hold anything, spaces and parentheses too: fields are counted from the last ')'.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	const stateField, startField = 3 - 3, 22 - 3 // proc(5) counts from 1 and the first two are before here
	if i < 0 || len(f) <= startField || len(f[stateField]) != 1 {
		return 0, 0, fmt.Errorf("unexpected %.80q", b)
	}
	start, err = strconv.ParseUint(f[startField], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("start time: %w", err)
	}
	return start, f[stateField][0], nil
}

// Alive reports whether this very process still runs. A zombie does not.
func (p Process) Alive() bool {
	if p.PID <= 0 {
		return false
	}
	if boot, err := BootID(); err != nil || boot != p.BootID {
		return false
	}
	start, state, err := procStat(p.PID)
	return err == nil && start == p.StartTime && state != 'Z' && state != 'X'
}

// Signal sends sig to this very process and never to another that has its number: the kernel's handle (pidfd) is taken first and the
// identity compared while it is held. A process that is gone is os.ErrProcessDone.
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d to end: %w", p.PID, context.Cause(ctx))
		case <-time.After(delay):
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
		b, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil || len(b) == 0 { // gone, or a kernel thread
			continue
		}
		args := strings.Split(string(b), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), program) || !strings.Contains(strings.Join(args[1:], "\x00"), text) {
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
