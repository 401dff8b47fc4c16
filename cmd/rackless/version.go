package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
)

// versionOutput is what version prints as JSON, see docs/json.md.
type versionOutput struct {
	Version string `json:"version"` // of rackless: a tag, what git describe says, or "devel"
	Go      string `json:"go"`      // that built it
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// newVersionCmd makes rackless version, for bug reports.
func newVersionCmd(a *app) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of rackless",
		Args:  cli.ExactArgs(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			v := versionOutput{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			return a.print(format, v, fmt.Sprintf("rackless %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch))
		},
	}
	outputFlag(cmd, &format)
	return cmd
}
