package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/doctor"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack"
)

// newDoctorCmd makes rackless doctor. It changes nothing, so it is safe to run first on any machine.
func newDoctorCmd(a *app) *cobra.Command {
	var format string
	var probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can do as a host of labs, and how to fix what it lacks",
		Long: `Checks everything that up needs, and what makes it fast, and prints one line for each with what was
found; then what emulate needs, and what this machine needs to give its own devices to labs. It
installs and changes nothing. To find out whether KVM can be used, it boots the node image under
KVM, up to 8 seconds; the answer is kept until the machine reboots. That needs the image: --probe
builds it if it is missing.

  ok    as it should be
  warn  labs come up, but slower or smaller than they could
  lack  labs do not come up

Ends with status 3 if something is lacking for emulated labs.`,
		Example: `  rackless doctor
  rackless doctor -o json`,
		Args: cli.ExactArgs(0, "no argument"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, _ []string) error {
			// What the checks find is printed below: only the step that runs is shown meanwhile.
			ui := a.display()
			out := doctor.Look(ctx, doctor.Options{Dirs: d, Probe: probe, Progress: &rack.Progress{Report: ui.Quiet()}})
			ui.Close()
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if err := a.print(format, out, out.Text(a.painter())); err != nil || out.Ready {
				return err
			}
			return cli.Exit(exitFaults)
		}),
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&probe, "probe", false, "build the image if it is missing, to find out whether KVM can be used")
	return cmd
}
