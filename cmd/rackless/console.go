//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
)

// newConsoleCmd makes rackless console. It also works if the agent does not answer, which exec needs.
func newConsoleCmd(a *app) *cobra.Command {
	// A console has no end of output. After the end of the input, this much silence stands for it.
	quiet := time.Second
	cmd := &cobra.Command{
		Use:               "console NODE",
		Short:             "Open the serial console of a node: a root shell",
		Args:              cli.ExactArgs(1, "a node, which rackless ls shows"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, node, err := a.openNode(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			conn, err := r.Console(cmd.Context(), node)
			if err != nil {
				return err
			}
			defer conn.Close()
			if t := terminal.Of(a.in); t != nil {
				fmt.Fprintf(a.err, "console of %s in lab %s: Enter shows the prompt, Ctrl-] leaves\n", node, r.Lab.Name)
				return terminal.Connect(cmd.Context(), conn, t, raw(a.out))
			}
			return terminal.Pipe(cmd.Context(), conn, a.in, raw(a.out), quiet)
		},
	}
	cmd.Flags().DurationVar(&quiet, "quiet", quiet, "without a terminal: end after this much silence")
	return cmd
}
