package tool

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

var mpiEngines = []bench.Engine{
	mpiEngine("mpi_latency", mpiTest{osu: osu{program: "osu_multi_lat", test: "Multi Latency"}, pairs: true},
		"one-way latency of MPI messages between pairs of ranks that all send, by message size"),
	mpiEngine("mpi_mbw_mr", mpiTest{osu: osu{program: "osu_mbw_mr", test: "Multiple Bandwidth / Message Rate",
		bandwidth: true}, pairs: true},
		"bandwidth and message rate of all pairs of ranks together, by message size"),
	mpiEngine("mpi_allreduce", mpiTest{osu: osu{program: "osu_allreduce", test: "Allreduce Latency", collective: true,
		word: 4}},
		"time of an MPI all-reduce over all ranks, by message size"),
	mpiEngine("mpi_alltoall", mpiTest{osu: osu{program: "osu_alltoall",
		test: "All-to-All Personalized Exchange Latency", collective: true}},
		"time of an MPI all-to-all over all ranks, by message size"),
}

func mpiEngine(name string, p mpiTest, about string) bench.Engine {
	_, metric := osuTest(p.test)
	metrics := []string{metric}
	if metric == bench.MetricBWAverage {
		metrics = append(metrics, bench.MetricMessageRate)
	}
	return bench.Engine{Name: name, Tool: toolMPI, About: about, Suite: bench.SuiteMPI, Local: true,
		Together: &bench.Group{}, Program: p.osu.program, Others: "mpicc.openmpi mpicc",
		Package: "a compiler for MPI (image: debian-12+mpi in the lab file, or libopenmpi-dev and gcc), or the OSU " +
			"micro-benchmarks",
		Measures: metrics, Launches: true,
		Versions: slices.Concat([]bench.VersionLine{rankProgramVersion}, osuVersions), Plugin: p}
}

type mpiTest struct {
	osu
	pairs bool
}

func (p mpiTest) Check(client, server bench.Endpoint, o bench.Options) error {
	if o.CPU != "" || o.NUMA != "" || client.Place != (bench.Place{}) {
		return errGroupPlace
	}
	if p.word > 0 && o.Bytes%p.word != 0 {
		return fmt.Errorf("it works on numbers of %d bytes: a message of %d bytes is none", p.word, o.Bytes)
	}
	if p.pairs && o.Ranks%2 != 0 {
		return fmt.Errorf("it measures pairs of ranks, and %d is odd", o.Ranks)
	}
	if o.Ranks == 1 {
		return errors.New("one rank sends no messages: it takes two or more")
	}
	return p.osu.Check(client, server, o)
}

var errGroupPlace = errors.New("mpirun binds the ranks of a group to the cores of their nodes: leave out the CPUs " +
	"and NUMA nodes")

func (mpiTest) Prepare(context.Context, bench.AskFunc, bench.Endpoint, bench.Endpoint, *bench.Options) error {
	return nil
}

// Client is for each rank.
func (p mpiTest) Client(_, _ bench.Endpoint, o bench.Options) []string {
	return append([]string{p.osu.program}, p.args(o)...)
}

// args has as many iterations as fit if nodes share this machine's CPUs.
func (p mpiTest) args(o bench.Options) []string {
	if o.Iterations == 0 && o.Accelerator != "kvm" {
		o.Iterations = max(2, p.osu.iterations(o)*2/max(2, p.messages(o.Ranks)))
	}
	return p.osu.args(o)
}

// messages: collective operations have a barrier after each; its steps grow with the logarithm.
func (p mpiTest) messages(ranks int) int {
	steps := 0
	for n := 1; n < ranks; n *= 2 {
		steps++
	}
	switch {
	case p.pairs:
		return ranks
	case p.word > 0:
		return 2 * ranks * steps
	}
	return ranks * (ranks - 1 + steps)
}

func (p mpiTest) Program(o bench.Options) bench.Program {
	return bench.Program{Names: []string{p.osu.program}, Args: p.args(o), Source: rankProgram,
		Build: []string{"-x", "c", "-"}, Takes: "image: debian-12+mpi, or libopenmpi-dev and gcc",
		SourceArgs: []string{strings.TrimPrefix(p.osu.program, "osu_")}}
}

//go:embed programs/mpi.c
var rankProgram string

var rankProgramVersion = bench.VersionLine{Name: "rackless ",
	Line: lazyregexp.New(`(?m)^# rackless MPI.* Test v([0-9]+)\s*$`)}
