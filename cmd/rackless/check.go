package main

import (
	"context"

	"github.com/rackless/rackless/rack/adopt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report/hostview"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

type checkOptions struct {
	hostFlag
	form, failOn string
	diff         bool
}

func newCheckCmd(a *app) *cobra.Command {
	o := checkOptions{form: formatText, failOn: string(finding.Warning)}
	cmd := &cobra.Command{
		Use:   "check MACHINE...",
		Short: "Check a virtual machine on a host, and print a diff that fixes it",
		Args:  cli.RangeArgs(1, 1000, "a file with domain XML or qm config, or a domain of this machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.hostFlag.check(cmd, "a file or directory"); err != nil {
				return err
			}
			return a.check(cmd.Context(), o, args)
		},
	}
	outputFlag(cmd, &o.form)
	o.add(cmd, "check against")
	cmd.Flags().BoolVar(&o.diff, "diff", false, "print only the diff")
	cli.EnumFlag(cmd, &o.failOn, "fail-on", "", "exit with 3 on a finding of this severity or a worse one",
		failNever, string(finding.Info), string(finding.Warning), string(finding.Error))
	return cmd
}

func (a *app) check(ctx context.Context, o checkOptions, names []string) error {
	machines := make([]*inspect.Machine, len(names))
	from := o.host
	if from == planner.Local || from == adopt.NoHost {
		from = ""
	}
	for i, name := range names {
		var err error
		if machines[i], err = inspect.ReadMachine(ctx, name, from, a.in); err != nil {
			return cli.Usage(err)
		}
	}
	h, hostName := adopt.Nowhere(), adopt.NoHost
	if o.host != adopt.NoHost {
		var err error
		if h, hostName, err = a.hosts().Read(ctx, o.host); err != nil {
			return err
		}
	}
	verdicts, err := adopt.CheckAll(ctx, h, hostName, machines)
	if err != nil {
		return err
	}
	fault := false
	for _, v := range verdicts {
		fault = fault || len(v.Unread) > 0 && o.failOn != failNever || fails(v.Findings, o.failOn)
	}
	if err := a.printVerdicts(o, verdicts); err != nil {
		return err
	}
	if fault {
		return cli.Exit(exitFaults)
	}
	return nil
}

func (a *app) printVerdicts(o checkOptions, verdicts []*adopt.Verdict) error {
	if show.ForPrograms(o.form) {
		return show.Encode(a.out, o.form, verdicts)
	}
	return tables.WriteVerdicts(a.out, verdicts, o.diff, hostview.TableOptions{Width: a.width(), Color: a.color()})
}
