package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/docs"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/report/show"
)

func newLabCmd(a *app) *cobra.Command {
	return grouping("lab", "Check a lab file, show its defaults, and what up would change",
		newLabCheckCmd(a), newLabDefaultsCmd(a), newLabDiffCmd(a), newLabSchemaCmd(a))
}

// labCheckOutput is for a valid file.
type labCheckOutput struct {
	File        string `json:"file"`
	Lab         string `json:"lab"`
	Driver      string `json:"driver"`
	Nodes       int    `json:"nodes"`
	Subnet      string `json:"subnet"`
	MTU         int    `json:"mtu"`                  // bytes
	RDMAPayload int    `json:"rdma_payload"`         // bytes
	UpRefuses   string `json:"up_refuses,omitempty"` // although it is valid
}

// labFaultsOutput is for a file with errors.
type labFaultsOutput struct {
	File   string     `json:"file"`
	Faults lab.Errors `json:"faults"`
}

// newLabCheckCmd lists all errors and exits with status 2, like up.
func newLabCheckCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "check [LAB.yaml]",
		Short:             "Check a lab file: list every fault with its line, exit with status 2 if there is one",
		Args:              cli.MaxArgs(1, "one LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := labFile(cmd, args)
			if err != nil {
				return err
			}
			l, err := loadLab(file)
			if faults, ok := errors.AsType[lab.Errors](err); ok && show.ForPrograms(format) {
				return errors.Join(a.print(format, labFaultsOutput{File: file, Faults: faults}, nil), err)
			}
			if err != nil {
				return err
			}
			out := labCheckOutput{file, l.Name, string(l.RunBy()), len(l.Nodes), l.Fabric.Subnet.String(), l.Fabric.MTU,
				l.Fabric.RDMAPayload(), ""}
			// It may be meant for another machine or for a plan.
			if err := upRefuses(l); err != nil {
				out.UpRefuses = err.Error()
				fmt.Fprintf(a.err, "the file is right, but up will refuse it: %v\n", err)
			}
			cpus, memory := l.Totals()
			return a.print(format, out, fmt.Sprintf("%s: lab %s: %s, %s, %s, %s, MTU %d (RDMA payload %d)\n", file,
				l.Name, words.Count(len(l.Nodes), "node"), cpus, memory, out.Subnet, out.MTU, out.RDMAPayload))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

// newLabDefaultsCmd prints a lab file with the same meaning.
func newLabDefaultsCmd(a *app) *cobra.Command {
	return ofLabFile(&cobra.Command{
		Use:   "defaults [LAB.yaml]",
		Short: "Print a lab file with every default written out, and the addresses that follow",
	}, func(_ context.Context, l *lab.Lab, _ string) error {
		_, err := a.out.Write(l.YAML())
		return err
	})
}

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

// ofLabFile completes a verb whose one argument is a lab file, by default the only one here. run gets the file's name
// for messages.
func ofLabFile(cmd *cobra.Command, run func(ctx context.Context, l *lab.Lab, file string) error) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction = cli.MaxArgs(1, "one LAB.yaml"), completeLabFiles
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := labFile(cmd, args)
		if err != nil {
			return err
		}
		l, err := loadLab(file)
		if err != nil {
			return err
		}
		return run(cmd.Context(), l, file)
	}
	return cmd
}

func labFile(cmd *cobra.Command, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	files, err := lab.Files(os.DirFS("."))
	switch {
	case err != nil:
		return "", err
	case len(files) == 0:
		return "", cli.Usagef(cmd, "there is no lab file in this directory: name one, or make one with rackless init")
	case len(files) > 1:
		return "", cli.Usagef(cmd, "there are several lab files in this directory: name one of %s",
			strings.Join(files, ", "))
	}
	return files[0], nil
}

func loadLab(path string) (*lab.Lab, error) { return planner.ReadLab(path) }
