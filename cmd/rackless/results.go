package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/diagnose"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/appraise"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/importer"
	"github.com/rackless/rackless/study/store"
)

// newResultsQueryCmd answers questions that no verb covers.
func newResultsQueryCmd(a *app) *cobra.Command {
	var path string
	format := formTable
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "query SQL",
		Short: "Query the study database in SQL, read-only",
		Args:  cli.ExactArgs(1, "a question in SQL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.readStudies(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer db.Close()
			ctx, cancel := cmd.Context(), func() {}
			if limit > 0 {
				ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("the query was stopped after %v: "+
					"--timeout allows it more time, or 0 any", limit))
			}
			defer cancel()
			head, row, end := show.Rows(a.out, format)
			err = db.Query(ctx, args[0], head, row)
			switch {
			case errors.Is(err, show.ErrFull):
				fmt.Fprintln(a.err, err)
			case err != nil && ctx.Err() != nil:
				return context.Cause(ctx) // it may pass before SQLite starts
			case err != nil:
				return cli.Usage(err) // an error of SQLite means a wrong statement: a usage error
			}
			return end()
		},
	}
	dbFlag(cmd, &path)
	cli.EnumFlag(cmd, &format, "output", "o", "how to print the result", "table", "csv", formatJSON, formatYAML)
	cli.Renamed(cmd, "format", "", "output")
	cmd.Flags().DurationVar(&limit, "timeout", time.Minute, "stop the query after this `TIME`; 0: never")
	return cmd
}

// newResultsCheckCmd needs neither lab nor study: logs may be of any machine.
func newResultsCheckCmd(a *app) *cobra.Command {
	var host hostFlag
	var device, format string
	options := importer.Options{Version: version, Name: "check", Excerpt: true}
	cmd := &cobra.Command{
		Use:   "check [LEVEL=]PATH...",
		Short: "Compare the figures of logs with a machine: are they normal, and if not, what limits them",
		Args:  cli.SomeArgs("a log or a directory of logs"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.resultsCheck(cmd.Context(), options, host.host, device, format, args)
		},
	}
	host.add(cmd, "the machine that was measured,")
	cmd.Flags().StringVar(&device, "device", "",
		"the RDMA or network device `NAME` of the machine that was measured (default: the one that a log names, or "+
			"the fastest)")
	cli.EnumFlag(cmd, &options.Format, "format", "", "what the logs are", importer.Formats()...)
	outputFlag(cmd, &format)
	return cmd
}

// openSources reads standard input only on demand.
func (a *app) openSources(args []string) (sources []importer.Source, closeAll func(), err error) {
	if !slices.Contains(args, conduct.Stdin) {
		return conduct.OpenSources(args, nil)
	}
	in := userfile.Stream(a.in, "standard input")
	defer in.Close()
	return conduct.OpenSources(args, in)
}

// resultsCheck always prints the result: the status is for scripts, the reasons are for people.
func (a *app) resultsCheck(ctx context.Context, o importer.Options, host, device, format string,
	args []string) error {
	if host == conduct.Stdin && slices.Contains(args, conduct.Stdin) {
		return cli.Usage(errors.New("standard input is either the log or the machine: name a file for one of them"))
	}
	// Reading the machine takes seconds; a wrong name is reported at once.
	sources, closeAll, err := a.openSources(args)
	if err != nil {
		return cli.Usage(err)
	}
	defer closeAll()
	// The figures of a bundle are of the host of the bundle.
	if bundle, _ := inspect.OpenBundle(args[0]); bundle != nil && len(args) == 1 && host == planner.Local {
		host = args[0]
	}
	h, name, err := a.hosts().Read(ctx, host)
	if err != nil {
		return err
	}
	studies, err := importer.Import(sources, o)
	if err != nil {
		return ofMachine(ctx, err)
	}
	out := appraise.NewResult(name, h, diagnose.Host(h), studies, device)
	bad, unknown := out.Count()
	switch err := a.print(format, out, report.Appraisal(out)); {
	case err != nil:
		return err
	// A figure without a known expectation is not a fault of the machine. If none has one, the question is unanswered,
	// which must not look like success.
	case unknown == len(out.Figures):
		if unknown == 1 {
			return fmt.Errorf("the one figure cannot be compared with %s", out.Host)
		}
		return fmt.Errorf("none of %d figures can be compared with %s", unknown, out.Host)
	case bad > 0:
		return faultf("not what %s should give: %d of %s", out.Host, bad, words.Count(len(out.Figures), "figure"))
	}
	return nil
}

func ofMachine(ctx context.Context, err error) error {
	wrong, ok := errors.AsType[*importer.Error](err)
	if !ok || !wrong.Unknown {
		return err
	}
	if _, unread := inspect.ReadFile(ctx, wrong.File); unread != nil {
		return err
	}
	return fmt.Errorf("%s describes a machine, and is no result: rackless inspect reads it", wrong.File)
}

type resultsImportOptions struct {
	importer.Options
	db      string
	replace bool
}

func newResultsImportCmd(a *app) *cobra.Command {
	o := resultsImportOptions{Options: importer.Options{Version: version}}
	cmd := &cobra.Command{
		Use:   "import [LEVEL=]PATH...",
		Short: "Import other people's results as a study",
		Args:  cli.SomeArgs("a file or directory of results"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.resultsImport(cmd.Context(), o, args) },
	}
	dbFlag(cmd, &o.db)
	cli.EnumFlag(cmd, &o.Format, "format", "", "what the results are", importer.Formats()...)
	cmd.Flags().StringVar(&o.Name, "name", "", "`NAME` of the study (default: that of the first PATH)")
	cmd.Flags().StringVar(&o.Factor, "factor", "", "`NAME` of the factor whose levels the logs are (default: variant)")
	cmd.Flags().BoolVar(&o.replace, "replace", false, "replace a study of the same name")
	return cmd
}

// resultsImport stores nothing if one result cannot be parsed.
func (a *app) resultsImport(ctx context.Context, o resultsImportOptions, args []string) error {
	sources, closeAll, err := a.openSources(args)
	if err != nil {
		return cli.Usage(err)
	}
	defer closeAll()
	studies, err := importer.Import(sources, o.Options)
	if err != nil {
		return fmt.Errorf("%w\nnothing was imported", ofMachine(ctx, err))
	}
	path, err := a.dbPath(o.db)
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	// A second import of the same files must not find half of the first.
	err = errors.Join(conduct.Keep(ctx, db, studies, version, time.Now(), o.replace), db.Close())
	if errors.Is(err, store.ErrTaken) {
		return fmt.Errorf("%w; give the import another --name, or let it take that one's place with "+
			"--replace\nnothing was imported", err)
	}
	if err != nil {
		return err
	}
	for _, s := range studies {
		fmt.Fprint(a.out, s.Text())
	}
	fmt.Fprintf(a.out, "kept in %s; see it with: rackless study report %s\n", path, studies[0].Spec.Name)
	return nil
}

// newResultsRawCmd prints evidence byte by byte.
func newResultsRawCmd(a *app) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "raw RUN",
		Short: "Print the original output of the tools of a run",
		Args:  cli.ExactArgs(1, "the number of a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || run < 1 {
				return cli.Usagef(cmd, "run %q: want a number, as the column run of the view sample has them", args[0])
			}
			db, err := a.readStudies(cmd.Context(), path)
			if err != nil {
				return err
			}
			defer db.Close()
			all, err := db.Invocations(cmd.Context(), run)
			if err != nil {
				return err
			}
			// Imported runs have no raw output. An empty answer would look as if the tools had printed nothing.
			if len(all) == 0 {
				return fmt.Errorf("run %d has started no tool", run)
			}
			for i, x := range all {
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				if err := conduct.WriteInvocation(a.out, x); err != nil {
					return fmt.Errorf("run %d: %w", run, err)
				}
			}
			return nil
		},
	}
	dbFlag(cmd, &path)
	return cmd
}
