//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack/verify"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
)

// verifyOptions' form and interval get their defaults before the flags are added.
type verifyOptions struct {
	form     string
	only     []string
	plan     string
	host     string
	watch    bool
	interval time.Duration
}

func newVerifyCmd(a *app) *cobra.Command {
	o := verifyOptions{form: formatText, interval: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "verify [NAME|LAB.yaml]",
		Short: "Check every fact about a running lab or a prepared host, with evidence and fixes",
		Args: func(cmd *cobra.Command, args []string) error {
			// The findings of a host and a lab would mix.
			if cmd.Flags().Changed("plan") {
				return cli.ExactArgs(0, "no lab beside --plan")(cmd, args)
			}
			return cli.MaxArgs(1, "one lab or lab file")(cmd, args)
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			v, end, err := a.verification(cmd.Context(), &o, args)
			if err != nil {
				return err
			}
			defer end()
			if o.watch {
				return a.watchVerify(cmd.Context(), &o, v)
			}
			return a.verifyOnce(cmd.Context(), &o, v)
		},
	}
	cli.EnumFlag(cmd, &o.form, "output", "o", "how to print the result", formatText, formatJSON, formatYAML, formJUnit)
	f := cmd.Flags()
	f.StringSliceVar(&o.only, "only", nil, "make only these checks, comma-separated, by name or RL number; see "+
		"rackless explain")
	f.StringVar(&o.plan, "plan", "", "compare a host with the plan in `FILE`, as plan -o json prints it")
	f.StringVar(&o.host, "host", planner.Local, "with --plan: compare "+hostHelp)
	cli.Renamed(cmd, "snapshot", "", "host")
	offerHosts(cmd)
	f.BoolVarP(&o.watch, "watch", "w", false, "check again and again, and print what changes")
	f.DurationVar(&o.interval, "interval", o.interval, "time between two checks, with --watch")
	cli.Offer(cmd, "only", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return finding.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	cli.OfferWords(cmd, "interval")
	return cmd
}

// check also turns the names of checks into identifiers.
func (o *verifyOptions) check(cmd *cobra.Command) error {
	f := cmd.Flags()
	if err := cli.NotEmpty(cmd, "a file or directory", "plan", "host"); err != nil {
		return err
	}
	// At a shorter interval, verify itself would load the nodes.
	const least = time.Second
	switch {
	case o.host != planner.Local && o.plan == "":
		return cli.Usagef(cmd, "--host %s: a host is compared with a plan: add --plan", o.host)
	case o.host != planner.Local && o.watch:
		return cli.Usagef(cmd, "--watch and --host do not go together: only this machine is watched")
	case o.watch && o.form == formJUnit:
		return cli.Usagef(cmd, "--watch and -o junit do not go together: a report in XML has an end")
	case f.Changed("interval") && !o.watch:
		return cli.Usagef(cmd, "--interval is for --watch")
	case o.interval < least:
		return cli.Usagef(cmd, "--interval %v: want %v or more", o.interval, least)
	}
	// Findings and documents use codes such as RL402.
	for i, name := range o.only {
		c, ok := finding.Find(name)
		if !ok || c.Name == "" {
			return cli.Usage(fmt.Errorf("--only %s: no such check; rackless explain lists them", name))
		}
		o.only[i] = c.Name
	}
	return nil
}

// verification also returns a function that releases the target.
func (a *app) verification(ctx context.Context, o *verifyOptions, args []string) (*verify.Target, func(), error) {
	t, end, err := a.verifyTarget(ctx, o, args)
	if err != nil {
		return nil, nil, err
	}
	// An empty report would read as success.
	for _, id := range o.only {
		if all := t.Checks(); !slices.Contains(all, id) {
			end()
			what := "a running lab"
			if t.Plan != nil {
				what = "a host and its plan"
			}
			return nil, nil, cli.Usage(fmt.Errorf("--only %s: it is not among the checks of %s: %s", id, what,
				strings.Join(all, ", ")))
		}
	}
	return t, end, nil
}

func (a *app) verifyTarget(ctx context.Context, o *verifyOptions, args []string) (*verify.Target, func(), error) {
	strays := func() ([]string, error) { return a.store().Strays(a.system()) }
	if o.plan == "" {
		r, err := a.openOne(args)
		if err != nil {
			return nil, nil, err
		}
		end := func() { r.Close() }
		t, err := verify.OfLab(ctx, r)
		if err != nil {
			end()
		} else if t.Running != nil {
			t.Strays = strays
		}
		return t, end, err
	}
	p, err := planner.ReadPlan(o.plan)
	if err != nil {
		return nil, nil, err
	}
	// The plan of a bundle is for the host of the bundle.
	if bundle, _ := inspect.OpenBundle(o.plan); bundle != nil && o.host == planner.Local {
		o.host = o.plan
	}
	t := verify.OfHost(p)
	t.Strays = strays
	if o.host != planner.Local {
		t.Running, t.Strays = nil, nil
		t.Host = func(ctx context.Context) (*topology.Host, error) {
			h, _, err := a.hosts().Read(ctx, o.host)
			return h, err
		}
	}
	return t, func() {}, nil
}

func (a *app) findings(ctx context.Context, o *verifyOptions, v *verify.Target) ([]finding.Finding, error) {
	p, end := a.progress()
	defer end()
	findings, err := v.Findings(ctx, o.only, p.Begin)
	p.End(err)
	return findings, err
}

func (a *app) verifyOnce(ctx context.Context, o *verifyOptions, v *verify.Target) error {
	findings, err := a.findings(ctx, o, v)
	if err != nil {
		return err
	}
	// Not a finding: a property that cannot be checked from here is neither right nor wrong.
	if v.Unseen != "" {
		fmt.Fprintf(a.err, "not checked: %s\n", v.Unseen)
	}
	a.keep(o, v, findings)
	switch o.form {
	case formatJSON, formatYAML:
		err = show.Encode(a.out, o.form, append([]finding.Finding{}, findings...)) // [] for programs
	case formJUnit:
		err = report.JUnit(a.out, findings)
	default:
		text, folded := report.FoldedFindings(findings, a.color(), a.width())
		text += outcome(findings) + "\n"
		if folded {
			text += "on a wider terminal or in a pipe, each check that is ok has a line\n"
		}
		err = a.show(text)
	}
	// Unknown counts as not OK: a script must not continue if a check could not run.
	if err == nil && len(finding.NotOK(findings)) > 0 {
		return cli.Exit(exitFaults)
	}
	return err
}

// keep stores a complete verify for rackless ui. A failure is not a fault of the lab.
func (a *app) keep(o *verifyOptions, v *verify.Target, findings []finding.Finding) {
	// rackless ui would show the other checks as passed.
	if v.Lab == nil || len(o.only) > 0 {
		return
	}
	d, err := a.dirs()
	if err == nil {
		err = verify.SaveRecord(d, v.Lab.Name, verify.Record{At: time.Now().UTC(), Findings: findings})
	}
	if err != nil {
		fmt.Fprintf(a.err, "rackless ui will not show these findings: %v\n", err)
	}
}

func (a *app) watchVerify(ctx context.Context, o *verifyOptions, v *verify.Target) error {
	var w verify.Watch
	rounds := 0
	for {
		var findings []finding.Finding
		var err error
		// Later rounds would fill the screen with steps.
		if rounds == 0 {
			findings, err = a.findings(ctx, o, v)
		} else {
			findings, err = v.Findings(ctx, o.only, func(string) {})
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		a.keep(o, v, findings)
		at := time.Now().UTC().Truncate(time.Second)
		for _, c := range w.Changes(at, findings) {
			if err := a.printDrift(o.form, c); err != nil {
				return err
			}
		}
		if rounds == 0 && o.form == formatText {
			fmt.Fprintf(a.out, "%s  %s; watching every %v, Ctrl-C ends it\n", at.Format(time.RFC3339),
				outcome(findings), o.interval)
			if v.Unseen != "" {
				fmt.Fprintf(a.err, "not checked: %s\n", v.Unseen)
			}
		}
		rounds++
		select {
		case <-ctx.Done():
		case <-time.After(o.interval):
		}
	}
	// The last round counts, for scripts that watch for a limited time.
	if w.NotOK() > 0 {
		return cli.Exit(exitFaults)
	}
	if rounds == 0 { // the state is unknown
		return context.Cause(ctx)
	}
	return nil
}

// printDrift adds expected state and fix if a check began to fail.
func (a *app) printDrift(form string, c verify.Drift) error {
	if show.ForPrograms(form) {
		return show.EncodeNext(a.out, form, c)
	}
	// Of equal length, so that the columns align.
	paint := a.painter()
	status := map[finding.Status]string{finding.OK: paint("32", "ok again"), finding.Failed: paint("31", "FAILED  "),
		finding.Unknown: paint("33", "unknown ")}[c.Finding.Status]
	f := show.Clean(c.Finding, words.Visible)
	_, err := fmt.Fprintf(a.out, "%s  %s  %s  %s: %s\n", c.At.Format(time.RFC3339), status, f.Subject, f.Title, f.Have)
	if err == nil && f.Status != finding.OK {
		_, err = fmt.Fprintf(a.out, "        want  %s\n        fix   %s\n", f.Want, f.Fix)
	}
	return err
}

// outcome counts checks that failed, and those that could not run only if there are any.
func outcome(checks []finding.Finding) string {
	s := fmt.Sprintf("%s, %d failed", words.Count(len(checks), "check"), finding.Count(checks, finding.Failed))
	if n := finding.Count(checks, finding.Unknown); n > 0 {
		s += fmt.Sprintf(", %d unknown", n)
	}
	return s
}
