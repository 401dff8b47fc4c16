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

// completeLabFiles offers files that can be lab files.
func completeLabFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

// completeNodes offers the nodes of all running labs: by name where only one lab has it, and by LAB/NODE.
func (a *app) completeNodes(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	d, err := a.dirs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	racks, err := rack.OpenAll(d) // those that cannot be read have no nodes to offer
	if err != nil && len(racks) == 0 {
		return nil, cobra.ShellCompDirectiveError
	}
	labs := make(map[string]int) // by node: how many have one of this name
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			labs[n.Name]++
		}
	}
	var out []string
	for _, r := range racks {
		for _, n := range r.Lab.Nodes {
			if labs[n.Name] == 1 {
				out = append(out, n.Name)
			}
			out = append(out, r.Lab.Name+"/"+n.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// describeBuiltins gives the commands that cobra makes what all of ours have.
func describeBuiltins(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  rackless help up"
		case "completion":
			c.Short = "Print a script that completes commands, labs and nodes in a shell"
			c.Example = "  source <(rackless completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = "  rackless completion " + shell.Name()
			}
		}
	}
}
