package rig

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/topology"
)

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
