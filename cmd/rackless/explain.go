package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/report/show"
)

func newExplainCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [RL###|NAME]...",
		Short: "Explain a finding of inspect or a check of verify: meaning, consequence, fix",
		Long: `Prints the long text of findings and checks: what is read, what it means, what it costs and the way
to fix it, with sources. Without an argument it lists all that there are. Checks of verify have a
name beside their number. The same texts are in docs/checks.md.`,
		Example: `  rackless explain
  rackless explain RL003
  rackless explain link-mtu`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, c := range finding.Catalogue() {
				ids = append(ids, c.ID+"\t"+c.Title)
				if c.Name != "" {
					ids = append(ids, c.Name+"\t"+c.Title)
				}
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				g := show.NewGrid("id", "severity", "name", "finding or check")
				for _, c := range finding.Catalogue() {
					g.Add(c.ID, string(c.Severities[0]), c.Name, c.Title)
				}
				_, err := fmt.Fprint(a.out, g)
				return err
			}
			for i, id := range args {
				c, ok := finding.Find(id)
				if !ok {
					return usage(fmt.Errorf("%q is no finding; rackless explain lists them", id))
				}
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				fmt.Fprint(a.out, c.Text())
			}
			return nil
		},
	}
}
