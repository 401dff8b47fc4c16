package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/diagnose"
)

func newExplainCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [RL###]...",
		Short: "Say what a finding of inspect means, what follows from it, and how to fix it",
		Long: `Prints the long text of findings: what is read, what it means, what it costs and the way to fix it, with sources. Without an argument it
lists all findings that there are. The same texts are in docs/checks.md.`,
		Example: `  rackless explain
  rackless explain RL003`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, c := range diagnose.Catalogue() {
				ids = append(ids, c.ID+"\t"+c.Title)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				g := newGrid("id", "severity", "finding")
				for _, c := range diagnose.Catalogue() {
					g.add(c.ID, string(c.Severity), c.Title)
				}
				_, err := fmt.Fprint(a.out, g)
				return err
			}
			for i, id := range args {
				text, ok := diagnose.Explain(id)
				if !ok {
					return usage(fmt.Errorf("%q is no finding; rackless explain lists them", id))
				}
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				fmt.Fprint(a.out, text)
			}
			return nil
		},
	}
}
