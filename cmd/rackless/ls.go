package main

import "github.com/spf13/cobra"

func newLsCmd(a *app) *cobra.Command {
	return &cobra.Command{Use: "ls", RunE: func(*cobra.Command, []string) error { return nil }}
}
