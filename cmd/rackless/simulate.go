//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report/simview"
	"github.com/rackless/rackless/report/tables"
)

func newSimulateCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "simulate FILE.yaml",
		Short:             "Simulate congestion between RDMA NICs in virtual time",
		Args:              cli.ExactArgs(1, "one FILE.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.simulate(cmd.Context(), format, args[0])
		},
	}
	format = formatText
	cli.EnumFlag(cmd, &format, "output", "o", "how to print the result", formatText, formatJSON, formatYAML, formHTML)
	return cmd
}

// simulate prints the result until then after Ctrl-C.
func (a *app) simulate(ctx context.Context, format, file string) error {
	text, err := userfile.Read(file, userfile.Text)
	if err != nil {
		return cli.Usage(err)
	}
	c, err := simulate.Parse(file, text, func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return userfile.Read(name, userfile.Text)
	})
	if err != nil {
		return cli.Usage(err)
	}
	if format == formHTML && c.Curves == nil {
		c.Curves = &simulate.Curves{}
	}
	r := simulate.Run(c, func() bool { return ctx.Err() != nil })
	if format == formHTML {
		err = simview.Page(a.out, r, tables.Simulation(r))
	} else {
		err = a.print(format, r, tables.Simulation(r))
	}
	if err != nil {
		return err
	}
	if r.Unfinished > 0 {
		return &cli.Error{Code: exitFailed, Err: fmt.Errorf("%d of %s did not end within %v of the simulation",
			r.Unfinished, words.Count(len(r.Flows), "flow"), r.Time)}
	}
	return nil
}
