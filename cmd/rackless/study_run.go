//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/placed"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/document"
	"github.com/rackless/rackless/study/lock"
	"github.com/rackless/rackless/study/measure"
	"github.com/rackless/rackless/study/rig"
	"github.com/rackless/rackless/study/store"
)

type studyRunOptions struct {
	db      string
	accel   string
	dryRun  bool
	restart bool
	blocks  int
	reboot  bool
	anyway  bool
	part    string
	slurm   string // directory
	tasks   int
}

// newStudyRunCmd also continues an interrupted study.
func newStudyRunCmd(a *app) *cobra.Command {
	var o studyRunOptions
	cmd := &cobra.Command{
		Use:   "run STUDY.yaml",
		Short: "Make the runs of a study, or continue them",
		Args:  cli.ExactArgs(1, "a study file"),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.studyRun(cmd.Context(), o, args[0]) },
	}
	dbFlag(cmd, &o.db)
	cli.EnumFlag(cmd, &o.accel, "accel", "", "what executes the nodes' CPUs", "auto", "kvm", "tcg")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false,
		"print the order of the runs and the smallest effect, and run nothing")
	cmd.Flags().BoolVar(&o.restart, "restart", false, "delete the runs so far, and start over")
	cmd.Flags().IntVar(&o.blocks, "blocks", 0, "stop after this many blocks; without it the same command makes the "+
		"rest (default: all)")
	cmd.Flags().BoolVar(&o.anyway, "anyway", false, "measure although a check of the lab failed")
	cmd.Flags().BoolVar(&o.reboot, "reboot", false,
		"prepare and reboot this host whenever the next run needs another boot, and continue")
	cmd.Flags().StringVar(&o.part, "part", "", "make one `NUMBER/OF` equal shares of the runs of a simulation")
	cmd.Flags().StringVar(&o.slurm, "slurm", "", "write a job array for Slurm that makes the runs of a simulation, "+
		"into `DIR`, and run nothing")
	cmd.Flags().IntVar(&o.tasks, "tasks", 0, "`NUMBER` of tasks of the job array (default: one a run, at most "+
		strconv.Itoa(maxTasks)+")")
	for _, other := range []string{"reboot", "part", "slurm"} {
		cmd.MarkFlagsMutuallyExclusive("dry-run", other)
	}
	cmd.MarkFlagsMutuallyExclusive("blocks", "reboot")
	cmd.MarkFlagsMutuallyExclusive("part", "slurm")
	cmd.MarkFlagsMutuallyExclusive("restart", "slurm")
	return cmd
}

func (a *app) studyRun(ctx context.Context, o studyRunOptions, file string) error {
	if o.blocks < 0 {
		return cli.Usage(fmt.Errorf("--blocks %d: give 1 or more, or leave it out for all", o.blocks))
	}
	spec, text, err := document.ReadSpec(file)
	if err != nil {
		return cli.Usage(err)
	}
	part, err := o.share(spec)
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", file, err))
	}
	d, err := a.dirs()
	if err != nil {
		return err
	}
	if o.slurm != "" {
		return a.studySlurm(ctx, o, d, spec, file)
	}
	design := func(o studyRunOptions) (studyRig, error) {
		r, err := a.studyRig(ctx, o, d, spec, file)
		if err != nil {
			return nil, err
		}
		return r, a.printDesign(ctx, o, spec, r)
	}
	// A dry run takes no lock: a design can be inspected while another study runs.
	if o.dryRun {
		if _, err := design(o); err != nil {
			return err
		}
		studyview.Order(a.out, spec)
		return nil
	}
	// Two concurrent studies would measure each other, unless they measure nothing of the machine.
	if part.Of == 0 {
		unlock, err := a.lockStudies(d.Run)
		if err != nil {
			return err
		}
		defer unlock()
	}
	// The design is made again after each boot, because the host has changed.
	return a.studyWithBoots(ctx, o, spec, file, func(o studyRunOptions) (bool, error) {
		r, err := design(o)
		if err != nil {
			return false, err
		}
		return a.conductStudy(ctx, o, spec, part, text, r)
	})
}

// studyHolder returns nil if no study runs here.
func (a *app) studyHolder() (*lock.Holder, error) {
	l, err := lock.FromEnv(a.env)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return l.Holder()
}

func (a *app) lockStudies(run string) (unlock func(), err error) {
	l, err := lock.FromEnv(a.env)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return l.Take(run)
}

// studyDigest covers all files whose change would make other runs.
func studyDigest(text []byte, r studyRig) string {
	files := [][]byte{text, r.LabText()}
	if sim, ok := r.(*rig.Simulation); ok {
		files = append([][]byte{text}, sim.Files()...)
	}
	return conduct.Digest(files...)
}

// A studyRig is the lab or the simulation of a study.
type studyRig interface {
	conduct.Rig
	LabText() []byte
	Takes() (time.Duration, error)
	Close() error
}

// studyRig does not start it.
func (a *app) studyRig(ctx context.Context, o studyRunOptions, d rack.Dirs, spec *study.Spec,
	file string) (studyRig, error) {
	if spec.Simulation != "" {
		r, err := rig.NewSimulation(spec, rig.LabFile(file, spec.Simulation))
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("%s: %w", file, err))
		}
		return r, nil
	}
	labFile := rig.LabFile(file, spec.Lab)
	l, err := loadLab(labFile)
	if err != nil {
		return nil, err
	}
	// A lab on a host is placed once: each run has the CPUs and devices of the plan, or of a variant.
	up := rack.Options{Accel: o.accel}
	var planner rig.Planner
	if rack.NeedsPlace(l) {
		if up.Place, err = a.placement(ctx, l, labFile, placeOptions{uri: placed.DefaultURI}); err != nil {
			return nil, err
		}
		planner = func(l *lab.Lab) (*plan.Plan, error) {
			r, err := a.planOn(ctx, up.Place.Host, "this machine", l, labFile, "")
			if err != nil {
				return nil, err
			}
			return r.Plan, nil
		}
	}
	r, err := rig.New(d, spec, labFile, up, planner)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("%s: %w", file, err))
	}
	return r, nil
}

// conductStudy reports whether it made any run.
func (a *app) conductStudy(ctx context.Context, o studyRunOptions, spec *study.Spec, part conduct.Part, text []byte,
	r studyRig) (worked bool, err error) {
	path, err := a.dbPath(o.db)
	if err != nil {
		return false, err
	}
	db, err := store.Open(ctx, path) // a kill costs one run
	if err != nil {
		return false, err
	}
	// Runs of two versions of the study or the lab must not be combined.
	s, err := conduct.Begin(ctx, db, spec, studyDigest(text, r), string(r.LabText()), version, o.restart)
	if err != nil {
		return false, errors.Join(err, db.Close())
	}
	steps, end := a.progress()
	defer end()
	var doing atomic.Value // set by the run, read by the display
	onLab, ofLab := r.(*rig.Rig)
	if ofLab {
		// Once, when the lab is up.
		onLab.Look = func(ctx context.Context, lab *rack.Rack) error { return a.surveyLab(ctx, o, db, s, lab) }
		onLab.Progress = func(what string) { doing.Store(", " + what) }
	}
	c := &conduct.Conductor{DB: db, Study: s, Spec: spec, Rig: r, Rackless: version, Blocks: o.blocks,
		Part: part,
		Progress: func(p conduct.Progress) {
			worked = true
			doing.Store("")
			document.ShowProgress(steps, spec, p, &doing)
		}}
	err = c.Run(ctx)
	end()
	// The lab stays in the last cell's state, and must be down before the host boots.
	if _, boot := errors.AsType[*rig.BootError](err); boot && o.reboot && ofLab {
		return worked, errors.Join(err, onLab.Leave(), db.Close())
	}
	var outcomes map[int64]store.Outcome
	if err == nil {
		outcomes, err = conduct.Outcomes(ctx, db)
	}
	if err = errors.Join(err, r.Close(), db.Close()); err != nil {
		return worked, fmt.Errorf("%w\nthe runs so far are kept: the same command continues", err)
	}
	if part.Of > 0 {
		fmt.Fprintf(a.out, "\npart %s of study %s is in %s\n", o.part, spec.Name, path)
	} else {
		fmt.Fprintf(a.out, "\nstudy %s is in %s; see it with: rackless study report %s\n", spec.Name, path, spec.Name)
	}
	if o.blocks > 0 && (spec.Blocks == 0 || o.blocks < spec.Blocks) {
		fmt.Fprintf(a.out, "it was stopped after %s: the same command without --blocks makes the rest\n",
			words.Count(o.blocks, "block"))
	}
	outcome := outcomes[s.ID]
	if outcome.GivenUp > 0 {
		fmt.Fprintf(a.out, "given up, after %d attempts each that failed or were disturbed: %s, whose blocks do "+
			"not count\n", conduct.MaxAttempts, words.Count(outcome.GivenUp, "run"))
	}
	if outcome.Done == 0 && outcome.GivenUp > 0 {
		return worked, faultf("no run of study %s counts: the report says why", spec.Name)
	}
	return worked, nil
}

func (a *app) surveyLab(ctx context.Context, o studyRunOptions, db *store.DB, s *store.Study, lab *rack.Rack) error {
	findings, err := checks.Lab(ctx, lab.Lab, lab, nil, func(string) {})
	if err != nil {
		return err
	}
	if bad := finding.NotOK(findings); len(bad) > 0 && !o.anyway {
		shown := a.show(report.Findings(bad, a.color()))
		return &conduct.StopError{Err: errors.Join(shown,
			faultf("lab %s: %s failed: what is measured now would not be what it seems; "+
				"--anyway measures all the same", lab.Lab.Name, words.Count(len(bad), "check")))}
	}
	// The first run's findings describe the machine at the start of the study.
	if s.Survey != nil {
		return nil
	}
	survey := measure.Describe(lab, findings, nil, version)
	survey.HostPicture = hostPicture(ctx)
	if s.Survey, err = json.Marshal(survey); err != nil {
		return err
	}
	return db.SetSurvey(ctx, s)
}

func (a *app) printDesign(ctx context.Context, o studyRunOptions, s *study.Spec, r studyRig) error {
	path, err := a.dbPath(o.db)
	if err != nil {
		return err
	}
	return studyview.Design(a.out, s, func() (run time.Duration, how string, err error) {
		if run, err = r.Takes(); err != nil {
			return 0, "", err
		}
		return conduct.Estimate(ctx, path, s, run)
	})
}

// studyWithBoots calls run until all runs are made. If the next needs another boot, it prepares and reboots the host
// with --reboot; otherwise it prints instructions.
func (a *app) studyWithBoots(ctx context.Context, o studyRunOptions, spec *study.Spec, file string,
	run func(studyRunOptions) (worked bool, err error)) error {
	if !o.reboot {
		_, err := run(o)
		if boot, ok := errors.AsType[*rig.BootError](err); ok {
			labFile, how := rig.LabFile(file, spec.Lab), ""
			if !boot.Isolated {
				how = " --no-reboot"
			}
			fmt.Fprintf(a.err, "%v\nprepare the host for it with: rackless down %[2]s; rackless rollback; rackless "+
				"prepare %[2]s%[3]s; reboot\nthen run the same command again to continue; with --reboot it does all "+
				"of that by itself\n", err, labFile, how)
			return cli.Exit(exitReboot)
		}
		return err
	}
	if a.uid != 0 {
		return cli.Usage(errors.New("--reboot prepares this host and reboots it, which needs root"))
	}
	on, err := rig.Continuation(a.binary(), spec.Name, file, o.db, o.accel, a.env)
	if err != nil {
		return err
	}
	// No unit may continue the study at the next boot, even after Ctrl-C.
	end := func(err error) error { return errors.Join(err, on.Remove(context.WithoutCancel(ctx), a.system())) }
	led := on.Installed(a.system()) // rebooted for a run
	for {
		worked, err := run(o)
		boot, ok := errors.AsType[*rig.BootError](err)
		if !ok {
			return errors.Join(end(err), a.printPrepared(spec, err))
		}
		// If a boot had no effect, further boots would follow forever.
		if led && !worked {
			err = fmt.Errorf("%w, although it was prepared for that and rebooted: look at /proc/cmdline, and at "+
				"rackless prepare --dry-run", err)
			return end(err)
		}
		fmt.Fprintf(a.out, "%v\n", boot)
		o.restart, led = false, true
		reboot, err := a.prepareForBoot(ctx, spec, file, boot.Isolated)
		if err != nil {
			return end(err)
		}
		if !reboot {
			continue
		}
		// Right before the reboot: a study without one leaves none behind.
		if err := on.Install(ctx, a.system()); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "this host reboots now, and the study continues by itself: journalctl -fu %s\n", on.Name)
		if _, err := a.system().Program(ctx, "systemctl", "reboot"); err != nil {
			return end(err)
		}
		return cli.Exit(exitReboot)
	}
}

func (a *app) printPrepared(spec *study.Spec, failed error) error {
	// After a failure, the error explains the next step.
	if failed != nil || !spec.TakesBoots() {
		return nil
	}
	p, err := a.store().Load()
	if err != nil {
		return err
	}
	how := "with the lab's CPUs isolated by the kernel"
	if p.Choices.NoReboot {
		how = "without kernel arguments (--no-reboot)"
	}
	fmt.Fprintf(a.out, "this host is prepared for lab %s, as the last run took it: %s\n", p.Lab.Name, how)
	return nil
}

// prepareForBoot uses the same plan, with or without CPUs isolated at boot. It reports whether this needs a reboot.
func (a *app) prepareForBoot(ctx context.Context, spec *study.Spec, file string,
	isolated bool) (reboot bool, err error) {
	p, err := a.store().Load()
	if err != nil {
		return false, err
	}
	d, err := a.dirs()
	if err != nil {
		return false, err
	}
	// A rollback is refused while the lab uses its devices.
	if _, err := rack.Down(ctx, d, p.Lab.Name); err != nil {
		return false, err
	}
	// The rollback removes the boot arguments from the journal.
	inForce := a.isolatedNow()
	// The same plan, with or without kernel arguments.
	if p.Choices.NoReboot == isolated {
		if err := a.rollback(ctx, formTable, false, true, false); err != nil {
			return false, err
		}
		p.Choices.NoReboot = !isolated
		p.Made = time.Now().UTC().Truncate(time.Second)
		s, err := a.changing()
		if err != nil {
			return false, err
		}
		err = a.prepareFor(ctx, s, prepareOptions{form: formTable, yes: true}, p, false, host.Look{})
		if exit, ok := errors.AsType[*cli.Error](err); err != nil && (!ok || exit.Code != exitReboot) {
			return false, fmt.Errorf("%w\nprepare the host for lab %s again: rackless prepare %s", err,
				p.Lab.Name, rig.LabFile(file, spec.Lab))
		}
	}
	// Arguments are added and removed by a boot.
	return isolated || inForce, nil
}

func (a *app) isolatedNow() bool {
	text, err := a.system().Value("/sys/devices/system/cpu/isolated")
	return err == nil && text != ""
}
