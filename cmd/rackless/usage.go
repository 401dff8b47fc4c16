package main

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/planner"
	"github.com/rackless/rackless/study/conduct"
)

// exitCode returns what an error ends the program with, and what is still to be said.
func exitCode(err error) (code int, text string) {
	if e, ok := errors.AsType[*cli.Error](err); ok {
		return e.Code, e.Error()
	}
	// Errors of other packages that are the caller's, since what was asked for cannot be done as it stands.
	_, wrong := errors.AsType[*planner.RequestError](err)
	if _, changed := errors.AsType[*conduct.ChangedError](err); wrong || changed {
		return exitUsage, err.Error()
	}
	return exitFailed, err.Error()
}

// hostFlags are --host and --snapshot, which both name the host that a verb is about.
type hostFlags struct{ host, snapshot string }

// add adds the flags to a verb; what is the verb of their help.
func (h *hostFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&h.host, "host", planner.Local, what+" `HOST`: local, or a file as inspect takes")
	// Both take the same files. The second reads better where the file is one that rackless snapshot
	// wrote.
	cmd.Flags().StringVar(&h.snapshot, "snapshot", "", what+" the machine of the snapshot `FILE`")
	cli.Offer(cmd, "host", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{planner.Local}, cobra.ShellCompDirectiveDefault // or files
	})
}

// check refuses both flags together, because neither is the obvious winner.
func (h *hostFlags) check(cmd *cobra.Command) error {
	if f := cmd.Flags(); f.Changed("snapshot") && f.Changed("host") {
		return cli.Usagef(cmd, "--host %s and --snapshot %s are both the host: leave one out", h.host, h.snapshot)
	}
	return nil
}

// chosen is the host as planner.ReadHost takes it.
func (h *hostFlags) chosen() string { return cmp.Or(h.snapshot, h.host) }
