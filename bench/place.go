package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// A Place says where on its node a tool runs. The zero value is anywhere, as the node's kernel chooses.
type Place struct {
	CPUs   string // as taskset lists them, e.g. "0-3,8"
	Memory string // NUMA nodes, as numactl lists them, e.g. "0"
}

// notPinned is what a sample says of the zero Place.
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

// PlaceOf is where the options put a node's tool.
func (o Options) PlaceOf(ep Endpoint) Place {
	return cmp.Or(ep.Place, Place{CPUs: o.CPU, Memory: o.NUMA})
}

// ServerPlace is where the server runs: on other CPUs or memory than the options have for both
// nodes, where they are given. It is for Endpoint.Place.
func (o Options) ServerPlace(cpu, numa string) Place {
	if cpu == "" && numa == "" {
		return Place{}
	}
	return Place{CPUs: cmp.Or(cpu, o.CPU), Memory: cmp.Or(numa, o.NUMA)}
}

// Wrap puts the programs in front of a command that hold it in its place.
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

// Check refuses lists that are none.
func (p Place) Check() error {
	if _, err := countList(p.CPUs); err != nil {
		return fmt.Errorf("CPUs %q: %w", p.CPUs, err)
	}
	if _, err := countList(p.Memory); err != nil {
		return fmt.Errorf("NUMA nodes %q: %w", p.Memory, err)
	}
	return nil
}

// countList counts the numbers of a list such as "0-3,8". What topology reads besides, such as strides, is none:
// numactl does not take it.
func countList(list string) (int, error) {
	set, err := topology.ParseCPUSet(list)
	if err != nil || strings.Trim(list, "0123456789,-") != "" || !set.IsSubsetOf(topology.CPURange(0, 4095)) {
		return 0, fmt.Errorf("%q is no number or range below 4096", list)
	}
	return set.Len(), nil
}

// Verify proves that a node has the CPUs of a place: taskset silently leaves out those that are not
// there, and the figure would be that of another place.
func (p Place) Verify(ctx context.Context, ask AskFunc, node string) error {
	if p == (Place{}) {
		return nil
	}
	cpus, err := p.CPUCount(ctx, ask, node)
	if err != nil {
		return err
	}
	// nproc counts the CPUs that taskset has left of the list.
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

// An UnfitError tells that a node cannot run an engine, and that trying again will not help.
type UnfitError struct {
	Node   string
	Reason string
}

func (e *UnfitError) Error() string { return e.Node + ": " + e.Reason }

func Unfit(node, format string, args ...any) error {
	return &UnfitError{node, fmt.Sprintf(format, args...)}
}
