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
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/placed"
	_ "github.com/rackless/rackless/rack/vcenter" // the driver vsphere
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/vm/libvirt"
)

// newUpCmd makes rackless up. The same verb starts, repairs and changes a lab: it compares the lab with its file.
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
		// A flag that would be passed over is refused: whoever says --connect means a host.
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
	cmd.Flags().StringVar(&at.host, "host", "", "the output of inspect -o json on the host, in `FILE`, if that is "+
		"another machine")
	cmd.Flags().BoolVar(&o.Recreate, "recreate", false, "restart running domains that have changed")
	cmd.Flags().BoolVar(&at.dryRun, "dry-run", false, "with driver vsphere, show each step and its changes, and "+
		"change nothing")
	cmd.Flags().BoolVar(&at.yes, "yes", false, "with driver vsphere, do not ask")
	addInsecure(cmd)
	return cmd
}

// placeOptions say where a lab is placed, and whether the host may be changed for it.
type placeOptions struct {
	uri, host   string
	dryRun, yes bool
}

// agreeUp shows the steps that up makes on a host, where its driver has some, and asks whether to make them. It
// reports whether up goes on.
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

// placement returns where a lab goes: as this host was prepared for it, or as planned for another host.
func (a *app) placement(ctx context.Context, l *lab.Lab, file string, at placeOptions) (*rack.Placement, error) {
	if l.VSphere != nil {
		if at.host != "" {
			return nil, cli.Usage(fmt.Errorf("--host %s: lab %s goes on host %s of vSphere, as its file says", at.host,
				l.Name, l.VSphere.Host))
		}
		at.host, at.uri = planner.HostOf(l, planner.Local), ""
	}
	// Another host cannot be asked for what it is prepared: the lab is planned for it here and now.
	if at.host != "" {
		r, err := a.planAt(ctx, at.host, l, file, "")
		if err != nil {
			return nil, err
		}
		return &rack.Placement{URI: at.uri, Plan: r.Plan, Host: r.Host}, nil
	}
	p, err := a.store().For(ctx, a.system(), host.ThisMachine(a.binary(), host.Look{}), l, file)
	if _, unfit := errors.AsType[*host.UnfitError](err); unfit {
		return nil, fault(err)
	}
	if err != nil {
		return nil, err
	}
	return &rack.Placement{URI: at.uri, Plan: p.Plan, Host: p.Host}, nil
}

// up brings the lab up, and prints how long that took or that nothing had to be done.
func (a *app) up(ctx context.Context, d rack.Dirs, l *lab.Lab, o rack.Options) error {
	ui := a.display()
	defer ui.Close()
	// Whether anything was done is told by the steps: a lab that was up already has none.
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
	if err != nil {
		return err
	}
	defer r.Close()
	how := "as it was"
	if worked {
		how = "after " + words.Seconds(time.Since(began))
	}
	// Small nodes take little.
	if bytes, ok := r.Memory(); ok && slices.ContainsFunc(r.Lab.Nodes, lab.Node.HasDisk) {
		how += ", in " + words.Bytes(bytes) + " of memory"
	}
	fmt.Fprintf(a.out, "lab %s is up: %s on %s, %s\n", l.Name, words.Count(len(r.State.Nodes), "node"),
		accelText(r.State.Accel), how)
	return nil
}

// accelText names an accelerator, and says of one that is an emulation that it is.
func accelText(accel string) string {
	if rack.IsHardware(accel) {
		return accel
	}
	return accel + " (emulated)"
}

// newDownCmd makes rackless down. It takes the name of a lab as well as its file, because the file may be gone.
func newDownCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down NAME|LAB.yaml | --all",
		Short: "Stop a lab and remove everything but its results",
		Args: func(cmd *cobra.Command, args []string) error {
			// Either --all or one lab: without both, nothing is ended by a slip.
			if all != (len(args) == 0) || len(args) > 1 {
				return cli.Usagef(cmd, "want the name of a lab, a lab file, or --all")
			}
			return nil
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			// One lab that cannot be ended keeps no other from it: what is gone is printed, and then the errors.
			if all {
				gone, err := rack.DownAll(cmd.Context(), d)
				for _, n := range gone {
					fmt.Fprintf(a.out, "lab %s is down\n", n)
				}
				if err == nil && len(gone) == 0 {
					fmt.Fprintln(a.out, "no lab was running")
				}
				return err
			}
			name, err := planner.LabName(args[0])
			if err != nil {
				return err
			}
			was, err := rack.Down(cmd.Context(), d, name)
			if err != nil {
				return err
			}
			if was {
				fmt.Fprintf(a.out, "lab %s is down\n", name)
				return nil
			}
			// To end what is not there is no error, so that scripts can do it unasked.
			others, err := d.Names()
			if err != nil {
				return err
			}
			hint := ""
			if len(others) > 0 { // the name may be a slip
				hint = "; running: " + strings.Join(others, ", ")
			}
			fmt.Fprintf(a.out, "lab %s was not running%s\n", name, hint)
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "stop every lab of this user")
	return cmd
}
