package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
)

func newUpCmd(a *app) *cobra.Command {
	o := rack.Options{Accel: "auto"}
	cmd := &cobra.Command{
		Use:   "up LAB.yaml",
		Short: "Bring a lab up, or lead a running one to what its file says now",
		Long: `Brings the lab up: image, template, switch, nodes, RoCE devices. Done twice, the second changes nothing.
If the file has changed, it says what differs and applies it: what can be changed while a node runs is, and
nodes that must be made anew are, while the others run on; see rackless lab diff for what that would be.
Nodes that have died, and a switch that has, are started again.

The first time builds the node image from Debian packages and boots a template, which takes up to a minute; after that
a lab is up in seconds. Ctrl-C takes back what was begun.`,
		Example: `  rackless up examples/pair.yaml
  rackless up --accel tcg --cold lab.yaml`,
		Args:              exactArgs(1, "LAB.yaml"),
		ValidArgsFunction: completeLabFiles,
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
	enumFlag(cmd, &o.Accel, "accel", "", "what executes the nodes' CPUs", "auto", "kvm", "tcg")
	cmd.Flags().StringVar(&o.Kernel, "kernel", "", "kernel image to use instead of Debian's, e.g. /boot/vmlinuz-$(uname -r)")
	cmd.Flags().BoolVar(&o.Cold, "cold", false, "boot every node instead of cloning a template")
	cmd.Flags().BoolVar(&o.Overcommit, "overcommit", false, "start even if the nodes' memory adds up to more than is available")
	return cmd
}

func (a *app) up(ctx context.Context, d rack.Dirs, l *lab.Lab, o rack.Options) error {
	ui := newUI(a.err, a.env)
	defer ui.close()
	worked := false
	o.Progress = func(e rack.Event) {
		worked = worked || e.Step != ""
		ui.event(e)
	}
	began := time.Now()
	r, err := rack.Up(ctx, d, l, o)
	ui.close()
	if err != nil {
		return err
	}
	defer r.Close()
	how := "as it was"
	if worked {
		how = "after " + seconds(time.Since(began))
	}
	fmt.Fprintf(a.out, "lab %s is up: %s on %s, %s\n", l.Name, count(len(r.State.Nodes), "node"), accelText(r.State.Accel), how)
	return nil
}

// accelText names an accelerator, and says of one that is an emulation that it is.
func accelText(accel string) string {
	if accel == "kvm" {
		return accel
	}
	return accel + " (emulated)"
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
