//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

func newNICCmd(a *app) *cobra.Command {
	return grouping("nic", "List the emulated ConnectX NICs of labs, make them fail, reset them, or serve them",
		newNICLsCmd(a), newNICFaultCmd(a), newNICResetCmd(a), newNICServeCmd(a))
}

func newNICLsCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:               "ls [LAB]",
		Aliases:           []string{"list"},
		Short:             "List the emulated NICs, as they are now",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			racks, err := a.openLabs(args)
			if err != nil {
				return err
			}
			out := tables.Adapters{Adapters: []tables.LabAdapter{}}
			for _, r := range racks {
				all, err := r.Adapters(cmd.Context())
				if err != nil {
					return err
				}
				for _, x := range all {
					out.Adapters = append(out.Adapters, tables.LabAdapter{Lab: r.Lab.Name, Adapter: x})
				}
			}
			if len(out.Adapters) == 0 && !show.ForPrograms(format) {
				return a.show("no running lab has emulated NICs; ask for them with nic: connectx-4-lx in a " +
					"lab file\n")
			}
			return a.print(format, out, tables.AdapterGrid(out))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}

func newNICFaultCmd(a *app) *cobra.Command {
	var kind, nic, format string
	var unset bool
	var last time.Duration
	var kinds, list []string
	for _, f := range checks.Faults {
		kinds = append(kinds, string(f.Kind))
		list = append(list, fmt.Sprintf("  %-13s %s", f.Kind, f.Help))
	}
	cmd := &cobra.Command{
		Use:               "fault NODE",
		Short:             "Make an emulated NIC fail, or work again",
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
			return a.onAdapter(cmd.Context(), format, args[0], nic, func(ctx context.Context, x rack.Adapted,
				node string, i int) error {
				return rack.Fail(ctx, x, node, i, checks.Fault(kind), last)
			})
		},
	}
	cli.EnumFlag(cmd, &kind, "kind", "", "what fails", kinds...)
	cmd.Flags().StringVar(&nic, "nic", "", "the `DEVICE` in the node, such as eth1; else its first")
	cmd.Flags().BoolVar(&unset, "clear", false, "end the fault")
	cmd.Flags().DurationVar(&last, "for", 0, "end the fault after this time")
	cli.OfferWords(cmd, "nic", "for")
	outputFlag(cmd, &format)
	return cmd
}

func newNICResetCmd(a *app) *cobra.Command {
	var nic, format string
	cmd := &cobra.Command{
		Use:               "reset NODE",
		Short:             "Reset an emulated NIC while it is in use",
		Args:              cli.ExactArgs(1, "one node"),
		ValidArgsFunction: a.completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onAdapter(cmd.Context(), format, args[0], nic, func(ctx context.Context, x rack.Adapted,
				node string, i int) error {
				return x.ResetAdapter(ctx, node, i)
			})
		},
	}
	cmd.Flags().StringVar(&nic, "nic", "", "the `DEVICE` in the node, such as eth1; else its first")
	cli.OfferWords(cmd, "nic")
	outputFlag(cmd, &format)
	return cmd
}

func (a *app) onAdapter(ctx context.Context, format, arg, nic string,
	do func(ctx context.Context, x rack.Adapted, node string, i int) error) error {
	r, node, err := a.openNode(arg)
	if err != nil {
		return err
	}
	defer r.Close()
	x, i, err := r.Adapted(node, nic)
	if err != nil {
		return err
	}
	if err := do(ctx, x, node, i); err != nil {
		return err
	}
	all, err := r.Adapters(ctx)
	if err != nil {
		return err
	}
	out := tables.Adapters{}
	for _, x := range slices.DeleteFunc(all, func(x checks.Adapter) bool { return x.Node != node }) {
		out.Adapters = append(out.Adapters, tables.LabAdapter{Lab: r.Lab.Name, Adapter: x})
	}
	return a.print(format, out, tables.AdapterGrid(out))
}
