//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/measure"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
)

type benchFlags struct {
	measure.Request
	pairs  string
	tests  []string
	anyway bool
	all    bool
	output string
}

// maxRepeat finds typing errors.
const maxRepeat = 1000

// newBenchCmd's flags describe one measurement; a study varies them.
func newBenchCmd(a *app) *cobra.Command {
	f := benchFlags{pairs: bench.PairsAuto}
	cmd := &cobra.Command{
		Use:               "bench [NAME|LAB.yaml]",
		Short:             "Measure bandwidth and latency between the nodes of a running lab",
		Args:              cli.MaxArgs(1, "one lab or lab file"),
		ValidArgsFunction: a.completeLabs,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.bench(cmd.Context(), args, f) },
	}
	names := func(all []bench.Engine) []string {
		return lists.Map(all, func(e bench.Engine) string { return e.Name })
	}
	// Suites need tools that some nodes lack.
	fs := cmd.Flags()
	fs.StringVar(&f.pairs, "pairs", bench.PairsAuto, "which pairs of nodes: all, first (each other node to the "+
		"first), ring, auto (all of up to 5 nodes, a ring of more), or by name, as vm01:vm00 for client and server")
	fs.StringSliceVar(&f.tests, "tests", nil,
		"which tests, comma-separated (default all: "+strings.Join(names(tool.Engines()), ", ")+")")
	fs.StringVar(&f.Suite, "suite", "", "the tests of a suite: "+strings.Join(bench.Suites(), ", "))
	fs.BoolVar(&f.Options.Quick, "quick", false, "one size and about a second per test")
	fs.Int64Var(&f.Options.Bytes, "bytes", 0, "one message size instead of all")
	fs.IntVar(&f.Options.Iterations, "iterations", 0,
		"iterations for each size (default: as many as take a few seconds)")
	fs.IntVar(&f.Options.Seconds, "seconds", 0, "duration of tests that run for a time (default 5, 2 with --quick)")
	fs.StringVar(&f.Options.CPU, "cpu", "", "CPUs of the nodes to run on, as 0-3,8 (default: not pinned)")
	fs.StringVar(&f.Options.NUMA, "numa", "", "NUMA nodes of the nodes to take memory from, as 0")
	fs.StringVar(&f.ServerCPU, "server-cpu", "", "CPUs of the server's node to run on (default: as --cpu)")
	fs.StringVar(&f.ServerNUMA, "server-numa", "",
		"NUMA nodes of the server's node to take memory from (default: as --numa)")
	fs.IntVar(&f.WarmUps, "warm-ups", 0, "measurements before each one, whose figures are dropped")
	fs.IntVar(&f.Repeat, "repeat", 1, "how often everything is measured: the page shows medians and their spread")
	fs.DurationVar(&f.CoolDown, "cool-down", 0, "wait before each measurement")
	fs.BoolVar(&f.Continue, "continue", false, "continue the same measurement after an interruption")
	fs.BoolVar(&f.anyway, "anyway", false, "measure although a check failed, or a study runs on this machine")
	fs.BoolVar(&f.all, "all", false, "print all message sizes that were measured, not only the usual ones")
	outputFlag(cmd, &f.output)
	cli.OfferWords(cmd, "tests", names(tool.Catalogue())...)
	cli.OfferWords(cmd, "suite", bench.Suites()...)
	cli.OfferWords(cmd, "pairs", bench.PairsAuto, bench.PairsAll, bench.PairsFirst, bench.PairsRing)
	cmd.AddCommand(newReportCmd(a), newBaselineCmd(a), newResultsCheckCmd(a))
	return cmd
}

// bench makes cheap checks first: the options, then a running study, then the lab.
func (a *app) bench(ctx context.Context, args []string, f benchFlags) error {
	engines, err := tool.Select(f.Suite, f.tests)
	if err = cmp.Or(err, bench.CheckPairs(f.pairs)); err != nil {
		return cli.Usage(err)
	}
	if f.WarmUps < 0 || f.CoolDown < 0 || f.Repeat < 1 || f.Repeat > maxRepeat {
		return cli.Usage(fmt.Errorf("--warm-ups %d, --cool-down %v, --repeat %d: the first two are 0 or more, "+
			"the last 1 to %d", f.WarmUps, f.CoolDown, f.Repeat, maxRepeat))
	}
	// A measurement beside a running study would spoil the figures of both.
	if by, err := a.studyHolder(); err != nil {
		return err
	} else if by != nil && !f.anyway {
		return fmt.Errorf("a study runs on this machine (%v): the two would measure each other, and its figures be "+
			"spoilt; wait for it, or measure with --anyway all the same", by)
	}
	r, err := a.openOne(args)
	if err != nil {
		return err
	}
	defer r.Close()
	pairs, err := bench.Pairs(r.Lab.NodeNames(), f.pairs)
	if err != nil {
		return cli.Usage(err)
	}

	dirs, err := a.dirs()
	if err != nil {
		return err
	}
	kept, err := a.results()
	if err != nil {
		return err
	}
	f.Engines, f.Pairs, f.Images, f.Journal = engines, pairs, dirs.Images(), kept.Unfinished(r.Lab.Name)
	p, end := a.progress()
	defer end()
	// For a later reader of the result.
	verify := func() ([]finding.Finding, error) {
		findings, err := checks.Lab(ctx, r.Lab, r, nil, p.Begin)
		p.End(err)
		// A faulty lab gives figures that look right.
		if bad := finding.NotOK(findings); err == nil && len(bad) > 0 && !f.anyway {
			end()
			err = cmp.Or(a.show(report.Findings(bad, a.color())), faultf("lab %s: %d checks failed: what is measured "+
				"now would not be what it seems; --anyway measures all the same", r.Lab.Name, len(bad)))
		}
		return findings, err
	}
	data, err := measure.Run(ctx, r, f.Request, verify, p, version)
	end()
	if err != nil {
		return err
	}
	data.HostPicture = hostPicture(ctx)
	return a.keepMeasured(kept, data, f)
}

// hostPicture returns "" if the machine cannot be read.
func hostPicture(ctx context.Context) string {
	var svg strings.Builder
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil || hostview.NewDocument(h, diagnose.Host(h)).WriteSVG(&svg) != nil {
		return ""
	}
	return svg.String()
}

// keepMeasured prints the measurements even if storing fails, for example on a full disk.
func (a *app) keepMeasured(kept results.Store, data record.Record, f benchFlags) error {
	dir, unsaved := kept.Save(data, report.Page)
	if unsaved != nil {
		unsaved = fmt.Errorf("the figures above are not kept: %w", unsaved)
	}
	if show.ForPrograms(f.output) {
		return errors.Join(a.printSamples(f.output, data.Samples), unsaved, faults(data.Samples))
	}
	if err := a.printMeasurement(data, f.all); err != nil {
		return errors.Join(err, unsaved)
	}
	if unsaved == nil {
		a.printPaths(dir)
	}
	return errors.Join(unsaved, faults(data.Samples))
}

// printSamples prints nothing if one sample is empty.
func (a *app) printSamples(form string, samples []bench.Sample) error {
	var lines bytes.Buffer
	err := bench.WriteSamples(&lines, samples)
	for line := range bytes.Lines(lines.Bytes()) {
		err = errors.Join(err, show.EncodeNext(a.out, form, json.RawMessage(line)))
	}
	return err
}

// faults is for failures that are already printed.
func faults(samples []bench.Sample) error {
	n := lists.Count(samples, func(s bench.Sample) bool { return s.Error != "" })
	if n == 0 {
		return nil
	}
	return faultf("measurements that failed: %d", n)
}
