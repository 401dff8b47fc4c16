package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

// newInitCmd's file needs no editing before up.
func newInitCmd(a *app) *cobra.Command {
	var emulated bool
	cmd := &cobra.Command{
		Use:   "init [LAB.yaml]",
		Short: "Write a commented lab file to begin with",
		Args:  cli.MaxArgs(1, "at most one file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			devices := !emulated && hasDevices(cmd.Context())
			file := append(args, "lab.yaml")[0]
			// Devices need a plan and a prepared host.
			next := "up"
			if devices {
				next = "plan"
			}
			return a.create(file, starter(file, devices), next)
		},
	}
	cmd.Flags().BoolVar(&emulated, "emulated", false, "write a lab of emulated nodes, whatever this machine has")
	return cmd
}

// starter names the lab after the file if that is a valid name.
func starter(file string, devices bool) []byte {
	text := lab.Starter(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), devices)
	if _, err := lab.Parse(file, text); err != nil {
		return lab.Starter("lab", devices)
	}
	return text
}

func (a *app) create(file string, data []byte, next string) error {
	// O_EXCL protects a file created in between.
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usage(fmt.Errorf("%s exists, and is not overwritten: give another name", file))
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		fmt.Fprintf(a.out, "%s is written; next: rackless %s %s\n", file, next, file)
	}
	return err
}

// hasDevices needs a GPU and an RDMA NIC for each of two nodes.
func hasDevices(ctx context.Context) bool {
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		return false
	}
	cards := lists.Count(h.NICs, func(n topology.NIC) bool { return len(n.RDMA) > 0 })
	return len(h.GPUs) >= 2 && cards >= 2
}
