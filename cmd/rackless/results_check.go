package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/appraise"
	"github.com/rackless/rackless/diagnose"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/importer"
)

// checkedResults is what results check prints as JSON, see docs/json.md.
type checkedResults struct {
	Host    string            `json:"host"`
	OK      bool              `json:"ok"`
	Figures []appraise.Figure `json:"figures"`
	Failed  []string          `json:"failed,omitempty"` // tests that gave no figure, with the reason
}

func newResultsCheckCmd(a *app) *cobra.Command {
	var snapshot, device, format string
	options := importer.Options{Version: version, Name: "check"}
	cmd := &cobra.Command{
		Use:   "check [LEVEL=]PATH...",
		Short: "Hold the figures of logs against a machine: are they normal, and if not, what limits them",
		Long: `Reads logs as results import does, and holds each figure against what the machine carries: the wire
with its headers, the narrowest PCIe link between a device and the host, the MTU, the path between
GPUs. The machine is what --snapshot names (anything that inspect reads), else this one.

  normal    what such a path gives at its best
  limited   as much as the machine gives as it is set up; it says what limits it
  low       less than that; likely causes, and findings of the devices on the way
  above     more than the machine can carry: it was measured on another one, or went another way
  unknown   nothing says what it should be: CPU and storage tests, latencies

The device is the one that the log names, as perftest's logs do, else --device. The other end is
taken for one like this. Nothing is kept.

The exit status is 3 if a figure is low, above, or limited where a device on the way has a finding,
and 1 if no figure can be held against anything.`,
		Example: `  rackless results check ib_write_bw.txt --snapshot node1.tar.zst
  rackless results check nvbandwidth.json -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "want a log or a directory of logs")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resultsCheck(cmd.Context(), options, snapshot, device, format, args)
		},
	}
	cmd.Flags().StringVar(&snapshot, "snapshot", planner.Local, "the machine that was measured: a file or directory "+
		"`PATH` that inspect reads, \"-\" or local")
	cmd.Flags().StringVar(&device, "device", "",
		"the RDMA or network device `NAME` of logs that name none (default: the "+
			"fastest)")
	enumFlag(cmd, &options.Format, "format", "", "what the logs are", importer.Formats()...)
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) resultsCheck(ctx context.Context, o importer.Options, snapshot, device, format string,
	args []string) error {
	var sources []importer.Source
	for _, arg := range args {
		src, closer, err := conduct.OpenSource(arg)
		if err != nil {
			return usage(err)
		}
		defer closer()
		sources = append(sources, src)
	}
	h, name, err := planner.ReadHost(ctx, snapshot, a.in)
	if err != nil {
		return err
	}
	studies, err := importer.Import(sources, o)
	if err != nil {
		return err
	}
	out := checkedResults{Host: name, OK: true}
	out.Figures = appraise.Check(h, diagnose.Host(h), studies, device)
	for _, s := range studies {
		for _, r := range s.Runs {
			out.Failed = append(out.Failed, r.Failures...)
		}
	}
	bad, unknown := 0, 0
	for i := range out.Figures {
		switch {
		case out.Figures[i].Faulty():
			bad, out.OK = bad+1, false
		case out.Figures[i].Verdict == appraise.Unknown:
			unknown++
		}
	}
	switch err := a.print(format, out, out.text()); {
	case err != nil:
		return err
	case unknown == len(out.Figures):
		return fmt.Errorf("none of %s can be held against %s", words.Count(unknown, "figure"), out.Host)
	case bad > 0:
		return faultf("not what %s should give: %d of %s", out.Host, bad, words.Count(len(out.Figures), "figure"))
	}
	return nil
}

// text is the figures as a table, and below it what is to be said of each.
func (c *checkedResults) text() string {
	g := show.NewGrid("test", "bytes>", "measured>", "unit", "verdict")
	for _, f := range c.Figures {
		size := ""
		if f.Bytes > 0 {
			size = show.Size(f.Bytes)
		}
		g.Add(words.Printable(f.Test), size, show.Figure(f.Value), f.Unit, f.Verdict)
	}
	var b strings.Builder
	fmt.Fprint(&b, g)
	line := func(format string, args ...any) { fmt.Fprintln(&b, words.Printable(fmt.Sprintf(format, args...))) }
	for _, f := range c.Figures {
		line("")
		line("%s, %s: %s", f.Test, f.Verdict, f.Text)
		for _, cause := range f.Causes {
			what := cause.What
			if cause.Possible {
				what = "perhaps: " + what
			}
			line("  %s: %s", what, cause.Evidence)
			line("    fix: %s", cause.Fix)
		}
		for _, x := range f.Findings {
			line("  %s %s, %s: %s", x.ID, x.Severity, x.Subject, x.Title)
			line("    fix: %s", x.Fix)
		}
	}
	for _, why := range c.Failed {
		line("failed: %s", why)
	}
	return b.String()
}
