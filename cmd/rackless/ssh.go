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
		Use:   "ssh NODE [--] [COMMAND [ARGUMENT]...]",
		Short: "Open a shell on a full node by ssh, or run a command there",
		Long: `Runs ssh to a node, given as NODE or LAB/NODE, and ends with its exit status. The node must boot
a full image (image: debian-12 in the lab file). The connection needs no network and no root: it
goes through a port of the virtual machine. The key is made for the lab and lies in its directory.
Four connections to a node are possible at once. On the nodes, ssh NODE does the same between them.

With --stdio, the connection itself is joined to standard input and output, for ProxyCommand in the
configuration of ssh and of other programs that use it.`,
		Example: `  rackless ssh vm00
  rackless ssh pair/vm00 -- 'ssh vm01 hostname'`,
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
		Long: `Copies files with scp. A path on a node has the form NODE:PATH or LAB/NODE:PATH; without a leading
slash it is below /root. All nodes of a command are of one lab. See rackless ssh.`,
		Example: `  rackless cp input.txt vm00:
  rackless cp -r pair/vm01:/var/log logs`,
		Args: cli.RangeArgs(2, 1<<20, "a source and a target, such as FILE NODE:PATH"),
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
