package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
)

// A completer is where a shell looks for the completions of a user.
type completer struct {
	shell     string
	xdg, home string // the variable of the directory, and what it is below home without the variable
	file      string
	write     func(root *cobra.Command, b *bytes.Buffer) error
	then      string // what is left to do; DIR is the directory
}

// completers are the shells that InstallCompletion knows.
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

// InstallCompletion writes the script for a shell where the shell looks for completions of a user, below the directory
// that dir returns for an XDG variable and a path below home. It returns what to tell the user.
func InstallCompletion(cmd *cobra.Command, shell string, dir func(xdg, home string) (string, error)) (string, error) {
	i := slices.IndexFunc(completers, func(c completer) bool { return c.shell == shell })
	if i < 0 {
		return "", Usagef(cmd, "shell %q: want bash, zsh or fish; rackless completion powershell prints that of "+
			"PowerShell", shell)
	}
	c := completers[i]
	base, err := dir(c.xdg, c.home)
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, c.file)
	var script bytes.Buffer
	if err := c.write(cmd.Root(), &script); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	if err := atomicfile.WriteFile(path, script.Bytes(), 0o644); err != nil {
		return "", err
	}
	return fmt.Sprintf("wrote %s\n%s\n", path, strings.ReplaceAll(c.then, "DIR", filepath.Dir(path))), nil
}
