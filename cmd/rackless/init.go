package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
)

// newInitCmd makes rackless init. Its file can be brought up as it is: a first lab should need no editing.
func newInitCmd(a *app) *cobra.Command {
	var emulated bool
	cmd := &cobra.Command{
		Use:   "init [LAB.yaml]",
		Short: "Write a commented lab file to begin with",
		Args:  cli.MaxArgs(1, "at most one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := append(args, "lab.yaml")[0]
			devices := !emulated && hasDevices(cmd.Context())
			// O_EXCL and not a look beforehand, so that a file that appears meanwhile is kept too.
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return cli.Usage(fmt.Errorf("%s exists, and is not overwritten: give another name", file))
			}
			if err != nil {
				return err
			}
			_, err = f.Write(lab.Starter("lab", devices))
			if err = errors.Join(err, f.Close()); err != nil {
				return err
			}
			// A lab with devices has to be planned and its host prepared before up takes it.
			next := words.Either(devices, "rackless plan ", "rackless up ")
			fmt.Fprintf(a.out, "%s is written; next: %s%s\n", file, next, file)
			return nil
		},
	}
	cmd.Flags().BoolVar(&emulated, "emulated", false, "write a lab of emulated nodes, whatever this machine has")
	return cmd
}

// hasDevices reports whether this machine has a GPU and an RDMA NIC for each of two nodes. A
// machine that cannot be read has none.
func hasDevices(ctx context.Context) bool {
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		return false
	}
	cards := 0
	for _, n := range h.NICs {
		if len(n.RDMA) > 0 {
			cards++
		}
	}
	return len(h.GPUs) >= 2 && cards >= 2
}
