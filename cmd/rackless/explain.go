package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/show"
)

// newExplainCmd makes rackless explain. The texts are in the binary: machines with a fault may have no network.
func newExplainCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [RL###|NAME|ERROR]...",
		Short: "Explain a finding of inspect, a check of verify or an error code of RDMA, PCIe or GPUs",
		Long: `Prints the full text of findings and checks: what is read, what it means, what it costs and how to
fix it, with sources. Without an argument it lists all of them. Checks of verify have a name as well
as a number. The same texts are in docs/checks.md.

It also explains error codes of RDMA, as perftest, NCCL, UCX or the kernel's mlx5 drivers print
them, of calls of libibverbs, PCIe errors (AER) and the Xid of NVIDIA's driver. A whole line works
too; all codes in it are explained.`,
		Example: `  rackless explain
  rackless explain RL003
  rackless explain link-mtu
  rackless explain "status 12"
  rackless explain Xid 79
  rackless explain "Got completion with error 4, opcode 0, len 0, vendor err 81"`,
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
			for i, id := range args {
				var texts []string
				if c, ok := finding.Find(id); ok {
					texts = append(texts, c.Text())
				} else {
					for _, c := range finding.Codes(id) {
						texts = append(texts, c.Text())
					}
				}
				if len(texts) == 0 {
					return cli.Usage(fmt.Errorf("%q is no finding and no error code that is known; rackless "+
						"explain lists "+
						"the findings, and codes are such as \"status 12\" or \"vendor err 81\"", id))
				}
				if i > 0 {
					fmt.Fprintln(a.out)
				}
				fmt.Fprint(a.out, strings.Join(texts, "\n"))
			}
			return nil
		},
	}
}
