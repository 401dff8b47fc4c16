//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack/ssh"
)

// newSSHCmd makes rackless ssh. The program ssh takes this one's place, so that terminal, signals
// and exit status are its own; its connection is this program once more, with --stdio.
func newSSHCmd(a *app) *cobra.Command {
	var stdio bool
	cmd := &cobra.Command{
		Use:               "ssh NODE [--] [COMMAND [ARGUMENT]...]",
		Short:             "Open a shell on a full node by ssh, or run a command there",
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
	cmd.Flags().BoolVar(&stdio, "stdio", false, "join the connection to standard input and output")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// newCpCmd makes rackless cp.
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
			return ssh.Copy(r, recursive, args)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy directories with what is in them")
	return cmd
}
