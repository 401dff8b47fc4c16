//go:build linux

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/doctor"
)

// newDoctorCmd changes nothing: it is safe to run first.
func newDoctorCmd(a *app) *cobra.Command {
	var format string
	var probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can do as a host of labs, and how to fix what is missing",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: a.inDirs(func(ctx context.Context, d rack.Dirs, _ []string) error {
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
