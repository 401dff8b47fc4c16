package rig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/machine/topology"
)

// stressor is the program that makes load.
const stressor = "stress-ng"

// loadTool says whether load can be made here.
func loadTool() error {
	for _, tool := range []struct{ name, debian string }{{stressor, stressor}, {"taskset", "util-linux"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			return fmt.Errorf("%s is not in PATH: install it (Debian: %s) to make load", tool.name, tool.debian)
		}
	}
	return nil
}

// A load is stress-ng with its workers.
type load struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan error
	want   int // workers
	// those that it may use once it is outside of all slices; empty: those that it was started with
	cpus topology.CPUSet
}

// A program of systemd that starts another one in a cgroup outside all slices, which prepare keeps off the lab's CPUs.
const scopeRunner = "systemd-run"

// outsideTools says whether load can be started outside all slices.
func outsideTools() error {
	if _, err := exec.LookPath(scopeRunner); err != nil {
		return fmt.Errorf("%s is not in PATH: it starts load in a cgroup without that rule", scopeRunner)
	}
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("it takes root (user %d runs this) to start load in a cgroup without that rule", uid)
	}
	return nil
}

// startLoad starts workers on some CPUs; outside all slices, they are none of those that this process is kept off.
func startLoad(kind string, workers int, cpus topology.CPUSet, outside bool) (*load, error) {
	l := &load{ended: make(chan error, 1), want: workers}
	var args []string
	if outside { // the scope's process is that of the program, once systemd has placed it
		args = []string{scopeRunner, "--scope", "--quiet", "--collect", "--slice=-.slice", "--"}
		l.cpus = cpus
	}
	// By taskset and not by stress-ng's own option, so that workers that it starts later are bound as well.
	args = append(args, "taskset", "--cpu-list", cpus.String(), stressor, "--quiet")
	switch kind {
	case "cpu":
		args = append(args, "--cpu", strconv.Itoa(workers), "--cpu-method", "matrixprod")
	case "memory":
		args = append(args, "--stream", strconv.Itoa(workers))
	default:
		return nil, fmt.Errorf("load of kind %q is not known", kind)
	}
	trace.Runs("", args)
	l.cmd = exec.Command(args[0], args[1:]...)
	l.cmd.Stderr = &l.stderr
	// A group of its own, so that it can be ended with its workers; and it ends with the thread
	// that started it, so with rackless, however that ends.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread
		err := l.cmd.Start()
		started <- err
		if err == nil {
			l.ended <- l.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start load: %w", err)
	}
	return l, nil
}

// settleTime is how long a load runs before anything is measured: its workers have started and the
// kernel's scheduler has spread them.
const settleTime = time.Second

// settle waits until the load is there. It fails where it has ended.
func (l *load) settle(ctx context.Context) error {
	select {
	// Put back for stop, which asks as well.
	case err := <-l.ended:
		l.ended <- err
		return l.died("the load has ended at once", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settleTime):
		return l.reaches(ctx)
	}
}

// reachTime is how long systemd may take to place a load.
const reachTime = 20 * time.Second

// reaches waits until the load may use the CPUs that it was started for: another cgroup may have some for itself.
func (l *load) reaches(ctx context.Context) error {
	for began := time.Now(); !l.cpus.IsEmpty(); {
		have, err := cpusOf(l.cmd.Process.Pid)
		if err != nil {
			return fmt.Errorf("the load that was just started: %w", err)
		}
		if l.cpus.IsSubsetOf(have) {
			break
		}
		if time.Since(began) > reachTime {
			return fmt.Errorf("the load is to run on CPUs %s, and the kernel lets it use %s alone: a cgroup has the "+
				"others for itself", l.cpus, have)
		}
		if err := wait.For(ctx, settleTime/10); err != nil {
			return err
		}
	}
	return nil
}

// died is the error of a load that has ended by itself, with err.
func (l *load) died(what string, err error) error {
	return fmt.Errorf("%s: %w: %s", what, cmp.Or(err, errors.New("status 0")), strings.TrimSpace(l.stderr.String()))
}

// time returns how long the load has used CPUs, in seconds.
func (l *load) time(m machine) float64 {
	// The workers are children, or children of children, in the load's process group.
	workers := m.pids(func(pid int) bool {
		group, err := syscall.Getpgid(pid)
		return err == nil && group == l.cmd.Process.Pid
	})
	sum := 0.0
	sum += lists.Sum(workers, m.processTime)
	return sum
}

// stop ends the load and returns how long it has used CPUs, in seconds. A load that had ended
// before is an error: what was measured meanwhile had none.
func (l *load) stop() (float64, error) {
	var early error
	select {
	case err := <-l.ended:
		early = l.died("the load ended while it was needed", err)
	default:
		// Workers in the group get it too; stress-ng itself waits for them, so that their time is in its own.
		_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-l.ended:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL)
			<-l.ended
		}
	}
	_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) // workers that are left
	state := l.cmd.ProcessState
	if state == nil {
		return 0, early
	}
	return (state.UserTime() + state.SystemTime()).Seconds(), early
}

// confine lets all threads of a process run on some CPUs alone. Threads that come later inherit it.
func confine(pid int, to topology.CPUSet) error {
	var set unix.CPUSet
	for c := range to.All() {
		set.Set(c)
	}
	// A thread that is made meanwhile by one that has not been moved yet is found in the next pass.
	done := map[int]bool{}
	for {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return err
		}
		more := false
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			done[tid], more = true, true
			if err := unix.SchedSetaffinity(tid, &set); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("let thread %d of process %d run on CPUs %s: %w", tid, pid, to, err)
			}
		}
		if !more {
			return nil
		}
	}
}

// ownCPUs returns the CPUs that this process may use.
func ownCPUs() (topology.CPUSet, error) { return cpusOf(0) }

// cpusOf returns the CPUs that a process may use; 0 is this one.
func cpusOf(pid int) (topology.CPUSet, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return topology.CPUSet{}, err
	}
	var cpus []int
	for c := range topology.MaxCPUs {
		if set.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	return topology.CPUs(cpus...), nil
}
