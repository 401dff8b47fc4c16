// Package tool has the engines of package bench.
//
// All parsers follow the same rules, because a wrong figure is worse than none. They find columns by their titles and
// never by their places, and refuse every unknown title, unit and line in a table. A table must be whole, and if a tool
// prints the same thing twice, the two must agree. A value of zero is a failure, unless bench/metric.go says otherwise.
package tool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
)

// Names of the tools, as in Sample.Tool.
const (
	Perftest        = "perftest"
	toolIperf3      = "iperf3"
	toolPing        = "ping"
	toolSysbench    = "sysbench"
	toolStressNG    = "stress-ng"
	toolUCX         = "ucx"
	toolFiPingpong  = "libfabric"
	toolNCCLTests   = "nccl-tests"
	toolOSU         = "osu"
	tool7Zip        = "7-zip"
	toolLMBench     = "lmbench"
	toolNVBandwidth = "nvbandwidth"
	toolMPI         = "mpi"
	toolLAMMPS      = "lammps"
	toolGROMACS     = "gromacs"
	toolOpenFOAM    = "openfoam"
	toolHPCC        = "hpcc"
	toolMooncake    = "mooncake"
	toolNIXL        = "nixl"
	toolGloo        = "gloo"
	toolUCC         = "ucc"
	toolVRAM        = "vram"
)

type noSetup struct{}

func (noSetup) Check(client, server bench.Endpoint, o bench.Options) error { return nil }

func (noSetup) Prepare(context.Context, bench.AskFunc, bench.Endpoint, bench.Endpoint, *bench.Options) error {
	return nil
}

func (noSetup) Server(bench.Endpoint, bench.Options) []string { return nil }

// catalogue has the order to run them.
var catalogue = slices.Concat(perftestEngines, iperf3Engines, pingEngines, ucxEngines, fiPingpongEngines, hostTools,
	nvbandwidthEngines, ncclEngines, osuEngines, mpiEngines, applications, transferEngines, allReduceEngines,
	vramEngines)

// defaults need tools that every node image contains.
var defaults = []string{"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat", "ib_read_lat",
	"ib_atomic_lat", "iperf3"}

// Engines returns the defaults, in order. All measure between two nodes.
func Engines() []bench.Engine {
	return slices.DeleteFunc(Catalogue(), func(e bench.Engine) bool { return !slices.Contains(defaults, e.Name) })
}

// Catalogue returns all engines, in the order to run them.
func Catalogue() []bench.Engine { return slices.Clone(catalogue) }

// EngineByName takes words after slashes, see docs/measuring.md.
func EngineByName(name string) (bench.Engine, error) {
	base, words, varied := strings.Cut(name, "/")
	i := slices.IndexFunc(catalogue, func(e bench.Engine) bool { return e.Name == base })
	if i < 0 {
		names := lists.Map(catalogue, func(e bench.Engine) string { return e.Name })
		hint := "use one of " + strings.Join(names, ", ")
		if near := strictyaml.Nearest(base, names); near != "" {
			hint = "did you mean " + near + "? " + hint
		}
		return bench.Engine{}, fmt.Errorf("there is no test %q; %s", name, hint)
	}
	if !varied {
		return catalogue[i], nil
	}
	e, err := variant(catalogue[i], strings.Split(words, "/"))
	if err != nil {
		return bench.Engine{}, fmt.Errorf("test %q: %w", name, err)
	}
	return e, nil
}

func variant(e bench.Engine, words []string) (bench.Engine, error) {
	if e.Suite == bench.SuiteMemory {
		return onNUMANodes(e, words)
	}
	if e.Together != nil {
		var g bench.Group
		err := applyAll(words, g.Apply)
		return e.In(g), err
	}
	switch p := e.Plugin.(type) {
	case transfer:
		err := applyAll(words, p.apply)
		e.Plugin, e.Name = p, p.name()
		return e, err
	case vramWrite:
		err := applyAll(words, p.apply)
		e.Plugin, e.Name = p, p.name()
		return e, err
	case perftest:
		err := applyAll(words, p.apply)
		err = cmp.Or(err, p.permitted())
		e.Plugin, e.Name, e.Measures = p, p.name(), p.metrics()
		return e, err
	}
	return bench.Engine{}, fmt.Errorf("%s has no variants", e.Name)
}

func applyAll(words []string, apply func(word string) error) (err error) {
	for _, w := range words {
		err = cmp.Or(err, apply(w))
	}
	return err
}

// variants: several queue pairs, both directions and a time limit are only for writes, because other operations take as
// long and add little.
var variants = []string{
	"ib_write_bw/uc", "ib_send_bw/uc", "ib_send_bw/ud", "ib_write_bw/imm", "ib_atomic_bw/cas",
	"ib_write_lat/uc", "ib_send_lat/uc", "ib_send_lat/ud", "ib_write_lat/imm", "ib_atomic_lat/cas",
	"ib_write_bw/q4", "ib_write_bw/bidi", "ib_write_bw/timed",
	"ib_write_bw/cuda0", "ib_write_bw/cuda0/dmabuf",
}

// Suite returns engines that not every node can run, see Runner.Fits.
func Suite(name string) ([]bench.Engine, error) {
	if !slices.Contains(bench.Suites(), name) {
		return nil, fmt.Errorf("find suite %q: unknown; use one of %s", name, strings.Join(bench.Suites(), ", "))
	}
	if name == bench.SuiteGPUDirect {
		return GPUDirect(1, 1), nil
	}
	out := slices.DeleteFunc(Catalogue(), func(e bench.Engine) bool {
		return e.Suite == bench.SuiteGPUDirect || name != bench.SuiteAll && e.Suite != name
	})
	if name != bench.SuiteRDMA && name != bench.SuiteAll {
		return out, nil
	}
	for _, v := range variants {
		e, err := EngineByName(v)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Select returns the engines of a suite, with these names, or by default.
func Select(suite string, names []string) (out []bench.Engine, err error) {
	switch {
	case suite != "" && len(names) > 0:
		return nil, errors.New("--suite and --tests exclude each other")
	case suite != "":
		return Suite(suite)
	case len(names) == 0:
		return Engines(), nil
	}
	for _, n := range names {
		e, err := EngineByName(strings.TrimSpace(n))
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}
