package tool

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lazyregexp"
)

// MPI only starts the ranks of these engines.

const glooPackage = "image: debian-12+ai+mpi in the lab file, or libgloo-dev, g++ and libopenmpi-dev"

var allReduceEngines = []bench.Engine{
	allReduceEngine(bench.Engine{Name: "gloo_all_reduce", Tool: toolGloo, Program: "mpicc.openmpi", Others: "mpicc",
		Package:        glooPackage,
		VersionCommand: []string{"dpkg-query", "-W", "-f", "Version: ${Version}\n", "libgloo0"},
		Versions:       []bench.VersionLine{{Name: "", Line: lazyregexp.New(`(?m)^Version: ([0-9]\S*)`)}},
		Plugin:         glooTest{allReduce}}),
	allReduceEngine(bench.Engine{Name: "ucc_all_reduce", Tool: toolUCC, Program: "ucc_perftest",
		Package:        "UCC (1.2 or later), built with the nodes' UCX and Open MPI",
		VersionCommand: []string{"ucc_info", "-v"},
		Versions:       []bench.VersionLine{{Name: "", Line: lazyregexp.New(`(?m)^# UCC version=([0-9][\w.]*)`)}},
		Plugin:         uccTest{allReduce}}),
}

var allReduce = mpiTest{osu: osu{program: "osu_allreduce", test: "Allreduce Latency", collective: true, word: 4}}

func allReduceEngine(e bench.Engine) bench.Engine {
	e.Suite, e.Local, e.Together, e.Launches, e.Measures = bench.SuiteAI, true, &bench.Group{}, true,
		[]string{bench.MetricCollectiveTime}
	e.About = fmt.Sprintf("time of an all-reduce by %s over all ranks, by message size", e.Tool)
	e.Versions = slices.Concat(e.Versions, osuVersions[1:2])
	return e
}

type glooTest struct{ mpiTest }

//go:embed programs/gloo.cc
var glooProgram string

func (p glooTest) Program(o bench.Options) bench.Program {
	return bench.Program{Source: glooProgram, Build: []string{"-x", "c++", "-", "-lgloo", "-lstdc++", "-lpthread"},
		Takes: glooPackage, Args: p.args(o), Own: true}
}

func (p glooTest) Client(_, _ bench.Endpoint, o bench.Options) []string {
	return append([]string{"gloo_all_reduce"}, p.args(o)...)
}

func (glooTest) Prepare(ctx context.Context, ask bench.AskFunc, client, _ bench.Endpoint, _ *bench.Options) error {
	out, err := ask(ctx, client.Node, "test", "-e", "/usr/include/gloo/context.h")
	if err == nil && out.ExitCode != 0 {
		err = bench.Unfit(client.Node, "Gloo is not installed: it takes %s", glooPackage)
	}
	return err
}

type uccTest struct{ mpiTest }

func (p uccTest) Program(o bench.Options) bench.Program {
	return bench.Program{Names: []string{"ucc_perftest"}, Args: p.Client(bench.Endpoint{}, bench.Endpoint{}, o)[1:],
		Own: true}
}

// Client takes counts of floats in place of sizes.
func (p uccTest) Client(_, _ bench.Endpoint, o bench.Options) []string {
	first, last := p.sizes(o)
	args := []string{"ucc_perftest", "-c", "allreduce", "-m", "host", "-d", "float32", "-o", "sum", "-b",
		strconv.FormatInt(first/p.word, 10), "-e", strconv.FormatInt(last/p.word, 10)}
	osu := p.args(o)
	for i := 2; i+1 < len(osu); i += 2 {
		args = append(args, map[string]string{"-i": "-n", "-x": "-w"}[osu[i]], osu[i+1])
	}
	return args
}

func (p uccTest) Parse(out bench.Output, o bench.Options) ([]bench.Figure, error) {
	figures, err := parseUCC(out.Stdout)
	if err != nil {
		return nil, err
	}
	first, last := p.sizes(o)
	if figures[0].Bytes != first || figures[len(figures)-1].Bytes != last {
		return nil, bench.BadOutput(toolUCC, out.Stdout,
			fmt.Sprintf("the table is cut off: it has no messages of %d to %d bytes", first, last))
	}
	return figures, nil
}

var (
	uccHead    = lazyregexp.New(`^\s*Count\s+Size\s+Time, us\s*$`)
	uccColumns = []column{{title: "Count", kind: columnOther}, {title: "Size", kind: columnBytes},
		{title: "avg", metric: bench.MetricCollectiveTime}, {title: "min", kind: columnOther},
		{title: "max", kind: columnOther}}
)

func parseUCC(output []byte) (figures []bench.Figure, err error) {
	below := false
	err = bench.EachLine(toolUCC, output, func(line string) error {
		fields := strings.Fields(line)
		switch {
		case uccHead().MatchString(line):
			below = true
		case !below || len(fields) == 0 || fields[0] == "avg" || strings.Trim(fields[0], "0123456789") != "":
		case !strings.HasSuffix(line, "\n"):
			return errors.New("the output ends within a row")
		default:
			row, err := makeRow(uccColumns, fields, Row{})
			if n := len(figures); err == nil && n > 0 && row.Bytes != 2*figures[n-1].Bytes {
				err = fmt.Errorf("%d bytes come after %d: a row is missing", row.Bytes, figures[n-1].Bytes)
			}
			figures = append(figures, row.Figures...)
			return err
		}
		return nil
	})
	if err == nil && len(figures) == 0 {
		err = bench.BadOutput(toolUCC, output, "there is no row of a table")
	}
	return figures, err
}
