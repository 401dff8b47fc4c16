package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/rack"
)

func newVerifyCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify NAME|LAB.yaml",
		Short: "Check every fact of a running lab, with evidence and fixes",
		Long: `Checks the running lab from inside its nodes: links, MTU, active IB MTU, GID tables and the RoCE v2 GID index (found, never
assumed), every peer at full MTU without fragmentation, RDMA messages around the ring with the device counters before
and after, and that no two nodes share a name, an address or a random state.

Ends with status 3 if a check failed.`,
		Args:              exactArgs(1, "the name of a lab or a lab file"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := labName(args[0])
			if err != nil {
				return err
			}
			d, err := a.dirs()
			if err != nil {
				return err
			}
			r, err := rack.Open(d, name)
			if err != nil {
				return err
			}
			defer r.Close()
			ui := newUI(a.err, a.env)
			p := &rack.Progress{Report: ui.event}
			findings, err := check.Lab(cmd.Context(), r.Lab, r, p.Begin)
			p.End(err)
			ui.close()
			if err != nil {
				return err
			}
			for _, f := range findings { fmt.Fprintln(a.out, f.Status, f.ID, f.Subject, f.Have, f.Want, f.Fix) }
			return nil
		},
	}
	return cmd
}
