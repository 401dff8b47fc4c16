package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/rack"
)

func newVerifyCmd(a *app) *cobra.Command {
	var output string
	var only []string
	cmd := &cobra.Command{
		Use:   "verify NAME|LAB.yaml",
		Short: "Check every fact of a running lab, with evidence and fixes",
		Long: `Checks the running lab from inside its nodes: links, MTU, active IB MTU, GID tables and the RoCE v2 GID index (found, never
assumed), every peer at full MTU without fragmentation, RDMA messages around the ring with the device counters before
and after, and that no two nodes share a name, an address or a random state.

Ends with status 3 if a check failed.`,
		Example: `  rackless verify pair
  rackless verify pair -o json`,
		Args:              exactArgs(1, "the name of a lab or a lab file"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range only {
				if !slices.Contains(check.IDs(), id) {
					return usage(fmt.Errorf("--only %s: no such check; there are %s", id, strings.Join(check.IDs(), ", ")))
				}
			}
			name, err := labName(args[0])
			if err != nil {
				return err
			}
			d, err := a.dirs()
			if err != nil {
				return err
			}
			r, err := rack.Open(d, name)
			if err != nil {
				return err
			}
			defer r.Close()
			ui := newUI(a.err, a.env)
			p := &rack.Progress{Report: ui.event}
			findings, err := check.Lab(cmd.Context(), r.Lab, r, only, p.Begin)
			p.End(err)
			ui.close()
			if err != nil {
				return err
			}
			if output == "json" {
				err = a.printJSON(findings)
			} else {
				printFindings(a.out, findings, a.color())
				fmt.Fprintf(a.out, "%d checks, %d not ok\n", len(findings), len(failed(findings)))
			}
			if err == nil && len(failed(findings)) > 0 {
				return &exitError{exitFaults, nil} // all has been said
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&only, "only", nil, "make only these checks, comma-separated: "+strings.Join(check.IDs(), ", "))
	if err := cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(check.IDs(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag was defined just now
	}
	outputFlag(cmd, &output)
	return cmd
}

// printFindings prints one line a finding, and below what is not OK what was wanted and the fix.
func printFindings(w io.Writer, all []check.Finding, color bool) {
	paint := func(code, s string) string {
		if !color {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	subject, title := 0, 0
	for _, f := range all {
		subject, title = max(subject, len(f.Subject)), max(title, len(f.Title))
	}
	for _, f := range all {
		status := map[check.Status]string{check.OK: paint("32", "ok     "), check.Failed: paint("31", "FAILED "), check.Unknown: paint("33", "unknown")}[f.Status]
		fmt.Fprintf(w, "%s %-*s  %-*s  %s\n", status, subject, f.Subject, title, f.Title, f.Have)
		if f.Status == check.OK {
			continue
		}
		for _, line := range []struct{ what, text string }{{"want", f.Want}, {"read", f.Evidence}, {"fix", f.Fix}} {
			if line.text != "" {
				fmt.Fprintf(w, "        %-4s  %s\n", line.what, line.text)
			}
		}
	}
}
