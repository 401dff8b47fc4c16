//go:build linux

package main

import (
	"log/slog"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack/emulated"
)

// newDaemonCmd is hidden; up starts it for every lab.
func newDaemonCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     emulated.DaemonCommand + " DIR",
		Short:   "Run the switch of a lab and hold the connections to its agents",
		Example: "  rackless " + emulated.DaemonCommand + " /run/rackless/pair",
		Hidden:  true,
		Args:    cli.ExactArgs(1, "the directory of a lab"),
		RunE: func(cmd *cobra.Command, args []string) error {
			syscall.Umask(0o077) // files of a lab are for the owner alone
			return emulated.RunDaemon(cmd.Context(), args[0], a.out, slog.New(slog.NewTextHandler(a.err, nil)))
		},
	}
}
