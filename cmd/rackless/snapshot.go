//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/inspect"
)

// newSnapshotCmd replaces identifiers by default, because snapshots are sent to others.
func newSnapshotCmd(a *app) *cobra.Command {
	var out string
	var keep, force bool
	cmd := &cobra.Command{
		Use:   "snapshot --out FILE",
		Short: "Save everything that inspect reads of this machine in one file",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.Usagef(cmd, "the file to write stands behind --out: rackless host snapshot --out %s",
					args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			// The file reveals much about a machine; its owner decides on the place.
			if out == "" {
				return cli.Usage(errors.New("where to? name a file with --out, such as --out host.tar.zst, or - for " +
					"standard output"))
			}
			opts := inspect.SnapshotOptions{KeepIDs: keep, Tool: "rackless " + version}
			if out == "-" {
				if terminal.Of(a.out) != nil {
					return cli.Usage(errors.New("standard output is a terminal: name a file with --out, or redirect"))
				}
				return inspect.WriteSnapshot(cmd.Context(), a.out, inspect.Live(), opts)
			}
			return a.writeFile(out, force, func(w io.Writer) error {
				return inspect.WriteSnapshot(cmd.Context(), w, inspect.Live(), opts)
			})
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`FILE` to write, or - for standard output")
	cli.Renamed(cmd, "output", "o", "out")
	cmd.Flags().BoolVar(&keep, "keep-ids", false, "keep MAC and IP addresses, GUIDs, UUIDs and names")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

func (a *app) writeFile(name string, force bool, write func(io.Writer) error) error {
	if _, err := os.Lstat(name); err == nil && !force {
		return cli.Usage(fmt.Errorf("%s is there already; --force writes over it", name))
	}
	// It may identify the machine.
	if err := atomicfile.Write(name, 0o600, write); err != nil {
		return err
	}
	st, err := os.Stat(name)
	if err == nil {
		fmt.Fprintf(a.err, "wrote %s, %s\n", name, words.Bytes(st.Size()))
	}
	return err
}
