package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
)

func newDownCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down NAME|LAB.yaml | --all",
		Short: "End a lab: no process, socket or file of it remains but its results",
		Args: func(cmd *cobra.Command, args []string) error {
			if all != (len(args) == 0) || len(args) > 1 {
				return usage(fmt.Errorf("%s: want the name of a lab, a lab file, or --all\nsee: %s --help", cmd.CommandPath(), cmd.CommandPath()))
			}
			return nil
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
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
			name, err := labName(args[0])
			if err != nil {
				return err
			}
			was, err := rack.Down(cmd.Context(), d, name)
			switch {
			case err != nil:
				return err
			case was:
				fmt.Fprintf(a.out, "lab %s is down\n", name)
			default:
				fmt.Fprintf(a.out, "lab %s was not running\n", name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end every lab of this user")
	return cmd
}

// labName returns the name of the lab that an argument means: itself, or the name in the lab file that it leads to.
func labName(arg string) (string, error) {
	if !strings.ContainsAny(arg, "./") {
		return arg, nil
	}
	l, err := loadLab(arg)
	if err != nil {
		return "", err
	}
	return l.Name, nil
}
