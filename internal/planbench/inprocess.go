package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
	"github.com/rackless/rackless/plan/verify"
	"github.com/rackless/rackless/topology"
)

// A planTime is how one plan went.
type planTime struct {
	took     time.Duration
	cost     int64
	bound    int64
	stopped  string
	feasible bool
}

// timePlan makes a plan as the command does, in this process, checks included.
func timePlan(ctx context.Context, h *topology.Host, labText string, limit time.Duration) (planTime, error) {
	l, err := lab.Parse("lab", []byte(labText))
	if err != nil {
		return planTime{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	p, err := build.Problem(h, l, build.Options{HostName: "host"})
	if err != nil {
		return planTime{}, err
	}
	r, err := search.Solve(ctx, p, search.Options{})
	if errors.Is(err, search.ErrInfeasible) {
		return planTime{took: time.Since(start)}, nil
	}
	if err != nil {
		return planTime{}, err
	}
	if err := verify.Plan(h, l, p, plan.Assemble(h, l, p, r.Outcome)); err != nil {
		return planTime{}, fmt.Errorf("a plan breaks its rules: %w", err)
	}
	return planTime{time.Since(start), r.Cost, r.Bound, r.Stopped, true}, nil
}

// timePlans makes a plan five times.
func timePlans(ctx context.Context, h *topology.Host, labText string, limit time.Duration) (times []time.Duration,
	last planTime, err error) {
	for range 5 {
		if last, err = timePlan(ctx, h, labText, limit); err != nil {
			return nil, last, err
		}
		times = append(times, last.took)
	}
	return times, last, nil
}

// everyMachine plans generated labs of 2 to 16 nodes on every machine of the test data that has cores.
func (b *bench) everyMachine(ctx context.Context) error {
	var times []time.Duration
	var machines, plans, proved, refused int
	var slow []string
	err := filepath.WalkDir(b.machines, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		h, err := inspect.ReadFile(ctx, path)
		if err != nil || len(h.Cores) == 0 {
			return ctx.Err() // goldens and matrices are not machines
		}
		machines++
		for _, nodes := range []int{2, 4, 8, 16} {
			for _, even := range []bool{true, false} {
				text := generatedLab(h, nodes, even)
				if text == "" {
					continue
				}
				t, err := timePlan(ctx, h, text, 10*time.Second)
				if _, refused := errors.AsType[build.RequestErrors](err); refused {
					continue // more than the machine has: no search
				}
				if err != nil {
					return fmt.Errorf("%s, %d lab nodes: %w", path, nodes, err)
				}
				plans++
				times = append(times, t.took)
				switch {
				case !t.feasible:
					refused++
				case t.stopped == "":
					proved++
				}
				// What a user would notice, or what was not proved, is listed by name.
				if t.took > 100*time.Millisecond || t.stopped != "" {
					slow = append(slow, fmt.Sprintf("  %v %d nodes, even %v: %v, cost %d, bound %d %s", path, nodes,
						even, t.took.Round(time.Millisecond), t.cost, t.bound, t.stopped))
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(times)
	under := func(limit time.Duration) float64 {
		n, _ := slices.BinarySearch(times, limit)
		return 100 * float64(n) / float64(len(times))
	}
	fmt.Printf("# %d machines, %d plans of 2 to 16 lab nodes: %d proved optimal, %d proved impossible, %d neither\n",
		machines, plans, proved, refused, plans-proved-refused)
	fmt.Printf("%s; %.1f %% under 100 ms, %.1f %% under 2 s\n", spread(times), under(100*time.Millisecond),
		under(2*time.Second))
	for _, s := range slow {
		fmt.Println(s)
	}
	return nil
}

// generatedLab is a lab that takes about two thirds of a host's cores, memory and devices, by equal
// nodes or by nodes of three sizes; empty where there is less than a core for each.
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

// large plans 64 lab nodes on the large host.
func (b *bench) large(ctx context.Context) error {
	h, err := largeHost()
	if err != nil {
		return err
	}
	fmt.Println("# 1,024 CPUs, 16 NUMA nodes, 16 GPUs, 16 NICs with 16 VFs, 64 lab nodes; at most 2 s each")
	for _, c := range largeLabs() {
		times, last, err := timePlans(ctx, h, c.text, 2*time.Second)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		gap := 0.0
		if last.cost > 0 {
			gap = 100 * float64(last.cost-last.bound) / float64(last.cost)
		}
		fmt.Printf("%-44s %s, cost %d, bound %d: within %.2f %%\n", c.name, spread(times), last.cost, last.bound, gap)
	}
	return nil
}

// A namedLab is a lab as text.
type namedLab struct{ name, text string }

// largeLabs are equal, mixed and unequal ones, and one whose nodes leave cores of each NUMA node
// over: bounds that look at a lab node alone are weak there.
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

// growth shows how time and cost grow with lab nodes, devices and NUMA nodes. Combinations that ask
// for more than the part of the host has are left out.
func (b *bench) growth(ctx context.Context) error {
	h, err := largeHost()
	if err != nil {
		return err
	}
	fmt.Println("# growth: lab nodes with a VF and 6 cores each, on 4, 8 and 16 NUMA nodes of the large host; the " +
		"median of 5")
	for _, numa := range []int{4, 8, 16} {
		part, err := partOf(h, numa)
		if err != nil {
			return err
		}
		for _, nodes := range []int{1, 2, 4, 8, 16, 32, 64} {
			if nodes*6+16 > len(part.Cores) {
				continue
			}
			for _, gpus := range []int{0, 1} {
				if gpus*nodes > len(part.GPUs) {
					continue
				}
				text := fmt.Sprintf("name: growth\nnodes: {vm: {count: %d, cpus: 12, memory: 12GiB, vfs: 1, "+
					"gpus: %d}}\n", nodes, gpus)
				times, last, err := timePlans(ctx, part, text, 10*time.Second)
				if err != nil {
					return err
				}
				fmt.Printf("%2d NUMA nodes, %3d devices, %2d lab nodes with %d GPU: %s, cost %d, bound %d\n", numa,
					len(part.GPUs)+len(part.NICs), nodes, gpus, spread(times), last.cost, last.bound)
			}
		}
	}
	return nil
}

// partOf is the large host with only its first NUMA nodes.
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
