package main

import (
	"embed"
	"strings"

	"github.com/spf13/cobra"
)

// helpFiles say what each command does and, in a block of code, how it is called: study-run.md is of
// "rackless study run".
//
//go:embed help
var helpFiles embed.FS

// setHelp gives a command, and those below it, the texts of their files. cobra's own commands have none.
func setHelp(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		setHelp(c)
	}
	text, err := helpFiles.ReadFile("help/" + helpName(cmd))
	if err != nil {
		return
	}
	long, examples, _ := strings.Cut(strings.TrimSuffix(string(text), "\n```\n"), "\n```\n")
	if cmd.Long == "" { // nic fault lists what the program knows
		cmd.Long = strings.TrimSpace(long)
	}
	if examples != "" {
		cmd.Example = "  " + strings.ReplaceAll(examples, "\n", "\n  ")
	}
}

// helpName is the name of a command's file.
func helpName(cmd *cobra.Command) string {
	return strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "rackless "), " ", "-") + ".md"
}
