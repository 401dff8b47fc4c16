package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// A Place is the placement of a tool on its node. The zero value leaves it to the node's kernel.
type Place struct {
	CPUs   string // list for taskset, e.g. "0-3,8"
	Memory string // NUMA nodes for numactl, e.g. "0"
}

const notPinned = "not pinned"

func (p Place) String() string {
	var parts []string
	if p.CPUs != "" {
		parts = append(parts, "CPUs "+p.CPUs)
	}
	if p.Memory != "" {
		parts = append(parts, "memory of NUMA node "+p.Memory)
	}
	return cmp.Or(strings.Join(parts, ", "), notPinned)
}

// PlaceOf returns the placement of the tool on a node.
func (o Options) PlaceOf(ep Endpoint) Place {
	return cmp.Or(ep.Place, Place{CPUs: o.CPU, Memory: o.NUMA})
}

// ServerPlace returns the place of the options, with cpu and numa replacing its parts if not "".
func (o Options) ServerPlace(cpu, numa string) Place {
	if cpu == "" && numa == "" {
		return Place{}
	}
	return Place{CPUs: cmp.Or(cpu, o.CPU), Memory: cmp.Or(numa, o.NUMA)}
}

// Wrap puts the programs that pin a command in front of it.
func (p Place) Wrap(argv []string) []string {
	if len(argv) == 0 {
		return argv
	}
	var wrapped []string
	if p.CPUs != "" {
		wrapped = append(wrapped, "taskset", "-c", p.CPUs)
	}
	if p.Memory != "" {
		wrapped = append(wrapped, "numactl", "--membind="+p.Memory)
	}
	return append(wrapped, argv...)
}

// Check refuses malformed lists.
func (p Place) Check() error {
	if _, err := countList(p.CPUs); err != nil {
		return fmt.Errorf("CPUs %q: %w", p.CPUs, err)
	}
	if _, err := countList(p.Memory); err != nil {
		return fmt.Errorf("NUMA nodes %q: %w", p.Memory, err)
	}
	return nil
}

// countList refuses strides and other forms that topology reads but numactl does not.
func countList(list string) (int, error) {
	set, err := topology.ParseCPUSet(list)
	if err != nil || strings.Trim(list, "0123456789,-") != "" || !set.IsSubsetOf(topology.CPURange(0, 4095)) {
		return 0, fmt.Errorf("%q is no number or range below 4096", list)
	}
	return set.Len(), nil
}

// Verify proves that a node has the CPUs of a place: taskset silently leaves out missing ones.
func (p Place) Verify(ctx context.Context, ask AskFunc, node string) error {
	if p == (Place{}) {
		return nil
	}
	cpus, err := p.CPUCount(ctx, ask, node)
	if err != nil {
		return err
	}
	// nproc counts the CPUs of the list that taskset found.
	if want, _ := countList(p.CPUs); p.CPUs != "" && cpus != want {
		return Unfit(node, "of CPUs %s it has %d, not %d", p.CPUs, cpus, want)
	}
	return nil
}

// CPUCount counts the CPUs that a command in this place may run on.
func (p Place) CPUCount(ctx context.Context, ask AskFunc, node string) (int, error) {
	out, err := ask(ctx, node, p.Wrap([]string{"nproc"})...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
	if out.ExitCode != 0 || err != nil || n < 1 {
		return 0, Unfit(node, "nothing can run with %v: %v", p, NewExitError(node, "nproc", out))
	}
	return n, nil
}

// An UnfitError says that a node cannot run an engine, and that retrying will not help.
type UnfitError struct {
	Node   string
	Reason string
}

func (e *UnfitError) Error() string { return e.Node + ": " + e.Reason }

func Unfit(node, format string, args ...any) error {
	return &UnfitError{node, fmt.Sprintf(format, args...)}
}
