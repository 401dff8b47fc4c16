package main

import (
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userdirs"
)

// offered omits words already on the command line, and ignores errors: the user can still type the word.
func (a *app) offered(args []string, read func(userdirs.Dirs) ([]string, error),
	then cobra.ShellCompDirective) ([]string, cobra.ShellCompDirective) {
	d, err := a.dirs()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	// read may return words together with an error.
	all, err := read(d)
	if err != nil && len(all) == 0 {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(args, s) }), then
}

func (a *app) completeLabs(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.offered(nil, userdirs.Dirs.Names, cobra.ShellCompDirectiveDefault)
}

func completeLabFiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
}

func describeBuiltins(a *app, root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  rackless help up"
			c.Run, c.RunE = nil, func(_ *cobra.Command, args []string) error {
				sub, rest, err := root.Find(args)
				if err == nil && sub.HasSubCommands() {
					err = sub.ValidateArgs(rest)
				}
				if err != nil {
					return err
				}
				return sub.Help()
			}
		case "completion":
			c.Short = "Print a script that completes commands, labs and nodes in a shell"
			c.Example = "  source <(rackless completion bash)"
			for _, shell := range c.Commands() {
				shell.Example = "  rackless completion " + shell.Name()
			}
			c.AddCommand(newCompletionInstallCmd(a))
		}
	}
}

func newCompletionInstallCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:       "install [bash|zsh|fish]",
		Short:     "Write the completion script where the shell of this user finds it",
		Example:   "  rackless completion install",
		Args:      cli.MaxArgs(1, "at most one shell"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		Long: `Writes the script for a shell, or for the one that SHELL names, to the directory in which that
shell looks for completions of this user. It changes no start-up file, and says what is left to do.
To undo it, remove the file that it names.`,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shell := filepath.Base(a.env("SHELL"))
		if len(args) > 0 {
			shell = args[0]
		}
		said, err := cli.InstallCompletion(cmd, shell, func(xdg, home string) (string, error) {
			return userdirs.UserDir(a.env, a.uid, xdg, home)
		})
		if err != nil {
			return err
		}
		return a.show(said)
	}
	return cmd
}
