//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
)

// completeNodes offers the nodes of all running labs.
func (a *app) completeNodes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault // of the command
	}
	return a.offered(nil, nodeNames, cobra.ShellCompDirectiveNoFileComp)
}

// nodeNames returns the nodes of all running labs: by name where only one lab has it, and as LAB/NODE.
func nodeNames(d rack.Dirs) (out []string, err error) {
	racks, err := rack.OpenAll(d)
	labs := make(map[string]int) // by node: how many have one of this name
	// Twice: a name is only offered alone once it is known that no other lab has it.
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			labs[n.Name]++
		}
	}
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			if labs[n.Name] == 1 {
				out = append(out, n.Name)
			}
			out = append(out, r.Lab.Name+"/"+n.Name)
		}
	}
	return out, err
}
