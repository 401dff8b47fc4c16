package planbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
)

type planned struct {
	cost, bound int64
	stopped     string
	feasible    bool
}

func makePlan(b testing.TB, h *topology.Host, labText string, limit time.Duration) (planned, error) {
	b.Helper()
	l, err := lab.Parse("lab", []byte(labText))
	check(b, err)
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	p, err := build.Problem(h, l, build.Options{HostName: "host"})
	if err != nil {
		return planned{}, err
	}
	r, err := search.Solve(ctx, p, search.Options{})
	if errors.Is(err, search.ErrInfeasible) {
		return planned{}, nil
	}
	if err != nil {
		return planned{}, err
	}
	check(b, verify.Plan(h, l, p, plan.Assemble(h, l, p, r.Outcome)))
	return planned{r.Cost, r.Bound, r.Stopped, true}, nil
}

func timePlans(b *testing.B, h *topology.Host, labText string, limit time.Duration) {
	b.Helper()
	var last planned
	for b.Loop() {
		var err error
		last, err = makePlan(b, h, labText, limit)
		check(b, err)
	}
	b.ReportMetric(float64(last.cost), "cost")
	b.ReportMetric(100*float64(last.cost-last.bound)/float64(max(1, last.cost)), "%gap")
}

// BenchmarkMachines plans generated labs on every machine of the test data with cores.
func BenchmarkMachines(b *testing.B) {
	var machines []*topology.Host
	var names []string
	check(b, filepath.WalkDir("../../machine/inspect/testdata", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if h, err := inspect.ReadFile(b.Context(), path); err == nil && len(h.Cores) > 0 {
			machines, names = append(machines, h), append(names, path)
		}
		return b.Context().Err()
	}))
	for b.Loop() {
		var times []time.Duration
		var proved, impossible int
		for k, h := range machines {
			for _, nodes := range []int{2, 4, 8, 16} {
				for _, even := range []bool{true, false} {
					text := generatedLab(h, nodes, even)
					if text == "" {
						continue
					}
					start := time.Now()
					p, err := makePlan(b, h, text, 10*time.Second)
					took := time.Since(start)
					if _, refused := errors.AsType[build.RequestErrors](err); refused {
						continue // exceeds the machine, so there is no search
					}
					check(b, err)
					times = append(times, took)
					switch {
					case !p.feasible:
						impossible++
					case p.stopped == "":
						proved++
					}
					if took > 100*time.Millisecond || p.stopped != "" {
						b.Logf("%s, %d nodes, even %v: %v, cost %d, bound %d %s", names[k], nodes, even,
							took.Round(time.Millisecond), p.cost, p.bound, p.stopped)
					}
				}
			}
		}
		slices.Sort(times)
		fast, _ := slices.BinarySearch(times, 100*time.Millisecond)
		b.Logf("%d machines, %d plans: %d proved optimal, %d proved impossible; median %v, %.1f %% under 100 ms, "+
			"slowest %v", len(machines), len(times), proved, impossible, times[len(times)/2],
			100*float64(fast)/float64(len(times)), times[len(times)-1])
	}
}

// generatedLab takes about two thirds of a host. It returns "" if there is less than a core for each.
func generatedLab(h *topology.Host, nodes int, even bool) string {
	free := len(h.Cores) - 1
	each := free * 2 / 3 / nodes
	if each < 1 {
		return ""
	}
	var memory uint64
	for _, n := range h.NUMANodes {
		if n.MemoryBytes != nil && n.Kind != "gpu" {
			memory += *n.MemoryBytes
		}
	}
	mib := max(256, memory*6/10/uint64(nodes)>>20/2*2)
	if memory == 0 {
		mib = 1024
	}
	gpus := 0
	for _, g := range h.GPUs {
		if g.Kind != "display" {
			gpus++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: generated\nhugepages: off\ntenants: ignore\ndefaults: {smt: off, gpus: %d, nics: "+
		"0}\nnodes:\n", gpus*2/3/nodes)
	for i := range nodes {
		cores, memory := each, mib
		if !even {
			cores = max(1, each*(i%3+1)/2)
			memory = max(256, memory*uint64(i%3+1)/4/2*2)
		}
		fmt.Fprintf(&b, "  vm%02d: {cpus: %d, memory: %dMiB}\n", i, cores, memory)
	}
	return b.String()
}

// BenchmarkLarge has a limit of 2 s.
func BenchmarkLarge(b *testing.B) {
	h, err := largeHost()
	check(b, err)
	for _, c := range largeLabs() {
		b.Run(c.name, func(b *testing.B) { timePlans(b, h, c.text, 2*time.Second) })
	}
}

type namedLab struct{ name, text string }

// One lab leaves some cores of each NUMA node unused, so that bounds for single lab nodes are weak.
func largeLabs() []namedLab {
	unequal := "nodes:\n"
	for i := range 64 {
		unequal += fmt.Sprintf("  vm%02d: {cpus: %d, memory: %dGiB, nics: 0, vfs: 1}\n", i, 2*(4+i*7%7), 8+i%5*3)
	}
	return []namedLab{
		{"64 equal, a VF each", "name: large\nnodes: {vm: {count: 64, cpus: 14, memory: 14GiB, vfs: 1}}\n"},
		{"16 with a GPU and a NIC, 48 without", "name: large\nworkload: gpu-collective\nnodes:\n  gpu: {count: 16, " +
			"cpus: 24, memory: 24GiB, gpus: 1, nics: 1}\n  cpu: {count: 48, cpus: 10, memory: 8GiB, nics: 0}\n"},
		{"64 of seven sizes, a VF each", "name: large\nworkload: rdma-latency\n" + unequal},
		{"64 that do not fit NUMA nodes, a VF each",
			"name: large\nworkload: cpu-bandwidth\nnodes: {vm: {count: 64, cpus: 14, memory: 15GiB, vfs: 1}}\n"},
	}
}

// BenchmarkGrowth grows lab nodes, devices and NUMA nodes; combinations too large for the part are skipped.
func BenchmarkGrowth(b *testing.B) {
	h, err := largeHost()
	check(b, err)
	for _, numa := range []int{4, 8, 16} {
		part, err := partOf(h, numa)
		check(b, err)
		for _, nodes := range []int{1, 2, 4, 8, 16, 32, 64} {
			for gpus := range 2 {
				if nodes*6+16 > len(part.Cores) || gpus*nodes > len(part.GPUs) {
					continue
				}
				text := fmt.Sprintf("name: growth\nnodes: {vm: {count: %d, cpus: 12, memory: 12GiB, vfs: 1, "+
					"gpus: %d}}\n", nodes, gpus)
				b.Run(fmt.Sprintf("numa=%d/nodes=%d/gpus=%d", numa, nodes, gpus), func(b *testing.B) {
					timePlans(b, part, text, 10*time.Second)
				})
			}
		}
	}
}

func partOf(h *topology.Host, numa int) (*topology.Host, error) {
	part := *h
	part.NUMANodes = slices.Clone(h.NUMANodes[:numa])
	for i := range part.NUMANodes {
		part.NUMANodes[i].Distances = part.NUMANodes[i].Distances[:numa]
	}
	part.Cores = slices.DeleteFunc(slices.Clone(h.Cores), func(c topology.Core) bool { return *c.NUMANode >= numa })
	part.GPUs = slices.DeleteFunc(slices.Clone(h.GPUs), func(g topology.GPU) bool { return *g.NUMANode >= numa })
	part.NICs = slices.DeleteFunc(slices.Clone(h.NICs), func(n topology.NIC) bool { return *n.NUMANode >= numa })
	part.PCI = slices.DeleteFunc(slices.Clone(h.PCI), func(d topology.PCIDevice) bool { return *d.NUMANode >= numa })
	if len(part.NUMANodes) != numa || len(part.Cores) == 0 {
		return nil, fmt.Errorf("the large host has no %d NUMA nodes", numa)
	}
	return &part, nil
}
