//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/changeview"
	"github.com/rackless/rackless/report/show"
)

// newRollbackCmd makes rackless rollback. It takes no lab: the journal knows what was changed.
func newRollbackCmd(a *app) *cobra.Command {
	var form string
	var dryRun, yes, known bool
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Undo everything that prepare has changed on this host",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.rollback(cmd.Context(), form, dryRun, yes, known)
		},
	}
	outputFlag(cmd, &form)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be undone, and change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&known, "what-is-known", false, "undo what a damaged journal still records")
	return cmd
}

// rollback undoes what the journal of prepare records. With known it also accepts a damaged journal.
func (a *app) rollback(ctx context.Context, form string, dryRun, yes, known bool) error {
	store, s := a.store(), a.system()
	if dryRun {
		return a.printRollback(store, form)
	}
	open := change.Open
	// A damaged journal is refused unless the user has been told so: what it has lost stays as it is, and after this
	// nobody knows that it was ever changed.
	if known {
		open = change.OpenKnown
	}
	p, had := store.Known()
	j, err := open(store.Journal(), host.Kinds())
	if err != nil {
		return err
	}
	out := changeview.Rollback{Schema: changeview.RollbackSchema, Steps: []changeview.Step{}}
	entries := j.Entries()
	if len(entries) == 0 {
		if had && j.Gap() == "" {
			p = nil // all of it was taken back, and the plan is still there
		}
		marks, err := host.Marks(s, nil, p)
		end := store.Clear
		if err != nil || len(marks) > 0 {
			end = func(j *change.Journal) error { return j.Close() } // the plan is needed still
		}
		return errors.Join(end(j), err, a.print(form, out, nothingToTakeBack), fault(host.Unrecorded(j, marks)))
	}
	// A device that goes back to its driver under a running guest takes the guest down.
	if users := host.Users(s); len(users) > 0 {
		return errors.Join(j.Close(), faultf("devices of the lab are in use: %s; take the lab down first: "+
			"rackless down", strings.Join(users, ", ")))
	}
	if !yes {
		question := fmt.Sprintf("Take back %s on this host?", words.Count(len(entries), "step"))
		if err := a.agree(ctx, "rollback", form, nil, question); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	// Asked before the rollback: after it the journal is empty, and the plan is gone.
	out.Reboot = host.ArgumentsInForce(entries)
	if p != nil && (out.Reboot || j.Gap() == "") {
		p.Plan.KernelArgs = nil // in force until the reboot, or the administrator's
	}
	ui := a.display()
	results, stays, err := store.Rollback(ctx, s, j,
		changeview.Progress(a.beside(form), &rack.Progress{Report: ui.Quiet()}, len(entries)))
	ui.Close()
	if stays != nil {
		fmt.Fprintf(a.err, "pages that the boot has set aside may stay until the next one: %v\n", stays)
	}
	if show.ForPrograms(form) {
		out.Steps = changeview.Steps(results)
		err = errors.Join(err, show.Encode(a.out, form, out))
	}
	if err != nil {
		return fmt.Errorf("%w\nthe journal keeps what remains: rackless rollback tries it again", err)
	}
	// The journal is believed for what it says, and not for what it does not say: a file of ours that it has no
	// entry of is left over from a journal that was lost.
	marks, err := host.Marks(s, nil, p)
	if err == nil {
		err = fault(host.Unrecorded(j, marks))
	}
	if !show.ForPrograms(form) {
		how := words.Either(err != nil, "%s taken back\n", "this host is as it was: %s taken back\n")
		fmt.Fprintf(a.out, how, words.Count(len(results), "step"))
		if out.Reboot {
			fmt.Fprintln(a.out, "The kernel still runs with the arguments of the plan: reboot when it suits.")
		}
	}
	return err
}

const nothingToTakeBack = "nothing to take back\n"

// printRollback prints what rollback would take back.
func (a *app) printRollback(store host.Store, form string) error {
	entries, err := change.ReadJournal(store.Journal(), host.Kinds())
	if err != nil {
		return err // of a damaged journal it names the steps, too
	}
	results := change.Undone(entries)
	if show.ForPrograms(form) || len(results) == 0 {
		return a.print(form, changeview.Rollback{Schema: changeview.RollbackSchema, DryRun: true,
			Steps: changeview.Steps(results)}, nothingToTakeBack)
	}
	changeview.Write(a.out, results, false)
	return nil
}
