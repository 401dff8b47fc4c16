//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

type prepareOptions struct {
	form   string
	dryRun bool
	check  bool
	yes    bool
	resume bool
	model  string
	host.Choices
}

// newPrepareCmd's --resume is for the unit that continues at boot.
func newPrepareCmd(a *app) *cobra.Command {
	var o prepareOptions
	cmd := &cobra.Command{
		Use:               "prepare [LAB.yaml]",
		Short:             "Prepare this host for the plan of a lab, step by step, with undo",
		Args:              cli.MaxArgs(1, "at most one lab file"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.check && (o.dryRun || o.yes || o.resume) {
				return cli.Usagef(cmd, "--check changes nothing: leave out --dry-run, --yes and --resume")
			}
			if o.resume && len(args) > 0 {
				return cli.Usagef(cmd, "--resume continues with the lab that the host is prepared for: leave %s out",
					args[0])
			}
			return a.prepare(cmd.Context(), o, strings.Join(args, ""))
		},
	}
	outputFlag(cmd, &o.form)
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "show each step with its reason and risk, and change nothing")
	f.BoolVar(&o.check, "check", false, "say of each step whether it would be done, and change nothing; the exit "+
		"status is 0 if prepare would go through")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	f.BoolVar(&o.NoReboot, "no-reboot", false,
		"change no kernel arguments: isolate CPUs by cgroups, allocate hugepages while the host runs")
	f.BoolVar(&o.Firmware, "firmware", false, "also change settings in the firmware of NICs, instead of showing them")
	f.BoolVar(&o.YesReally, "yes-really", false, "also take the boot console, NICs with addresses or devices above, "+
		"and a port's link for a moment; never what a process uses or network storage needs")
	f.BoolVar(&o.resume, "resume", false, "continue at boot, but not with a step that the machine did not survive")
	f.StringVar(&o.model, "model", "", "take weights and measured GPU-NIC bandwidths from `FILE`")
	return cmd
}

// prepare waits for the unit that continues at boot.
func (a *app) prepare(ctx context.Context, o prepareOptions, file string) error {
	s, err := a.changing()
	if err != nil {
		return err
	}
	store := a.store()
	if !o.resume && a.uid == 0 { // the unit must not wait for itself
		if err := tune.AwaitBootUnit(ctx, s, a.waits); err != nil {
			return err
		}
	}
	// Reading the host takes many seconds while it boots.
	entries, err := change.ReadJournal(store.Journal(), host.Kinds())
	if err != nil {
		return a.needsRoot("prepare", err)
	}
	if e := change.Unfinished(entries); o.resume && e != nil {
		return fmt.Errorf("the last time, the machine went down or prepare was killed in the middle of a step "+
			"(%s), so it is not made again unasked: rackless prepare continues, rackless rollback undoes everything",
			e.What)
	}
	began := time.Now()
	p, loaded, err := a.prepared(ctx, store, o, file)
	if err != nil {
		return err
	}
	var seen host.Look
	if !loaded { // already read for the plan
		seen = host.Look{Host: p.Host, Began: began, Took: time.Since(began)}
	}
	return a.prepareFor(ctx, s, o, p, loaded, seen)
}

// prepareFor's loaded means that the host has been prepared for p before. last is its last known state, if any.
func (a *app) prepareFor(ctx context.Context, s *change.System, o prepareOptions, p *host.Prepared, loaded bool,
	last host.Look) error {
	ui := a.display()
	defer ui.Close()
	// The result has a line for each step; a log of CI would show both.
	seen := &rack.Progress{Report: ui.Quiet()}
	seen.Begin("look at this host")
	machine := host.ThisMachine(a.binary(), last)
	now, err := machine.Inspect(ctx) // also for the guards' first check
	seen.End(nil)
	if err != nil {
		return err
	}
	if changed := host.Changed(p, now); len(changed) > 0 {
		return faultf("this host is not as it was when the plan was made, and nothing was changed:\n  %s\n"+
			"plan again: rackless rollback, then rackless prepare LAB.yaml", strings.Join(changed, "\n  "))
	}
	steps, err := host.Steps(s, p, machine)
	if err != nil {
		return a.needsRoot("prepare", err) // GRUB's files may be root's alone
	}
	// No step can change these, for example in the firmware.
	remarks, err := host.Remarks(ctx, s, p)
	if err != nil {
		return err
	}
	for _, text := range remarks {
		fmt.Fprintln(a.err, text)
	}
	if o.dryRun || o.check || !o.yes && !o.resume {
		survey, err := change.Survey(ctx, s, steps)
		if survey != nil && (o.dryRun || o.check) {
			return a.printSurvey(o, p, survey, err)
		}
		if err != nil {
			return err
		}
		if err := a.confirmSteps(ctx, o, survey); err != nil {
			return err
		}
	}
	store := a.store()
	j, err := store.Open(p, loaded)
	if err != nil {
		return a.needsRoot("prepare", err)
	}
	began := time.Now()
	results, err := store.Make(ctx, s, j, steps, tables.StepProgress(a.beside(o.form), seen, len(steps)))
	ui.Close()
	return a.finishPrepare(o, p, results, err, time.Since(began))
}

func (a *app) confirmSteps(ctx context.Context, o prepareOptions, survey []change.Result) error {
	left := lists.Count(survey,
		func(r change.Result) bool { return r.Status == change.Pending || r.Status == change.Refused })
	if left == 0 {
		return nil
	}
	return a.agree(ctx, "prepare", o.form, survey, fmt.Sprintf("Make %s on this host?", words.Count(left, "step")))
}

// agree fails on refusal, or if it cannot ask.
func (a *app) agree(ctx context.Context, verb, form string, steps []change.Result, question string) error {
	if show.ForPrograms(form) || terminal.Of(a.err) == nil {
		return cli.Usage(fmt.Errorf("%s changes the host: look with --dry-run, then say --yes", verb))
	}
	tables.WriteSteps(a.out, steps, tables.StepReasons)
	if ok, err := terminal.Confirm(ctx, a.in, a.err, question); err != nil || !ok {
		return errors.Join(err, &cli.Error{Code: exitFailed, Err: errors.New("nothing was changed")})
	}
	return nil
}

func (a *app) finishPrepare(o prepareOptions, p *host.Prepared, results []change.Result, err error,
	took time.Duration) error {
	made, reboot := 0, false
	for _, r := range results {
		if r.Status == change.Made {
			made++
		}
		reboot = reboot || r.Status == change.Boot || r.Status == change.Waiting
	}
	if show.ForPrograms(o.form) {
		err = errors.Join(err, show.Encode(a.out, o.form, tables.Prepare{Schema: tables.PrepareSchema,
			Lab: p.Lab.Name, Reboot: reboot, Steps: tables.Steps(results)}))
	}
	if _, refused := errors.AsType[*change.RefusedError](err); refused {
		return fault(err)
	}
	if err != nil {
		return fmt.Errorf("%w\nthe changes so far stay: rackless prepare continues, rackless rollback "+
			"undoes them", err)
	}
	text := "Reboot now: the rest is done at boot by rackless-prepare.service, or by rackless prepare."
	if !reboot {
		how := "as it was"
		if made > 0 {
			how = fmt.Sprintf("%s in %s", words.Count(made, "step"), words.Seconds(took))
		}
		text = fmt.Sprintf("this host is prepared for lab %s: %s", p.Lab.Name, how)
	}
	// Programs read needs_reboot instead.
	if !show.ForPrograms(o.form) {
		fmt.Fprintln(a.out, text)
	}
	if reboot {
		return cli.Exit(exitReboot)
	}
	return nil
}

// printSurvey prints a survey: every step with its outcome for --check, or the remaining steps with their commands for
// --dry-run. unread is the error of the survey.
func (a *app) printSurvey(o prepareOptions, p *host.Prepared, survey []change.Result, unread error) error {
	out := tables.NewSurvey(p.Lab.Name, survey, a.uid != 0)
	switch {
	case show.ForPrograms(o.form):
		if err := show.Encode(a.out, o.form, out); err != nil {
			return err
		}
	case o.check:
		tables.WriteCheck(a.out, survey, out)
	default:
		tables.WriteSteps(a.out, survey, tables.StepCommands)
	}
	switch {
	case out.Outcome == tables.WouldRefuse:
		return cli.Exit(exitFaults)
	case out.Outcome == tables.Unknown && o.check:
		return cli.Exit(exitFailed)
	}
	return a.needsRoot("prepare", unread)
}

// prepared returns the current preparation, with loaded set, or a new plan.
func (a *app) prepared(ctx context.Context, store host.Store, o prepareOptions, file string) (p *host.Prepared,
	loaded bool, err error) {
	have, err := store.Load()
	switch {
	case errors.Is(err, host.ErrNotPrepared) && file == "":
		return nil, false, cli.Usage(fmt.Errorf("%w: name a lab file", err))
	case errors.Is(err, host.ErrNotPrepared):
	case err != nil:
		return nil, false, err
	// The first choices stay in force: with others, half of the steps would differ.
	case file == "":
		if o.Choices != (host.Choices{}) && o.Choices != have.Choices {
			return nil, false, cli.Usage(errors.New("how the host is prepared was chosen when it was first prepared: " +
				"rackless rollback first"))
		}
		return have, true, nil
	}
	l, err := loadLab(file)
	if err != nil {
		return nil, false, err
	}
	if l.VSphere != nil {
		return nil, false, cli.Usage(fmt.Errorf("lab %s goes on host %s of vSphere, which rackless up prepares: see "+
			"rackless up --dry-run", l.Name, l.VSphere.Host))
	}
	if have != nil {
		if bytes.Equal(have.Lab.YAML(), l.YAML()) && (o.Choices == have.Choices || o.Choices == host.Choices{}) {
			return have, true, nil
		}
		return nil, false, cli.Usage(fmt.Errorf("this host is prepared for lab %s as it was on %s, and %s says "+
			"something else: rackless rollback first", have.Lab.Name, have.Made.Format(time.DateTime), file))
	}
	p, err = a.planHere(ctx, l, file, o.model)
	if err != nil {
		return nil, false, err
	}
	p.Choices = o.Choices
	return p, false, nil
}

func (a *app) planHere(ctx context.Context, l *lab.Lab, file, model string) (*host.Prepared, error) {
	r, err := a.planAt(ctx, planner.Local, l, file, model)
	if err != nil {
		return nil, err
	}
	return &host.Prepared{Lab: r.Lab, Plan: r.Plan, Host: r.Host, Made: time.Now().UTC().Truncate(time.Second),
		By: version}, nil
}

// beside is standard error if the result is for programs.
func (a *app) beside(form string) io.Writer {
	if show.ForPrograms(form) {
		return a.err
	}
	return a.out
}

// store returns the directory that records this host's preparation. RACKLESS_STATE overrides its path.
func (a *app) store() host.Store { return host.Store{Dir: a.env("RACKLESS_STATE")} }

func (a *app) system() *change.System { return &change.System{Root: "/"} }

// changing injects the fault that a test on an emulated host requests.
func (a *app) changing() (*change.System, error) {
	s := a.system()
	fault, err := change.FaultFrom(s, a.env("RACKLESS_FAULT"))
	if err != nil {
		return nil, cli.Usage(err)
	}
	s.Fault = fault
	return s, nil
}

// binary returns the path of this program for the unit that continues at boot, or "".
func (a *app) binary() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	return path
}

// newRollbackCmd takes no lab, because the journal records the changes.
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

// needsRoot replaces errors about access to the journal.
func (a *app) needsRoot(verb string, err error) error {
	if a.uid == 0 || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%s needs root: sudo rackless %[1]s", verb)
}

// rollback undoes the changes in the journal of prepare; with known also of a damaged one.
func (a *app) rollback(ctx context.Context, form string, dryRun, yes, known bool) error {
	store := a.store()
	s, err := a.changing()
	if err != nil {
		return err
	}
	if dryRun {
		return a.needsRoot("rollback", a.printRollback(store, form))
	}
	open := change.Open
	// Changes missing from a damaged journal stay in effect, and after this rollback no record of them remains: the
	// user has to know about it.
	if known {
		open = change.OpenKnown
	}
	p, had := store.Known()
	j, err := open(store.Journal(), host.Kinds())
	if err != nil {
		return a.needsRoot("rollback", err)
	}
	out := tables.Rollback{Schema: tables.RollbackSchema, Steps: []tables.DoneStep{}}
	entries := j.Entries()
	if len(entries) == 0 {
		if had && j.Gap() == "" {
			p = nil // all changes were undone, but the plan still exists
		}
		marks, err := host.Marks(s, nil, p)
		end := store.Clear
		if err != nil || len(marks) > 0 {
			end = func(j *change.Journal) error { return j.Close() } // the plan is still needed
		}
		return errors.Join(end(j), err, a.print(form, out, nothingToTakeBack), fault(host.Unrecorded(j, marks)))
	}
	// Returning a device of a running guest to its driver would crash the guest.
	if users := host.Users(s); len(users) > 0 {
		return errors.Join(j.Close(), faultf("devices of the lab are in use: %s; take the lab down first: "+
			"rackless down", strings.Join(users, ", ")))
	}
	if !yes {
		question := fmt.Sprintf("Undo %s on this host?", words.Count(len(entries), "step"))
		if err := a.agree(ctx, "rollback", form, nil, question); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	// The rollback empties the journal and removes the plan.
	out.Reboot = host.ArgumentsInForce(entries)
	if p != nil && (out.Reboot || j.Gap() == "") {
		p.Plan.KernelArgs = nil // in force until the reboot, or set by the administrator
	}
	ui := a.display()
	results, stays, err := store.Rollback(ctx, s, j,
		tables.StepProgress(a.beside(form), &rack.Progress{Report: ui.Quiet()}, len(entries)))
	ui.Close()
	if stays != nil {
		fmt.Fprintf(a.err, "pages that the boot has set aside may stay until the next one: %v\n", stays)
	}
	if show.ForPrograms(form) {
		out.Steps = tables.Steps(results)
		err = errors.Join(err, show.Encode(a.out, form, out))
	}
	if err != nil {
		return fmt.Errorf("%w\nthe journal keeps what remains: rackless rollback tries it again", err)
	}
	// The journal may be incomplete. A rackless file without an entry is left over from a lost one.
	marks, err := host.Marks(s, nil, p)
	if err == nil {
		err = fault(host.Unrecorded(j, marks))
	}
	if !show.ForPrograms(form) {
		undone := words.Count(len(results), "step") + " undone"
		kept := lists.Count(results, func(r change.Result) bool { return r.Status == change.Kept })
		switch {
		case kept > 0:
			undone += fmt.Sprintf("; %d of them left what somebody has changed since prepare", kept)
		case err == nil:
			undone = "this host is as it was: " + undone
		}
		fmt.Fprintln(a.out, undone)
		if out.Reboot {
			fmt.Fprintln(a.out, "The kernel still runs with the arguments of the plan: reboot when it suits.")
		}
	}
	return err
}

const nothingToTakeBack = "nothing to undo\n"

func (a *app) printRollback(store host.Store, form string) error {
	entries, err := change.ReadJournal(store.Journal(), host.Kinds())
	if err != nil {
		return err // for a damaged journal, the error lists the steps
	}
	results := change.Undone(entries)
	if show.ForPrograms(form) || len(results) == 0 {
		return a.print(form, tables.Rollback{Schema: tables.RollbackSchema, DryRun: true,
			Steps: tables.Steps(results)}, nothingToTakeBack)
	}
	tables.WriteSteps(a.out, results, tables.StepNames)
	return nil
}
