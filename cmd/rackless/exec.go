package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/rack"
)

func newExecCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARGUMENT]...",
		Short: "Run a command on a node",
		Long: `Runs a command on a node, given as NODE or LAB/NODE, and ends with its exit status. Standard input is passed on
unless it is a terminal; output comes when the command has ended. For an interactive shell see rackless console.`,
		Example: `  rackless exec vm00 -- ibv_devinfo
  rackless exec pair/vm00 -- sh -c 'echo hello; exit 3'
  echo text | rackless exec vm01 -- wc -c`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usage(fmt.Errorf("exec: want a node and a command: rackless exec NODE -- COMMAND"))
			}
			return nil
		},
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.dirs()
			if err != nil {
				return err
			}
			r, node, err := rack.OpenNode(d, args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			c := guest.Command{Argv: args[1:]}
			if !term.IsTerminal(int(a.in.Fd())) {
				if c.Stdin, err = io.ReadAll(a.in); err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
			}
			res, err := r.Run(cmd.Context(), node, c)
			if rack.IsNoProgram(err) {
				return &exitError{127, err} // as a shell has it
			}
			if err != nil {
				return err
			}
			if _, err := a.out.Write(res.Stdout); err != nil {
				return err
			}
			if _, err := a.err.Write(res.Stderr); err != nil {
				return err
			}
			if res.ExitCode != 0 {
				return &exitError{res.ExitCode, nil}
			}
			return nil
		},
	}
}
