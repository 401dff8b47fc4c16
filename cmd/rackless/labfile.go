package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/docs"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

// newLabCmd holds the commands that work on lab files.
func newLabCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Work on a lab file, and break a running lab to learn from it",
	}
	cmd.AddCommand(newLabCheckCmd(a), newLabDefaultsCmd(a), newLabDiffCmd(a), newLabSchemaCmd(a),
		newLabBreakCmd(a), newLabJudgeCmd(a), newLabMendCmd(a))
	return cmd
}

// newLabCheckCmd makes rackless lab check. All faults are listed at once, with status 2, as up would end.
func newLabCheckCmd(a *app) *cobra.Command {
	return ofLabFile(&cobra.Command{
		Use:   "check [LAB.yaml]",
		Short: "Check a lab file: list every fault with its line, exit with status 2 if there is one",
	}, func(_ context.Context, l *lab.Lab, file string) error {
		cpus, memory := l.Totals()
		fmt.Fprintf(a.out, "%s: lab %s: %s, %s, %s, %v, MTU %d (RDMA payload %d)\n", file, l.Name,
			words.Count(len(l.Nodes), "node"), cpus, memory, l.Fabric.Subnet, l.Fabric.MTU, l.Fabric.RDMAPayload())
		// The file is right all the same: it may be meant for another machine, or for a plan.
		if err := rack.Check(l); err != nil {
			fmt.Fprintf(a.err, "the file is right, but up will refuse it: %v\n", err)
		}
		return nil
	})
}

// newLabDefaultsCmd makes rackless lab defaults. Its output is a lab file with the same meaning.
func newLabDefaultsCmd(a *app) *cobra.Command {
	return ofLabFile(&cobra.Command{
		Use:   "defaults [LAB.yaml]",
		Short: "Print a lab file with every default written out, and the addresses that follow",
	}, func(_ context.Context, l *lab.Lab, _ string) error {
		_, err := a.out.Write(l.YAML())
		return err
	})
}

// newLabSchemaCmd makes rackless lab schema.
func newLabSchemaCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of the lab file",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(docs.LabSchema)
			return err
		},
	}
}

// newLabDiffCmd makes rackless lab diff. It shows before up what up would interrupt.
func newLabDiffCmd(a *app) *cobra.Command {
	var format string
	cmd := ofLabFile(&cobra.Command{
		Use:   "diff [LAB.yaml]",
		Short: "Show what up would change in the running lab, and what that interrupts",
	}, func(ctx context.Context, l *lab.Lab, _ string) error {
		d, err := a.dirs()
		if err != nil {
			return err
		}
		out, err := rack.Compare(ctx, d, l)
		if err != nil {
			return err
		}
		return a.print(format, out, out.Text(len(l.Nodes)))
	})
	outputFlag(cmd, &format)
	return cmd
}
