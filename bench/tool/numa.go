package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// onNUMA runs on the CPUs of one NUMA node, with the memory of the same or another one.
type onNUMA struct {
	bench.Plugin
	cpus, memory int // NUMA nodes
}

var numaWord = lazyregexp.New(`^numa([0-9]{1,4})(?:-([0-9]{1,4}))?$`)

// onNUMANodes takes "numa1" for NUMA node 1, "numa0-1" for the CPUs of 0 and the memory of 1.
func onNUMANodes(e bench.Engine, words []string) (bench.Engine, error) {
	m := numaWord().FindStringSubmatch(words[0])
	if m == nil || len(words) > 1 {
		return bench.Engine{},
			fmt.Errorf("%q: %s takes numaN, or numaN-M for the CPUs of NUMA node N and the memory of M",
				strings.Join(words, "/"), e.Name)
	}
	cpus, _ := strconv.Atoi(m[1]) // at most four digits
	memory, _ := strconv.Atoi(cmp.Or(m[2], m[1]))
	return onNUMA{e.Plugin, cpus, memory}.engine(e), nil
}

func (p onNUMA) engine(e bench.Engine) bench.Engine {
	e.Name += "/numa" + strconv.Itoa(p.cpus)
	if p.memory != p.cpus {
		e.Name += "-" + strconv.Itoa(p.memory)
	}
	e.Plugin = p
	return e
}

// ByNUMANode returns memory engines for each NUMA node: from its own CPUs, and from the first one's. It returns others
// unchanged.
func ByNUMANode(e bench.Engine, nodes []int) []bench.Engine {
	if _, already := e.Plugin.(onNUMA); already || e.Suite != bench.SuiteMemory || len(nodes) < 2 {
		return []bench.Engine{e}
	}
	var own, other []bench.Engine
	first := slices.Min(nodes)
	for _, n := range nodes {
		own = append(own, onNUMA{e.Plugin, n, n}.engine(e))
		if n != first {
			other = append(other, onNUMA{e.Plugin, first, n}.engine(e))
		}
	}
	return append(own, other...)
}

// Check refuses a second choice of the place.
func (p onNUMA) Check(client, server bench.Endpoint, o bench.Options) error {
	if client.Place != (bench.Place{}) || o.CPU != "" || o.NUMA != "" {
		return errors.New("its name says where it runs, and so do the CPUs or NUMA nodes that are asked for: leave " +
			"one of them away")
	}
	return p.Plugin.Check(client, server, o)
}

// Prepare asks for the CPUs of the NUMA node, because taskset takes CPUs, and whether the node of the memory exists.
func (p onNUMA) Prepare(ctx context.Context, ask bench.AskFunc, ep, server bench.Endpoint, o *bench.Options) error {
	var cpus string
	for _, n := range []int{p.memory, p.cpus} {
		out, err := ask(ctx, ep.Node, "cat", fmt.Sprintf("/sys/devices/system/node/node%d/cpulist", n))
		if err != nil {
			return err
		}
		if out.ExitCode != 0 {
			return bench.Unfit(ep.Node, "it has no NUMA node %d", n)
		}
		cpus = strings.TrimSpace(string(out.Stdout))
	}
	if cpus == "" {
		return bench.Unfit(ep.Node, "its NUMA node %d has no CPUs", p.cpus)
	}
	o.CPU, o.NUMA = cpus, strconv.Itoa(p.memory)
	if err := o.PlaceOf(ep).Verify(ctx, ask, ep.Node); err != nil {
		return err
	}
	return p.Plugin.Prepare(ctx, ask, ep, server, o)
}
