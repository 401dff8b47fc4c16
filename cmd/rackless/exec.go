//go:build linux

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
)

// newExecCmd makes rackless exec. Its exit status is the command's, as with ssh, so that scripts can rely on it.
func newExecCmd(a *app) *cobra.Command {
	var noStdin bool
	cmd := &cobra.Command{
		Use:   "exec [-n] NODE [--] COMMAND [ARGUMENT]...",
		Short: "Run a command on a node",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(execCommand(args)) == 0 {
				return cli.Usagef(cmd, "want a node and a command: rackless exec NODE -- COMMAND")
			}
			return nil
		},
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, node, err := a.openNode(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			c := guest.Command{Argv: execCommand(args)}
			if !noStdin && terminal.Of(a.in) == nil {
				if c.Stdin, err = guest.ReadInput(cmd.Context(), a.in); err != nil {
					return err
				}
			}
			exit, err := r.Stream(cmd.Context(), node, c, raw(a.out), raw(a.err))
			if errors.Is(err, guest.ErrNoProgram) {
				return &cli.Error{Code: exit, Err: err} // 127, as a shell has it
			}
			if err != nil {
				return err
			}
			return cli.Exit(exit)
		},
	}
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "pass nothing on and leave standard input alone")
	// Flags after the node are the command's: "rackless exec vm00 ls -l" does what it looks like.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// execCommand returns the command in exec's arguments, which may stand behind a "--".
func execCommand(args []string) []string {
	switch {
	case len(args) < 2:
		return nil
	case args[1] == "--":
		return args[2:]
	}
	return args[1:]
}
