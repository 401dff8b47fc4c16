//go:build linux

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/host"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

// planArtifacts includes the scripts that prepare the host.
var planArtifacts = host.Artifacts

// upRefuses returns the error of up on this machine for a valid lab.
var upRefuses = rack.Check

// newLabDiffCmd shows the nodes that up would interrupt.
func newLabDiffCmd(a *app) *cobra.Command {
	var format string
	cmd := ofLabFile(&cobra.Command{
		Use:   "diff [LAB.yaml]",
		Short: "Show what up would change in the running lab, and what that interrupts",
	}, func(ctx context.Context, l *lab.Lab, _ string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		out, err := rack.Compare(ctx, d, l)
		if err != nil {
			return err
		}
		return a.print(format, out, out.Text(len(l.Nodes)))
	})
	outputFlag(cmd, &format)
	return cmd
}
