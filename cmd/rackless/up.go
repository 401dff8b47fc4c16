package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

func newUpCmd(a *app) *cobra.Command {
	var o rack.Options
	cmd := &cobra.Command{
		Use:   "up LAB.yaml",
		Short: "Bring a lab up, or lead a running one to what its file says now",
		Long: `Brings the lab up: image, template, switch, nodes, RoCE devices. Done twice, the second changes nothing.
If the file has changed, it says what differs and applies it: what can be changed while a node runs is, and
nodes that must be made anew are, while the others run on.

Ctrl-C takes back what was begun.`,
		Args: exactArgs(1, "LAB.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := loadLab(args[0])
			if err != nil {
				return err
			}
			d, err := a.dirs()
			if err != nil {
				return err
			}
			return a.up(cmd.Context(), d, l, o)
		},
	}
	cmd.Flags().StringVar(&o.Accel, "accel", "auto", "what executes the nodes' CPUs: auto, kvm or tcg")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "", "kernel image to use instead of Debian's, e.g. /boot/vmlinuz-$(uname -r)")
	cmd.Flags().BoolVar(&o.Cold, "cold", false, "boot every node instead of cloning a template")
	cmd.Flags().BoolVar(&o.Overcommit, "overcommit", false, "start even if the nodes' memory adds up to more than is available")
	return cmd
}

func (a *app) up(ctx context.Context, d rack.Dirs, l *lab.Lab, o rack.Options) error {
	ui := newUI(a.err, a.env)
	o.Progress = ui.event
	r, err := rack.Up(ctx, d, l, o)
	ui.close()
	if err != nil {
		return err
	}
	defer r.Close()
	fmt.Fprintf(a.out, "lab %s is up: %d nodes\n", l.Name, len(r.State.Nodes))
	return nil
}

// loadLab reads and checks a lab file.
func loadLab(path string) (*lab.Lab, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, usage(err)
	}
	l, err := lab.Parse(path, b)
	if err != nil {
		return nil, usage(err)
	}
	return l, nil
}

// exactArgs is cobra.ExactArgs with a message that names what is wanted.
func exactArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(fmt.Errorf("%s: want %s, have %d arguments\nsee: %s --help", cmd.CommandPath(), what, len(args), cmd.CommandPath()))
		}
		return nil
	}
}
