//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/rack/ssh"
	"github.com/rackless/rackless/vm/guest"
)

// newExecCmd exits with the command's status, like ssh.
func newExecCmd(a *app) *cobra.Command {
	var noStdin bool
	var quiet time.Duration
	cmd := &cobra.Command{
		Use:   "exec [-n] NODE [[--] COMMAND [ARGUMENT]...]",
		Short: "Run a command on a node, or open a root shell on its serial console",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef(cmd, "want a node and a command: rackless exec NODE -- COMMAND")
			}
			if len(args) > 1 && len(execCommand(args)) == 0 {
				return cli.Usagef(cmd, "want a command after --, or nothing after the node for a shell")
			}
			return nil
		},
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.console(cmd.Context(), args[0], quiet)
			}
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
				return &cli.Error{Code: exit, Err: err} // 127, as in a shell
			}
			if err != nil {
				return err
			}
			return cli.Exit(exit)
		},
	}
	cmd.Flags().BoolVarP(&noStdin, "no-stdin", "n", false, "pass nothing on and leave standard input alone")
	consoleFlag(cmd, &quiet)
	// Flags after the node belong to the command.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// execCommand follows an optional "--".
func execCommand(args []string) []string {
	switch {
	case len(args) < 2:
		return nil
	case args[1] == "--":
		return args[2:]
	}
	return args[1:]
}

// newSSHCmd replaces its process by ssh, for terminal, signals and exit status. ssh connects through another rackless
// with --stdio.
func newSSHCmd(a *app) *cobra.Command {
	var stdio bool
	cmd := &cobra.Command{
		Use:               "ssh NODE [--] [COMMAND [ARGUMENT]...]",
		Short:             "Open a shell on a full node with ssh, or run a command there",
		Args:              cli.RangeArgs(1, 1<<20, "a node, and a command if you like"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, node, err := a.openNode(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			if stdio {
				return ssh.Serve(cmd.Context(), r, node, a.in, raw(a.out))
			}
			return ssh.Run(r, node, execCommand(args))
		},
	}
	cmd.Flags().BoolVar(&stdio, "stdio", false, "connect standard input and output with the node's sshd")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func newCpCmd(a *app) *cobra.Command {
	var recursive bool
	cmd := &cobra.Command{
		Use:   "cp [-r] SOURCE... TARGET",
		Short: "Copy files to a full node, from one, or between two",
		Args:  cli.RangeArgs(2, 1<<20, "a source and a target, such as FILE NODE:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			node := ssh.FirstNode(args)
			if node == "" {
				return cli.Usagef(cmd, "no path is on a node: write NODE:PATH")
			}
			r, _, err := a.openNode(node)
			if err != nil {
				return err
			}
			defer r.Close()
			exit, err := ssh.Copy(cmd.Context(), r, recursive, args)
			if err != nil {
				return err
			}
			return cli.Exit(exit)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories recursively")
	return cmd
}

// newConsoleCmd is the former name of exec without a command.
func newConsoleCmd(a *app) *cobra.Command {
	var quiet time.Duration
	cmd := &cobra.Command{
		Use:               "console NODE",
		Short:             "Open the serial console of a node: a root shell",
		Args:              cli.ExactArgs(1, "a node, which rackless ls shows"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.console(cmd.Context(), args[0], quiet)
		},
	}
	consoleFlag(cmd, &quiet)
	return cmd
}

// consoleFlag adds the silence that ends a console after the end of the input: a console's output has no end.
func consoleFlag(cmd *cobra.Command, quiet *time.Duration) {
	cmd.Flags().DurationVar(quiet, "quiet", time.Second, "console without a terminal: end after this much silence")
}

// console also works if the agent does not answer.
func (a *app) console(ctx context.Context, name string, quiet time.Duration) error {
	r, node, err := a.openNode(name)
	if err != nil {
		return err
	}
	defer r.Close()
	conn, err := r.Console(ctx, node)
	if err != nil {
		return err
	}
	defer conn.Close()
	if t := terminal.Of(a.in); t != nil {
		fmt.Fprintf(a.err, "console of %s in lab %s: Enter shows the prompt, Ctrl-] leaves\n", node, r.Lab.Name)
		return terminal.Connect(ctx, conn, t, raw(a.out))
	}
	return terminal.Pipe(ctx, conn, a.in, raw(a.out), quiet)
}
