package build_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

type corpusShape struct {
	name      string
	nodes     int
	fill      int // percentage of the available cores
	devices   bool
	unequal   bool
	workload  lab.Workload
	hugepages lab.Hugepages
}

var corpusShapes = []corpusShape{
	{"one-nearly-all", 1, 95, true, false, lab.WorkloadRDMALatency, lab.HugepagesAuto},
	{"two-equal", 2, 80, true, false, lab.WorkloadGPUCollective, lab.HugepagesAuto},
	{"three-unequal", 3, 70, false, true, lab.WorkloadCPUBandwidth, lab.Hugepages2MiB},
	{"four-equal", 4, 90, true, false, lab.WorkloadMixed, lab.HugepagesOff},
	{"eight-unequal", 8, 60, true, true, lab.WorkloadRDMABandwidth, lab.HugepagesAuto},
	{"sixteen-equal", 16, 90, false, false, lab.WorkloadGPUCompute, lab.HugepagesAuto},
}

// cut returns false if the machine is too small.
func (s corpusShape) cut(h *topology.Host) (*lab.Lab, bool) {
	probe := labOf(1, cpus(1), memory(256*lab.MiB))
	probe.Hugepages = lab.HugepagesOff
	p, err := build.Problem(h, probe, build.Options{})
	if err != nil {
		return nil, false
	}
	free, pages, memoryKnown := -p.ReserveCores, int64(0), true
	for _, k := range p.Cores {
		if k.Tenant == "" {
			free++
		}
	}
	for _, n := range p.NUMANodes {
		if n.Pages == nil {
			memoryKnown = false
			continue
		}
		pages += *n.Pages
	}
	give := max(s.nodes, free*s.fill/100)
	if free < s.nodes {
		return nil, false
	}
	perNode := lab.GiB
	if memoryKnown {
		perNode = lab.Bytes(pages) * lab.Bytes(p.PageBytes) / lab.Bytes(3*s.nodes) * 2
		perNode -= perNode % (16 * lab.MiB)
		if s.hugepages == lab.HugepagesAuto && perNode > 4*lab.GiB {
			perNode -= perNode % lab.GiB
		}
	}
	if perNode < lab.MinMemory {
		return nil, false
	}
	gpuCount, nicCount, vfCount := 0, 0, 0
	for _, d := range p.Devices {
		switch {
		case d.Kind == plan.KindGPU && d.Whole:
			gpuCount++
		case d.Kind == plan.KindNIC && d.Whole:
			nicCount++
		}
		vfCount += d.VFs
	}
	l := &lab.Lab{Name: s.name, Workload: s.workload, Hugepages: s.hugepages, Tenants: lab.TenantsRead}
	for i := range s.nodes {
		cores := give / (s.nodes - i)
		if s.unequal && i+1 < s.nodes {
			cores = max(1, cores*(3+i%4)/5) // three fifths to six fifths of an equal share
		}
		cores = min(cores, give-(s.nodes-i-1))
		give -= cores
		n := lab.Node{Name: fmt.Sprintf("vm%02d", i), CPUs: cores, Memory: perNode, SMT: lab.Off, GuestNUMA: lab.Auto}
		if s.devices {
			if k := min(2, gpuCount/s.nodes); k > 0 {
				gpus(some(k))(&n)
			}
			switch {
			case nicCount >= s.nodes:
				nics(some(1))(&n)
			case vfCount >= 2*s.nodes:
				vfs(some(1))(&n)
			}
		}
		l.Nodes = append(l.Nodes, n)
	}
	return l, true
}

// machinesToPlan adds a larger collection if RACKLESS_CORPUS names its directory.
func machinesToPlan(t *testing.T) map[string]*topology.Host {
	t.Helper()
	hosts := corpus(t)
	hosts[hostR740] = readHost(t, hostR740)
	root := os.Getenv("RACKLESS_CORPUS")
	if root == "" {
		return hosts
	}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		if h, err := inspect.ReadFile(t.Context(), path); err == nil {
			hosts[strings.TrimPrefix(path, root)] = h
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hosts
}

var long = flag.Bool("long", false, "plan each lab on each machine twice, and not one of four by chance")

// A plan passes its checker, the same twice, or there is a reason for none. With RACKLESS_CORPUS the search has its
// full limit.
func TestEveryMachineIsPlanned(t *testing.T) {
	t.Parallel()
	hosts := machinesToPlan(t)
	// want is the percentage that must be proved.
	limits, want := search.Options{Steps: 1_000_000}, int64(90)
	if os.Getenv("RACKLESS_CORPUS") != "" {
		limits.Steps, want = 0, 95
	}
	everyTwice := *long || limits.Steps == 0
	var planned, provedOnes, infeasible, refused, stopped atomic.Int64
	var slow atomic.Int64
	names := make([]string, 0, len(hosts))
	for name := range hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	t.Run("machines", func(t *testing.T) {
		for _, name := range names {
			t.Run(strings.TrimPrefix(filepath.ToSlash(name), "../../"), func(t *testing.T) {
				t.Parallel()
				for _, s := range corpusShapes {
					l, ok := s.cut(hosts[name])
					if !ok {
						continue
					}
					began := time.Now()
					c, err := solve(t, hosts[name], l, build.Options{}, limits)
					if took := time.Since(began); took > 2*time.Second {
						slow.Add(1)
						t.Logf("%s: %v", s.name, took)
					}
					var request build.RequestErrors
					switch {
					case errors.As(err, &request):
						refused.Add(1)
						checkErrors(t, err)
						continue
					case errors.Is(err, search.ErrInfeasible):
						infeasible.Add(1)
						continue
					case errors.Is(err, search.ErrStopped):
						stopped.Add(1)
						t.Logf("%s: %v", s.name, err)
						continue
					case err != nil:
						t.Errorf("%s: %v", s.name, err)
						continue
					}
					planned.Add(1)
					if c.pl.Optimal {
						provedOnes.Add(1)
					} else {
						t.Logf("%s: cost %d, bound %d, %s", s.name, c.pl.Cost, c.pl.Bound, c.pl.Stopped)
					}
					if !everyTwice && rand.IntN(4) > 0 {
						continue
					}
					again, err := solve(t, hosts[name], l, build.Options{}, limits)
					if err != nil {
						t.Errorf("%s: a plan, and then %v", s.name, err)
						continue
					}
					if diff := cmp.Diff(string(planJSON(t, c.pl)), string(planJSON(t, again.pl))); diff != "" {
						t.Errorf("%s: one plan now and another then (-first +second):\n%s", s.name, diff)
					}
				}
			})
		}
	})
	t.Logf("%d of %d machines: %d plans, %d of them proved, %d took over 2 s; %d labs cannot be placed, %d are "+
		"refused, %d undecided", len(names), len(hosts), planned.Load(),
		provedOnes.Load(), slow.Load(), infeasible.Load(), refused.Load(), stopped.Load())
	if planned.Load() == 0 {
		t.Errorf("no plan for %d machines", len(names))
	}
	if testing.Short() {
		return // of a sample, the shares are chance
	}
	if planned.Load() < int64(len(hosts)) {
		t.Errorf("%d plans for %d machines", planned.Load(), len(hosts))
	}
	if 100*provedOnes.Load() < want*planned.Load() {
		t.Errorf("%d of %d plans are proved; want %d in 100", provedOnes.Load(), planned.Load(), want)
	}
}
