package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/rack"
)

// completeLabs offers the running labs, and files.
func (a *app) completeLabs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	d, err := a.dirs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := d.Names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, cobra.ShellCompDirectiveDefault
}

// completeNodes offers the nodes of all running labs, by name where that is enough and by LAB/NODE.
func (a *app) completeNodes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	d, err := a.dirs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names, err := d.Names()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	seen := make(map[string]int)
	for _, name := range names {
		r, err := rack.Open(d, name)
		if err != nil {
			continue // being made or removed
		}
		for _, n := range r.State.Nodes {
			seen[n.Name]++
			if seen[n.Name] == 1 {
				out = append(out, n.Name)
			}
			out = append(out, name+"/"+n.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
