//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/fabricview"
)

// newFabricSetCmd makes rackless fabric set, with one flag for each setting that package fabric knows.
func newFabricSetCmd(a *app) *cobra.Command {
	var format string
	var ports []string
	var reset, down, up bool
	var edits []fabric.LinkEdit
	cmd := &cobra.Command{
		Use:               "set [NAME|LAB.yaml]",
		Short:             "Make links to nodes slow, lossy or congested while they are in use",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(edits) == 0 && !reset && !down && !up {
				return cli.Usagef(cmd, "want what to set, or --clear; rackless fabric shows what is set")
			}
			if down || up {
				edits = append(edits, fabric.LinkEdit{Key: fabric.DownKey, Text: map[bool]string{true: "yes",
					false: "no"}[down]})
			}
			r, c, err := a.openSwitch(args)
			if err != nil {
				return err
			}
			// The links as they are now: what is not named stays, and only the switch knows it.
			before, err := c.Counters(cmd.Context())
			if err != nil {
				return err
			}
			changes, err := fabric.ChangeLinks(before.Ports, ports, reset, edits)
			if err != nil {
				return cli.Usagef(cmd, "lab %s: %v", r.Lab.Name, err)
			}
			// What is printed is what the switch has, and not what it was told.
			after, err := r.SetLinks(cmd.Context(), c, changes)
			if err != nil {
				return err
			}
			out := fabricview.DescribeLinks(r.Lab.Name, after)
			return a.print(format, out, out.Text())
		},
	}
	for _, key := range fabric.LinkKeys() {
		f := fabric.LinkFlag{Key: key, Edits: &edits}
		cmd.Flags().Var(f, key, f.Help())
	}
	cmd.Flags().BoolVar(&down, "down", false, "shut the port: the node's NIC loses its carrier, and no frame passes")
	cmd.Flags().BoolVar(&up, "up", false, "open a port that was shut")
	cmd.MarkFlagsMutuallyExclusive("down", "up")
	cmd.Flags().StringSliceVar(&ports, "port", nil, "of this node only; can be repeated (NODE.1 is its second NIC)")
	cmd.Flags().BoolVar(&reset, "clear", false, "remove all impairments first")
	outputFlag(cmd, &format)
	return cmd
}
