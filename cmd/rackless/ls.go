//go:build linux

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

type lsOutput struct {
	Labs []rack.Description `json:"labs"` // sorted by name
}

// newLsCmd asks the machines, because the state on disk may be old.
func newLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "ls [LAB]",
		Aliases:           []string{"list"},
		Short:             "List the running labs and their nodes, as they are now",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			// openLabs may return labs together with an error.
			racks, err := a.openLabs(args)
			out := lsOutput{Labs: []rack.Description{}}
			for _, r := range racks {
				out.Labs = append(out.Labs, r.Describe(cmd.Context()))
			}
			if show.ForPrograms(format) {
				return errors.Join(show.Encode(a.out, format, out), err)
			}
			return errors.Join(a.printLabs(out, err), err)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) openLabs(args []string) ([]*rack.Rack, error) {
	if len(args) > 0 {
		r, err := a.openLab(args[0])
		if err != nil {
			return nil, err
		}
		return []*rack.Rack{r}, nil
	}
	d, err := a.dirs()
	if err != nil {
		return nil, err
	}
	return rack.OpenAll(d)
}

func (a *app) openLab(arg string) (*rack.Rack, error) {
	name, err := planner.LabName(arg)
	if err != nil {
		return nil, err
	}
	d, err := a.dirs()
	if err != nil {
		return nil, err
	}
	return rack.Open(d, name)
}

func (a *app) openNode(arg string) (r *rack.Rack, node string, err error) {
	d, err := a.dirs()
	if err != nil {
		return nil, "", err
	}
	return rack.OpenNode(d, arg)
}

// printLabs prints problems on standard error.
func (a *app) printLabs(out lsOutput, err error) error {
	if len(out.Labs) == 0 {
		if err == nil {
			fmt.Fprintln(a.out, "no lab is running; bring one up with: rackless up LAB.yaml")
		}
		return nil
	}
	if err := a.show(tables.Labs(out.Labs, time.Now())); err != nil {
		return err
	}
	// So that other programs can parse the table.
	for _, line := range tables.LabNotes(out.Labs) {
		fmt.Fprintln(a.err, line)
	}
	return nil
}

func (a *app) completeNodes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.offered(nil, rack.NodeNames, cobra.ShellCompDirectiveNoFileComp)
}
