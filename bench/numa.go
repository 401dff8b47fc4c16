package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// onNUMA is an engine of one node that runs on the CPUs of one of its NUMA nodes, with the memory
// of the same or of another one.
type onNUMA struct {
	plugin
	cpus, memory int // NUMA nodes
}

var numaWord = regexp.MustCompile(`^numa([0-9]{1,4})(?:-([0-9]{1,4}))?$`)

// onNUMA returns the engine on the NUMA nodes that the words say: "numa1" for the CPUs and the
// memory of NUMA node 1, "numa0-1" for the CPUs of 0 and the memory of 1.
func (e Engine) onNUMA(words []string) (Engine, error) {
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
