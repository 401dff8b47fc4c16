//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/rig"
)

// studyWithBoots calls run, which makes runs until all are made or the next takes another boot of
// this host, and says whether it made any. With --reboot it prepares the host for that boot, boots
// it and goes on; else it says how to.
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
	// Once the study ends or fails, nothing must go on with it at the next boot, also after Ctrl-C.
	end := func(err error) error { return errors.Join(err, on.Remove(context.WithoutCancel(ctx), a.system())) }
	led := on.Installed(a.system()) // the host was booted this way for a run that needs it
	for {
		worked, err := run(o)
		boot, ok := errors.AsType[*rig.BootError](err)
		if !ok {
			return errors.Join(end(err), a.printPrepared(spec, err))
		}
		// A boot that brought nothing would be followed by the next one, and so on for ever.
		if led && !worked {
			err = fmt.Errorf("%w, although it was prepared for that and rebooted: look at /proc/cmdline, and at "+
				"rackless prepare --dry-run", err)
			return end(err)
		}
		fmt.Fprintf(a.out, "%v\n", boot)
		o.restart, led = false, true // from here on it goes on
		reboot, err := a.prepareForBoot(ctx, spec, file, boot.Isolated)
		if err != nil {
			return end(err)
		}
		if !reboot {
			continue
		}
		// Before the reboot, and only then: a study that ends without one leaves no unit behind.
		if err := on.Install(ctx, a.system()); err != nil {
			return err
		}
		fmt.Fprintf(a.out, "this host reboots now, and the study continues by itself: journalctl -fu %s\n",
			on.Name)
		if _, err := a.system().Program(ctx, "systemctl", "reboot"); err != nil {
			return end(err)
		}
		return cli.Exit(exitReboot)
	}
}

// printPrepared prints how the host is prepared at the end of a study that changed it.
func (a *app) printPrepared(spec *study.Spec, failed error) error {
	// After a failure the error says what to do, and how the host is prepared is not the news.
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

// prepareForBoot prepares the host for the study's lab with its CPUs isolated at boot, or without,
// as the same plan has it. It reports whether that takes a boot.
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
	// A rollback is refused while the lab holds its devices.
	if _, err := rack.Down(ctx, d, p.Lab.Name); err != nil {
		return false, err
	}
	// Asked before the rollback, after which the journal no longer says what the kernel was started with.
	inForce := a.isolatedNow()
	// Prepared the other way round: the same plan, with or without kernel arguments.
	if p.Choices.NoReboot == isolated {
		if err := a.rollback(ctx, formTable, false, true, false); err != nil {
			return false, err
		}
		p.Choices.NoReboot = !isolated
		p.Made = time.Now().UTC().Truncate(time.Second)
		err := a.prepareFor(ctx, prepareOptions{form: formTable, yes: true}, p, false)
		if exit, ok := errors.AsType[*cli.Error](err); err != nil && (!ok || exit.Code != exitReboot) {
			return false, fmt.Errorf("%w\nthe host is to be prepared for lab %s again: rackless prepare %s", err,
				p.Lab.Name, rig.LabFile(file, spec.Lab))
		}
	}
	// Arguments come with a boot and go with one. Without any, before and after, the host is ready at
	// once.
	return isolated || inForce, nil
}

// isolatedNow reports whether the kernel isolates CPUs.
func (a *app) isolatedNow() bool {
	text, err := a.system().Value("/sys/devices/system/cpu/isolated")
	return err == nil && text != ""
}
