//go:build linux

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/rack"
)

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
