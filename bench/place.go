package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
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

// wrap puts the programs in front of a command that hold it in its place.
func (p Place) wrap(argv []string) []string {
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

// verify proves that a node has the CPUs of a place: taskset silently leaves out those that are not
// there, and the figure would be that of another place.
func (p Place) verify(ctx context.Context, ask execFunc, node string) error {
	if p == (Place{}) {
		return nil
	}
	cpus, err := p.cpus(ctx, ask, node)
	if err != nil {
		return err
	}
	// nproc counts the CPUs that taskset has left of the list.
	if want, _ := countList(p.CPUs); p.CPUs != "" && cpus != want {
		return unfit(node, "of CPUs %s it has %d, not %d", p.CPUs, cpus, want)
	}
	return nil
}

// cpus counts the CPUs that a command in this place may run on.
func (p Place) cpus(ctx context.Context, ask execFunc, node string) (int, error) {
	out, err := ask(ctx, node, p.wrap([]string{"nproc"})...)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out.Stdout)))
	if out.ExitCode != 0 || err != nil || n < 1 {
		return 0, unfit(node, "nothing can run with %v: %v", p, exitError(node, "nproc", out))
	}
	return n, nil
}

// An UnfitError tells that a node cannot run an engine, and that trying again will not help.
type UnfitError struct {
	Node   string
	Reason string
}

func (e *UnfitError) Error() string { return e.Node + ": " + e.Reason }

func unfit(node, format string, args ...any) error {
	return &UnfitError{node, fmt.Sprintf(format, args...)}
}

// onNUMA is an engine of one node that runs on the CPUs of one of its NUMA nodes, with the memory
// of the same or of another one.
type onNUMA struct {
	plugin
	cpus, memory int // NUMA nodes
}

var numaWord = lazyregexp.New(`^numa([0-9]{1,4})(?:-([0-9]{1,4}))?$`)

// onNUMANodes returns the engine on the NUMA nodes that the words say: "numa1" for the CPUs and the
// memory of NUMA node 1, "numa0-1" for the CPUs of 0 and the memory of 1.
func onNUMANodes(e Engine, words []string) (Engine, error) {
	m := numaWord.FindStringSubmatch(words[0])
	if m == nil || len(words) > 1 {
		return Engine{}, fmt.Errorf("%q: %s takes numaN, or numaN-M for the CPUs of NUMA node N and the memory of M",
			strings.Join(words, "/"), e.Name)
	}
	cpus, _ := strconv.Atoi(m[1]) // at most four digits
	memory, _ := strconv.Atoi(cmp.Or(m[2], m[1]))
	return onNUMA{e.plugin, cpus, memory}.engine(e), nil
}

// engine is the engine with its NUMA nodes in its name, which tells its figures from those of others.
func (p onNUMA) engine(e Engine) Engine {
	e.Name += "/numa" + strconv.Itoa(p.cpus)
	if p.memory != p.cpus {
		e.Name += "-" + strconv.Itoa(p.memory)
	}
	e.plugin = p
	return e
}

// ByNUMANode returns what measures the memory of each NUMA node of a machine that has several: from
// its own CPUs, and from those of the first one. Other engines, and all of them on a machine with
// one NUMA node, are returned as they are.
func ByNUMANode(e Engine, nodes []int) []Engine {
	if _, already := e.plugin.(onNUMA); already || e.Suite != SuiteMemory || len(nodes) < 2 {
		return []Engine{e}
	}
	var own, other []Engine
	first := slices.Min(nodes)
	for _, n := range nodes {
		own = append(own, onNUMA{e.plugin, n, n}.engine(e))
		if n != first {
			other = append(other, onNUMA{e.plugin, first, n}.engine(e))
		}
	}
	return append(own, other...)
}

// check refuses two answers to the question where the tool runs.
func (p onNUMA) check(client, server Endpoint, o Options) error {
	if client.Place != (Place{}) || o.CPU != "" || o.NUMA != "" {
		return errors.New("its name says where it runs, and so do the CPUs or NUMA nodes that are asked for: leave " +
			"one of them away")
	}
	return p.plugin.check(client, server, o)
}

// prepare reads from the node which CPUs its NUMA node has: taskset takes CPUs. It also finds out that the other NUMA
// node exists, from which memory is taken.
func (p onNUMA) prepare(ctx context.Context, ask execFunc, ep, server Endpoint, o *Options) error {
	var cpus string
	for _, n := range []int{p.memory, p.cpus} {
		out, err := ask(ctx, ep.Node, "cat", fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n))
		if err != nil {
			return err
		}
		if out.ExitCode != 0 {
			return unfit(ep.Node, "it has no NUMA node %d", n)
		}
		cpus = strings.TrimSpace(string(out.Stdout))
	}
	if cpus == "" {
		return unfit(ep.Node, "its NUMA node %d has no CPUs", p.cpus)
	}
	o.CPU, o.NUMA = cpus, strconv.Itoa(p.memory)
	if err := o.PlaceOf(ep).verify(ctx, ask, ep.Node); err != nil {
		return err
	}
	return p.plugin.prepare(ctx, ask, ep, server, o)
}
