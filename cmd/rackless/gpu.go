//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

func newGPUCmd(a *app) *cobra.Command {
	return grouping("gpu", "List the emulated GPUs of labs, and make them fail", newGPULsCmd(a), newGPUFaultCmd(a))
}

func newGPULsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "ls [LAB]",
		Aliases:           []string{"list"},
		Short:             "List the emulated GPUs, as they are now",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			racks, err := a.openLabs(args)
			if err != nil {
				return err
			}
			out := tables.GPUs{GPUs: []tables.LabGPU{}}
			for _, r := range racks {
				all, err := r.GPUs(cmd.Context())
				if err != nil {
					return err
				}
				for _, x := range all {
					out.GPUs = append(out.GPUs, tables.LabGPU{Lab: r.Lab.Name, GPU: x})
				}
			}
			if len(out.GPUs) == 0 && !show.ForPrograms(format) {
				return a.show("no running lab has emulated GPUs; ask for them with gpus: 1 in a lab file, see " +
					"examples/gpu.yaml\n")
			}
			return a.print(format, out, tables.GPUGrid(out))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func newGPUFaultCmd(a *app) *cobra.Command {
	var kind, format string
	var number int
	var unset bool
	var last time.Duration
	var kinds, list []string
	for _, f := range checks.GPUFaults {
		kinds = append(kinds, string(f.Kind))
		list = append(list, fmt.Sprintf("  %-15s %s", f.Kind, f.Help))
	}
	cmd := &cobra.Command{
		Use:               "fault NODE",
		Short:             "Make an emulated GPU fail, or work again",
		Long:              strings.Join(list, "\n"), // for the %s in the help
		Args:              cli.ExactArgs(1, "one node"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case unset == (kind != ""):
				return cli.Usagef(cmd, "want --kind or --clear")
			case last < 0 || last > 0 && unset:
				return cli.Usagef(cmd, "--for %v: it is a time after which a --kind ends", last)
			}
			r, node, err := a.openNode(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			if err := r.FailGPU(cmd.Context(), node, number, checks.GPUFault(kind), last); err != nil {
				return err
			}
			all, err := r.GPUs(cmd.Context())
			if err != nil {
				return err
			}
			out := tables.GPUs{}
			for _, x := range slices.DeleteFunc(all, func(x checks.GPU) bool { return x.Node != node }) {
				out.GPUs = append(out.GPUs, tables.LabGPU{Lab: r.Lab.Name, GPU: x})
			}
			return a.print(format, out, tables.GPUGrid(out))
		},
	}
	cli.EnumFlag(cmd, &kind, "kind", "", "what fails", kinds...)
	cmd.Flags().IntVar(&number, "gpu", 0, "the `NUMBER` of the GPU in the node, as in rackless gpu ls")
	cmd.Flags().BoolVar(&unset, "clear", false, "end the fault")
	cmd.Flags().DurationVar(&last, "for", 0, "end the fault after this time")
	cli.OfferWords(cmd, "gpu", "for")
	outputFlag(cmd, &format)
	return cmd
}
