package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userdirs"
)

// A completer is where a shell looks for the completions of a user.
type completer struct {
	shell     string
	xdg, home string // the variable of the directory, and what it is below home without the variable
	file      string
	write     func(root *cobra.Command, b *bytes.Buffer) error
	then      string // what is left to do; DIR is the directory
}

// completers are the shells that completion install knows.
var completers = []completer{
	{"bash", "XDG_DATA_HOME", ".local/share", "bash-completion/completions/rackless",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenBashCompletionV2(b, true) },
		"New shells use it, where the package bash-completion is installed."},
	{"zsh", "XDG_DATA_HOME", ".local/share", "zsh/site-functions/_rackless",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenZshCompletion(b) },
		"If your ~/.zshrc has no such line yet, add it before compinit: fpath+=(DIR)"},
	{"fish", "XDG_CONFIG_HOME", ".config", "fish/completions/rackless.fish",
		func(root *cobra.Command, b *bytes.Buffer) error { return root.GenFishCompletion(b, true) },
		"New shells use it."},
}

// newCompletionInstallCmd makes rackless completion install.
func newCompletionInstallCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "install [bash|zsh|fish]",
		Short:   "Write the completion script where the shell of this user finds it",
		Example: "  rackless completion install",
		Args:    cli.MaxArgs(1, "at most one shell"),
		Long: `Writes the script for a shell, or for the one that SHELL names, to the directory in which that
shell looks for completions of this user. It changes no start-up file, and says what is left to do.
To undo it, remove the file that it names.`,
	}
	for _, c := range completers {
		cmd.ValidArgs = append(cmd.ValidArgs, c.shell)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		shell := filepath.Base(a.env("SHELL"))
		if len(args) > 0 {
			shell = args[0]
		}
		for _, c := range completers {
			if c.shell == shell {
				return a.installCompletion(cmd.Root(), c)
			}
		}
		return cli.Usagef(cmd, "shell %q: want bash, zsh or fish; rackless completion powershell prints that of "+
			"PowerShell", shell)
	}
	return cmd
}

func (a *app) installCompletion(root *cobra.Command, c completer) error {
	base, err := userdirs.UserDir(a.env, a.uid, c.xdg, c.home)
	if err != nil {
		return err
	}
	path := filepath.Join(base, c.file)
	var script bytes.Buffer
	if err := c.write(root, &script); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(path, script.Bytes(), 0o644); err != nil {
		return err
	}
	return a.show(fmt.Sprintf("wrote %s\n%s\n", path, strings.ReplaceAll(c.then, "DIR", filepath.Dir(path))))
}
