package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
)

// newExplainCmd needs no network, which faulty machines may lack.
func newExplainCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "explain [RL###|NAME|ERROR]...",
		Short: "Explain a finding of inspect, a check of verify or an error code of RDMA, PCIe or GPUs",
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
				return a.print(format, finding.Explanation{Checks: finding.Catalogue(), Codes: []finding.Code{}}, g)
			}
			out, text, err := finding.Explain(args)
			if err != nil {
				return cli.Usage(err)
			}
			return a.print(format, out, text)
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
