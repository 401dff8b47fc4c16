package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/advise"
	"github.com/rackless/rackless/plan/rivals"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/report/planview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/topology"
)

// planOptions are the flags of plan.
type planOptions struct {
	hostFlags
	form    string
	model   string
	outDir  string
	explain bool
	compare bool
	dump    bool
	whatif  []string
	limit   time.Duration
	steps   int64 // of the search; 0 is the usual limit
}

// newPlanCmd makes rackless plan. It never changes the host, so it needs no root and can plan for another machine.
func newPlanCmd(a *app) *cobra.Command {
	o := planOptions{form: formTable, limit: planner.DefaultLimit}
	cmd := &cobra.Command{
		Use: "plan [LAB.yaml]",
		Short: "Place the nodes of a lab on a host, prove that no cheaper placement exists, and write " +
			"the files",
		Args:              cli.MaxArgs(1, "one LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			file, err := labFile(cmd, args)
			if err != nil {
				return err
			}
			return a.plan(cmd.Context(), o, file)
		},
	}
	cli.EnumFlag(cmd, &o.form, "output", "o", "how to print the plan", formTable, formatJSON,
		formatYAML, formSVG, formHTML)
	f := cmd.Flags()
	o.add(cmd, "plan for")
	f.StringVar(&o.model, "model", "", "take weights and measured GPU-NIC bandwidths from `FILE`")
	f.BoolVar(&o.explain, "explain", false, "give the reason for each choice, and the cost of the next best")
	f.BoolVar(&o.compare, "compare", false, "place the same lab as libvirt does by default and by hand, and compare")
	f.StringArrayVar(&o.whatif, "whatif", nil, "plan again after the change `EDIT`, and show the difference")
	f.StringVar(&o.outDir, "out", "", "write the artefacts of the plan to `DIR`")
	f.BoolVar(&o.dump, "dump-problem", false, "print the whole problem as JSON, for another solver, and do not "+
		"solve it")
	f.DurationVar(&o.limit, "time-limit", o.limit, "stop after this `TIME`, with the best plan so far; the usual "+
		"limit of steps does not count then")
	cli.OfferWords(cmd, "whatif")
	cli.OfferWords(cmd, "time-limit")
	cli.Offer(cmd, "out", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	})
	return cmd
}

// check refuses flags that contradict each other, that would not count, or whose value is empty: a
// variable of a script that is not set.
func (o *planOptions) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if err := o.hostFlags.check(cmd, "a file or directory", "model", "out"); err != nil {
		return err
	}
	if o.limit <= 0 {
		return cli.Usagef(cmd, "--time-limit %v: want more than 0", o.limit)
	}
	if f.Changed("time-limit") {
		o.steps = math.MaxInt64 // who says how long waits as long
	}
	// without refuses the flags of a list that stand beside one.
	without := func(one, why string, names ...string) error {
		for _, name := range names {
			if f.Changed(name) {
				return cli.Usagef(cmd, "--%s and --%s do not go together: %s", one, name, why)
			}
		}
		return nil
	}
	drawn := o.form == formSVG || o.form == formHTML
	switch {
	case drawn && (o.dump || o.compare || o.explain && o.form == formSVG):
		return cli.Usagef(cmd, "-o %s draws one plan: it cannot be combined with --dump-problem or "+
			"--compare, and --explain is for -o html", o.form)
	case o.dump:
		return without("dump-problem", "it prints the problem and does not solve it", "explain", "compare", "out",
			"time-limit")
	}
	return nil
}

// plan plans one lab on one host.
func (a *app) plan(ctx context.Context, o planOptions, labFile string) error {
	l, err := loadLab(labFile)
	if err != nil {
		return err
	}
	h, name, err := planner.ReadHost(ctx, planner.HostOf(l, o.chosen()), a.in)
	if err != nil {
		return err
	}
	q, err := planner.New(name, labFile, l, o.model)
	if err != nil {
		return cli.Usage(err)
	}
	q.Limit, q.Steps, q.Explain, q.Compare = o.limit, o.steps, o.explain, o.compare
	edits := make([]advise.Edit, len(o.whatif))
	// Edits are read before anything is planned: a slip in the second costs no search for the first.
	for i, text := range o.whatif {
		if edits[i], err = advise.ParseEdit(text); err != nil {
			return cli.Usage(err) // it says --whatif's text
		}
	}
	if o.dump {
		// What is dumped is what would be solved: with the edits.
		for _, e := range edits {
			if h, l, err = e.Apply(h, l); err != nil {
				return cli.Usage(err)
			}
		}
		if o.form == formTable {
			o.form = formatJSON // a problem is for programs alone
		}
		p, err := q.Problem(h, l)
		if err != nil {
			return a.refused(o.form, &q, err)
		}
		return show.Encode(a.out, o.form, p)
	}
	// Without edits there is one search; with edits there are two, and the difference between them is
	// printed.
	solve := q.Solve
	if len(edits) > 0 {
		solve = func(ctx context.Context, h *topology.Host, l *lab.Lab) (*planner.Planned, error) {
			return q.WhatIf(ctx, h, l, o.whatif, edits)
		}
	}
	r, err := solve(ctx, h, l)
	if err != nil {
		return a.refused(o.form, &q, err)
	}
	return a.finishPlan(&o, &q, r)
}

// refused prints why there is no plan, in the form that was asked for; any other error it returns as it is.
func (a *app) refused(form string, q *planner.Query, err error) error {
	// That a lab does not fit is an answer, and not a failure: programs get it in the form that they asked for.
	fits := !errors.As(err, new(*plan.Infeasible))
	if reason := planner.Reason(err); reason != nil && show.ForPrograms(form) {
		if failed := show.Encode(a.out, form, reason); failed != nil {
			return failed
		}
		if !fits {
			return cli.Exit(exitFaults)
		}
	}
	if !fits {
		return faultf("%s cannot be placed on %s: %w", q.File, q.HostName, err)
	}
	return err
}

// finishPlan prints a plan and writes its artefacts.
func (a *app) finishPlan(o *planOptions, q *planner.Query, r *planner.Planned) error {
	// Files first: a directory that cannot be written is an error before the plan is printed, and not
	// below it.
	if o.outDir != "" {
		in := inputOf(r, q.File)
		files, err := planArtifacts(in)
		if err != nil {
			return err
		}
		said, err := writeFiles(o.outDir, files, in.Made)
		if err != nil {
			return err
		}
		defer fmt.Fprint(a.err, said) // so that it stands below the plan
	}
	if show.ForPrograms(o.form) {
		return show.Encode(a.out, o.form, planDocument{Plan: r.Plan, Compare: r.Others, WhatIf: r.WhatIf})
	}
	// The text is written at once: a pipe that is closed half way gets no half table.
	var b bytes.Buffer
	if draw := map[string]func(io.Writer, *plan.Plan, *topology.Host) error{formSVG: planview.SVG,
		formHTML: planview.HTML}[o.form]; draw != nil {
		if err := draw(&b, r.Plan, r.Host); err != nil {
			return err
		}
		_, err := a.out.Write(b.Bytes())
		return err
	}
	options := planview.Options{Width: a.width()}
	switch {
	case r.Before != nil:
		planview.WhatIf(&b, r.Before, r.Plan, r.WhatIf.Differences, options)
	case r.WhatIf != nil:
		fmt.Fprintf(&b, "As it is, the lab does not fit: %s\nWith the change it does.\n\n", r.WhatIf.Refused)
	}
	planview.Table(&b, r.Plan, options)
	if o.explain {
		planview.Explain(&b, r.Plan, options)
	}
	if o.compare {
		planview.Compare(&b, r.Plan, r.Others, options)
	}
	_, err := a.out.Write(b.Bytes())
	return err
}

// planDocument is what plan prints as JSON, see docs/json.md: the plan, and what was asked beside it. The
// plan's keys are at the top, so that whoever reads a plan, as verify --plan does, reads this as well.
type planDocument struct {
	*plan.Plan
	Compare []rivals.Outcome `json:"compare,omitempty"`
	WhatIf  *planner.WhatIf  `json:"whatif,omitempty"`
}

// planOn plans a lab on a host, which messages call by name.
func (a *app) planOn(ctx context.Context, h *topology.Host, name string, l *lab.Lab,
	file, model string) (*planner.Planned, error) {
	q, err := planner.New(name, file, l, model)
	if err != nil {
		return nil, cli.Usage(err)
	}
	r, err := q.Solve(ctx, h, l)
	if err != nil {
		return nil, a.refused(formTable, &q, err)
	}
	return r, nil
}

// planAt plans a lab on the host that a flag names.
func (a *app) planAt(ctx context.Context, host string, l *lab.Lab, file, model string) (*planner.Planned, error) {
	h, name, err := planner.ReadHost(ctx, host, a.in)
	if err != nil {
		return nil, err
	}
	return a.planOn(ctx, h, name, l, file, model)
}
