//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/placed"
	_ "github.com/rackless/rackless/rack/vcenter" // the driver vsphere
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/vm/libvirt"
)

// newUpCmd starts, repairs and changes a lab, by comparing it with its file.
func newUpCmd(a *app) *cobra.Command {
	o := rack.Options{Accel: "auto"}
	var at placeOptions
	var cmd *cobra.Command
	cmd = ofLabFile(&cobra.Command{
		Use:   "up [LAB.yaml]",
		Short: "Bring a lab up, or update a running one to its file",
	}, func(ctx context.Context, l *lab.Lab, file string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		if cmd.Flags().NArg() == 0 { // which file it is may surprise
			fmt.Fprintf(a.err, "rackless: the lab file here is %s\n", file)
		}
		if at.host == planner.Local {
			at.host = ""
		}
		// A flag without effect is refused: with --connect, the user expects another host.
		if !rack.NeedsPlace(l) && (cmd.Flags().Changed("connect") || at.host != "") {
			return cli.Usagef(cmd, "lab %s asks for nothing of a host: say driver: libvirt in %s", l.Name, file)
		}
		if rack.NeedsPlace(l) {
			if o.Place, err = a.placement(ctx, l, file, at); err != nil {
				return err
			}
		}
		if goOn, err := a.agreeUp(ctx, l, at, o.Place); err != nil || !goOn {
			return err
		}
		return a.up(ctx, d, l, o)
	})
	cli.EnumFlag(cmd, &o.Accel, "accel", "", "what executes the nodes' CPUs", "auto", "kvm", "tcg")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "",
		"kernel image to use instead of Debian's, e.g. /boot/vmlinuz-$(uname -r)")
	cmd.Flags().BoolVar(&o.Cold, "cold", false, "boot every node instead of cloning a template")
	cmd.Flags().BoolVar(&o.Overcommit, "overcommit", false,
		"start even if the nodes' memory adds up to more than is available")
	cmd.Flags().StringVar(&at.uri, "connect", placed.DefaultURI, "libvirt `URI` of the host")
	cmd.Flags().StringVar(&at.host, "host", planner.Local, "with --connect, the host that libvirt is on, as "+hostHelp)
	offerHosts(cmd)
	cmd.Flags().BoolVar(&o.Recreate, "recreate", false, "restart running domains that have changed")
	cmd.Flags().BoolVar(&at.dryRun, "dry-run", false, "with driver vsphere, show each step and its changes, and "+
		"change nothing")
	cmd.Flags().BoolVar(&at.yes, "yes", false, "with driver vsphere, do not ask")
	addInsecure(cmd)
	return cmd
}

// placeOptions name the host for a lab, and permit changes to it.
type placeOptions struct {
	uri, host   string
	dryRun, yes bool
}

// agreeUp asks whether to take up's steps on a host, if any.
func (a *app) agreeUp(ctx context.Context, l *lab.Lab, at placeOptions, place *rack.Placement) (bool, error) {
	if at.yes && !at.dryRun {
		return true, nil
	}
	steps, has, err := rack.Survey(ctx, l, place)
	switch {
	case err != nil:
		return false, err
	case !has && at.dryRun:
		return false, cli.Usage(fmt.Errorf("lab %s has driver %s, which has no steps to show: see rackless lab diff",
			l.Name, rack.DriverOf(l)))
	case !has:
		return true, nil
	case at.dryRun:
		tables.WriteSteps(a.out, steps, tables.StepReasons)
		return false, nil
	}
	left := lists.Count(steps, func(r change.Result) bool { return r.Status != change.InPlace })
	if left == 0 {
		return true, nil
	}
	return true, a.agree(ctx, "up", formTable, steps, fmt.Sprintf("Make %s in vSphere?", words.Count(left, "step")))
}

// placement returns this host's preparation for a lab, or a new plan for another host.
func (a *app) placement(ctx context.Context, l *lab.Lab, file string, at placeOptions) (*rack.Placement, error) {
	if l.VSphere != nil {
		if at.host != "" {
			return nil, cli.Usage(fmt.Errorf("--host %s: lab %s goes on host %s of vSphere, as its file says", at.host,
				l.Name, l.VSphere.Host))
		}
		at.host, at.uri = planner.HostOf(l, planner.Local), ""
	}
	// Its preparation cannot be read.
	if at.host != "" {
		r, err := a.planAt(ctx, at.host, l, file, "")
		if err != nil {
			return nil, err
		}
		return &rack.Placement{URI: at.uri, Plan: r.Plan, Host: r.Host}, nil
	}
	p, err := a.store().For(ctx, a.system(), host.ThisMachine(a.binary(), host.Look{}), l, file)
	if _, unfit := errors.AsType[*host.UnfitError](err); unfit {
		if errors.Is(err, host.ErrNotPrepared) && l.Driver == lab.DriverAuto && l.HasGPUs() {
			err = fmt.Errorf("%w; for a lab with emulated GPUs, set image: debian-13+gpu", err)
		}
		return nil, fault(err)
	}
	if err != nil {
		return nil, err
	}
	return &rack.Placement{URI: at.uri, Plan: p.Plan, Host: p.Host}, nil
}

// up prints the time taken, or that there was nothing to do.
func (a *app) up(ctx context.Context, d rack.Dirs, l *lab.Lab, o rack.Options) error {
	ui := a.display()
	defer ui.Close()
	// A lab that is already up has no steps.
	worked := false
	o.Progress = func(e rack.Event) {
		worked = worked || e.Step != ""
		ui.Event(e)
	}
	began := time.Now()
	r, err := rack.Up(ctx, d, l, o)
	ui.Close()
	if _, changed := errors.AsType[*libvirt.ChangedError](err); changed {
		return faultf("%w\n--recreate ends it, and starts it with the new definition", err)
	}
	if _, undone := errors.AsType[*rack.UndoneError](err); undone && ctx.Err() != nil {
		return errUndone
	}
	if err != nil {
		return err
	}
	defer r.Close()
	how := "as it was"
	if worked {
		how = "after " + words.Seconds(time.Since(began))
	}
	// Nodes without disks use little memory.
	if bytes, ok := r.Memory(); ok && slices.ContainsFunc(r.Lab.Nodes, lab.Node.HasDisk) {
		how += ", in " + words.Bytes(bytes) + " of memory"
	}
	fmt.Fprintf(a.out, "lab %s is up: %s on %s, %s\n", l.Name, words.Count(len(r.State.Nodes), "node"),
		accelText(r.State.Accel), how)
	return nil
}

func accelText(accel string) string {
	if rack.IsHardware(accel) {
		return accel
	}
	return accel + " (emulated)"
}

// newDownCmd accepts a lab's name, because its file may be gone.
func newDownCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down NAME|LAB.yaml... | --all",
		Short: "Stop labs and remove everything but their results",
		Args: func(cmd *cobra.Command, args []string) error {
			// A slip ends nothing.
			if all != (len(args) == 0) {
				return cli.Usagef(cmd, "want names of labs, lab files, or --all")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return a.offered(args, userdirs.Dirs.Names, cobra.ShellCompDirectiveDefault)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			if !all {
				return a.down(cmd.Context(), d, args)
			}
			gone, err := rack.DownAll(cmd.Context(), d, func(what string) { fmt.Fprintln(a.out, what) })
			for _, n := range gone {
				fmt.Fprintf(a.out, "lab %s is down\n", n)
			}
			if err == nil && len(gone) == 0 {
				fmt.Fprintln(a.out, "no lab was running")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop every lab of this user")
	return cmd
}

// down ends all labs that it can; errors come last.
func (a *app) down(ctx context.Context, d rack.Dirs, args []string) error {
	// Before anything ends.
	names := make([]string, len(args))
	for i, arg := range args {
		var err error
		if names[i], err = planner.LabName(arg); err != nil {
			return err
		}
	}
	var errs []error
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		was, err := rack.Down(ctx, d, name, func(what string) { fmt.Fprintln(a.out, what) })
		switch {
		case err != nil:
			errs = append(errs, err)
		case was:
			fmt.Fprintf(a.out, "lab %s is down\n", name)
		default:
			errs = append(errs, a.notRunning(d, name))
		}
	}
	return errors.Join(errs...)
}

func (a *app) notRunning(d rack.Dirs, name string) error {
	others, err := d.Names()
	if err != nil {
		return err
	}
	if len(others) == 0 {
		return fmt.Errorf("lab %s is not running, and no other lab is", name)
	}
	return fmt.Errorf("lab %s is not running; running: %s", name, strings.Join(others, ", "))
}
