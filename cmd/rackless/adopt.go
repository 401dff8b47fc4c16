//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack/adopt"
	"github.com/rackless/rackless/rack/placed"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/vm/libvirt"
)

type adoptOptions struct {
	checkOptions
	uri               string
	dryRun, yes, undo bool
}

func newAdoptCmd(a *app) *cobra.Command {
	o := adoptOptions{checkOptions: checkOptions{form: formatText, failOn: failNever}}
	cmd := &cobra.Command{
		Use:   "adopt DOMAIN",
		Short: "Fix an existing libvirt domain, from its next start on; --undo undoes that",
		Args:  cli.ExactArgs(1, "one domain, or a file with --dry-run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.hostFlag.check(cmd, "a file, directory or URI", "connect"); err != nil {
				return err
			}
			return a.adopt(cmd.Context(), o, args[0])
		},
	}
	outputFlag(cmd, &o.form)
	o.add(cmd, "plan on")
	f := cmd.Flags()
	f.StringVar(&o.uri, "connect", placed.DefaultURI, "libvirt `URI` of the host")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the diff, and change nothing")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.undo, "undo", false, "restore the description from before the domain was adopted")
	return cmd
}

type adopted struct {
	*adopt.Verdict
	State   libvirt.State `json:"state"`
	Changed bool          `json:"changed"`
}

func (a *app) adopt(ctx context.Context, o adoptOptions, name string) (err error) {
	if _, err := os.Stat(name); err == nil {
		if !o.dryRun || o.undo {
			return cli.Usage(fmt.Errorf("%s is a file, and adopt changes domains: add --dry-run, or use "+
				"rackless host check %[1]s --diff | patch %[1]s", name))
		}
		return a.check(ctx, o.checkOptions, []string{name})
	}
	conn, err := libvirt.Connect(ctx, o.uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if !o.undo && !conn.Local() && o.host == planner.Local {
		return cli.Usage(fmt.Errorf("--connect %s is another machine: name it with --host ssh://NAME, or "+
			"a snapshot of it", o.uri))
	}
	d, err := adopt.Find(ctx, conn, a.store().Adopted(), name)
	if err != nil {
		return err
	}
	out := adopted{State: d.State}
	apply, question := d.Undo, "Undo the new description of domain %s?"
	if o.undo {
		before, err := d.Before()
		if err != nil {
			return err
		}
		out.Verdict = &adopt.Verdict{Machine: name, Host: o.uri, Findings: []finding.Finding{},
			Diff: string(diff.Diff(name+".xml", []byte(d.Text), name+".xml (before)", []byte(before)))}
	} else {
		if out.Verdict, err = a.judge(ctx, o, d); err != nil {
			return err
		}
		question = "Give domain %s this description from its next start on?"
		apply = func(ctx context.Context) error { return d.Apply(ctx, out.Text) }
	}
	if !show.ForPrograms(o.form) {
		if err := a.showAdoption(o, out.Verdict); err != nil {
			return err
		}
	}
	// An undo also closes the journal.
	if !o.dryRun && (out.Diff != "" || o.undo) {
		if !o.yes {
			if err := a.agree(ctx, "adopt", o.form, nil, fmt.Sprintf(question, name)); err != nil {
				return err
			}
		}
		if err := apply(ctx); err != nil {
			return err
		}
		out.Changed = true
	}
	connect := ""
	if o.uri != placed.DefaultURI {
		connect = o.uri
	}
	return a.print(o.form, out, d.Outcome(out.Machine, connect, o.undo, out.Changed, out.Diff != ""))
}

func (a *app) judge(ctx context.Context, o adoptOptions, d *adopt.Domain) (*adopt.Verdict, error) {
	m, err := d.Machine(ctx)
	if err != nil {
		return nil, err
	}
	h, hostName, err := a.hosts().Read(ctx, o.host)
	if err != nil {
		return nil, err
	}
	return adopt.Check(ctx, h, hostName, m)
}

func (a *app) showAdoption(o adoptOptions, v *adopt.Verdict) error {
	if o.undo {
		_, err := fmt.Fprint(a.out, v.Diff)
		return err
	}
	return a.printVerdicts(o.checkOptions, []*adopt.Verdict{v})
}
