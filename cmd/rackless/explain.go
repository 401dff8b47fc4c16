package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
)

// An explanation is what explain prints for programs.
type explanation struct {
	Checks []finding.Check `json:"checks"`
	Codes  []finding.Code  `json:"codes"`
}

// newExplainCmd makes rackless explain. The texts are in the binary: machines with a fault may have no network.
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
				return a.print(format, explanation{Checks: finding.Catalogue(), Codes: []finding.Code{}}, g)
			}
			known := func(id string) bool {
				_, ok := finding.Find(id)
				return ok || len(finding.Codes(id)) > 0
			}
			// A line of a log may come without quotes.
			if all := strings.Join(args, " "); slices.ContainsFunc(args, func(id string) bool { return !known(id) }) &&
				known(all) {
				args = []string{all}
			}
			// What is a finding is not looked up as a code: RL numbers have digits, as codes do.
			out := explanation{Checks: []finding.Check{}, Codes: []finding.Code{}}
			var texts []string
			for _, id := range args {
				codes := finding.Codes(id)
				if c, ok := finding.Find(id); ok {
					out.Checks, texts = append(out.Checks, c), append(texts, c.Text())
					continue
				}
				out.Codes = append(out.Codes, codes...)
				texts = append(texts, lists.Map(codes, finding.Code.Text)...)
				if len(codes) == 0 {
					return cli.Usage(fmt.Errorf("%q is no finding and no error code that is known; rackless "+
						"explain lists "+
						"the findings, and codes are such as \"status 12\" or \"vendor err 81\"", id))
				}
			}
			return a.print(format, out, strings.Join(texts, "\n"))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
