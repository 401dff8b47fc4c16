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

const stressor = "stress-ng"

func loadTool() error {
	for _, tool := range []struct{ name, debian string }{{stressor, stressor}, {"taskset", "util-linux"}} {
		if _, err := exec.LookPath(tool.name); err != nil {
			return fmt.Errorf("%s is not in PATH: install it (Debian: %s) to make load", tool.name, tool.debian)
		}
	}
	return nil
}

type load struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan error
	want   int // number of workers
	// of a load outside of all slices, else empty
	cpus topology.CPUSet
}

// scopeRunner starts outside of systemd's slices, which prepare keeps off the lab's CPUs.
const scopeRunner = "systemd-run"

func outsideTools() error {
	if _, err := exec.LookPath(scopeRunner); err != nil {
		return fmt.Errorf("%s is not in PATH: it starts load in a cgroup without that rule", scopeRunner)
	}
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("it takes root (user %d runs this) to start load in a cgroup without that rule", uid)
	}
	return nil
}

// startLoad with outside may use CPUs that this process is kept off.
func startLoad(kind string, workers int, cpus topology.CPUSet, outside bool) (*load, error) {
	l := &load{ended: make(chan error, 1), want: workers}
	var args []string
	if outside { // the scope's process becomes the program once systemd has placed it
		args = []string{scopeRunner, "--scope", "--quiet", "--collect", "--slice=-.slice", "--"}
		l.cpus = cpus
	}
	// taskset also binds later workers, unlike stress-ng's option.
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
	// The group allows killing all workers at once. Pdeathsig ends the load with its parent thread, and thus rackless.
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for Pdeathsig
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

// settleTime lets workers start and the scheduler spread them.
const settleTime = time.Second

// settle fails if the load has ended.
func (l *load) settle(ctx context.Context) error {
	select {
	// stop reads it as well
	case err := <-l.ended:
		l.ended <- err
		return l.died("the load has ended at once", err)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settleTime):
		return l.reaches(ctx)
	}
}

const reachTime = 20 * time.Second

// reaches fails if another cgroup has some of the CPUs exclusively.
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

func (l *load) died(what string, err error) error {
	return fmt.Errorf("%s: %w: %s", what, cmp.Or(err, errors.New("status 0")), strings.TrimSpace(l.stderr.String()))
}

// time returns the CPU time in seconds.
func (l *load) time(m machine) float64 {
	// Workers are descendants in the load's process group.
	workers := m.pids(func(pid int) bool {
		group, err := syscall.Getpgid(pid)
		return err == nil && group == l.cmd.Process.Pid
	})
	sum := 0.0
	sum += lists.Sum(workers, m.processTime)
	return sum
}

// stop returns CPU time in seconds, with an error if the load had ended earlier.
func (l *load) stop() (float64, error) {
	var early error
	select {
	case err := <-l.ended:
		early = l.died("the load ended while it was needed", err)
	default:
		// stress-ng waits for its workers, so its CPU time includes theirs.
		_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-l.ended:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL)
			<-l.ended
		}
	}
	_ = syscall.Kill(-l.cmd.Process.Pid, syscall.SIGKILL) // remaining workers
	state := l.cmd.ProcessState
	if state == nil {
		return 0, early
	}
	return (state.UserTime() + state.SystemTime()).Seconds(), early
}

// confine restricts all threads; new ones inherit it.
func confine(pid int, to topology.CPUSet) error {
	var set unix.CPUSet
	for c := range to.All() {
		set.Set(c)
	}
	// Threads of an unrestricted one are found in the next pass.
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

func ownCPUs() (topology.CPUSet, error) { return cpusOf(0) }

// cpusOf takes pid 0 for this process.
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
