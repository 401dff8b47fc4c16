//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/tables"
)

// newLinkShowCmd makes rackless link show.
func newLinkShowCmd(a *app) *cobra.Command {
	var format string
	var watch, paths bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:               "show [NAME|LAB.yaml]",
		Short:             "Show the traffic through the switch of a lab, port by port",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			// The switch answers within its forwarding loop.
			const least = 100 * time.Millisecond
			if interval < least {
				return cli.Usagef(cmd, "--interval %v: want %v or more", interval, least)
			}
			r, c, err := a.openSwitch(args)
			if err != nil {
				return err
			}
			if paths {
				return a.showPaths(cmd.Context(), format, r, c)
			}
			// Rates are differences of snapshots.
			read := func(before *tables.FabricSnapshot) (*tables.FabricSnapshot, error) {
				have, err := c.Counters(cmd.Context())
				if err != nil {
					return nil, err
				}
				return tables.DescribeFabric(r.Lab.Name, have, before), nil
			}
			if watch {
				return a.watchFabric(cmd.Context(), format, interval, read)
			}
			out, err := read(nil)
			if err != nil {
				return err
			}
			return a.print(format, out, out.Text())
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print again and again, with rates")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two outputs, with --watch")
	cmd.Flags().BoolVar(&paths, "paths", false, "print which flow takes which spine")
	cmd.MarkFlagsMutuallyExclusive("paths", "watch")
	return cmd
}

func (a *app) showPaths(ctx context.Context, format string, r *rack.Rack, c *fabric.Client) error {
	if r.Lab.Fabric.Topology == "" {
		return fmt.Errorf("lab %s has one switch, and all paths are the same: for several, write fabric: {topology: "+
			"leaf-spine, leaves: 2, spines: 2}", r.Lab.Name)
	}
	flows, err := c.Flows(ctx)
	if err != nil {
		return err
	}
	out := &tables.Paths{Lab: r.Lab.Name, Flows: flows}
	return a.print(format, out, out.Text())
}

// openOne opens the named lab, or the only running one. Of several it chooses the one with the only lab file here.
func (a *app) openOne(args []string) (*rack.Rack, error) {
	racks, err := a.openLabs(args)
	if err != nil {
		return nil, err
	}
	switch len(racks) {
	case 1:
		return racks[0], nil
	case 0:
		return nil, fmt.Errorf("no lab is running; bring one up with: rackless up LAB.yaml")
	}
	var names []string
	files, _ := lab.Files(os.DirFS(".")) // without it the user is asked
	for _, r := range racks {
		names = append(names, r.Lab.Name)
		if len(files) == 1 {
			if l, err := loadLab(files[0]); err == nil && l.Name == r.Lab.Name {
				return r, nil
			}
		}
	}
	return nil, cli.Usage(fmt.Errorf("several labs run: say which of %s", strings.Join(names, ", ")))
}

func (a *app) openSwitch(args []string) (*rack.Rack, *fabric.Client, error) {
	r, err := a.openOne(args)
	if err != nil {
		return nil, nil, err
	}
	c, err := r.Switch()
	return r, c, err
}

func (a *app) watchFabric(ctx context.Context, format string, interval time.Duration,
	read func(*tables.FabricSnapshot) (*tables.FabricSnapshot, error)) error {
	print := func(out *tables.FabricSnapshot) error {
		_, err := fmt.Fprintf(a.out, "%s lab %s\n%s\n", out.At.Format(time.TimeOnly), out.Lab, out.Text())
		return err
	}
	end := func(*tables.FabricSnapshot) {}
	switch t := terminal.Of(a.out); {
	case show.ForPrograms(format):
		print = func(out *tables.FabricSnapshot) error { return show.EncodeNext(a.out, format, out) }
	case t != nil && a.env("TERM") != "dumb":
		// The alternate screen preserves the user's.
		fmt.Fprint(t, "\x1b[?1049h\x1b[?25l")
		print = func(out *tables.FabricSnapshot) error {
			_, err := fmt.Fprint(t, "\x1b[H"+screen(t, out)+"\x1b[J")
			return err
		}
		end = func(last *tables.FabricSnapshot) {
			fmt.Fprint(t, "\x1b[?25h\x1b[?1049l")
			if last != nil {
				fmt.Fprint(t, last.Text())
			}
		}
	}
	var last *tables.FabricSnapshot
	defer func() { end(last) }()
	// Independent of the time for reading and printing.
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		out, err := read(last)
		if ctx.Err() != nil {
			return nil // the normal end of watching
		}
		if err != nil {
			return err
		}
		last = out
		if err := print(out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen cuts long lines, and counts ports that do not fit.
func screen(t *os.File, out *tables.FabricSnapshot) string {
	// The window may have been resized.
	width, height := terminal.Size(t)
	lines := []string{fmt.Sprintf("lab %s, %s, %s known, Ctrl-C ends", out.Lab, out.At.Format(time.TimeOnly),
		words.Count(out.Addresses, "address")), ""}
	lines = append(lines, strings.Split(strings.TrimSuffix(out.Text(), "\n"), "\n")...)
	if over := len(lines) - (height - 1); over > 0 {
		lines = append(lines[:len(lines)-over-1], fmt.Sprintf("... and %d more", over+1))
	}
	for i, l := range lines {
		lines[i] = terminal.Cut(l, width) + "\x1b[K"
	}
	return strings.Join(lines, "\n")
}

// newLinkSetCmd has a flag for each setting of package fabric.
func newLinkSetCmd(a *app) *cobra.Command {
	var format string
	var ports []string
	var reset, down, up bool
	var edits []fabric.LinkEdit
	cmd := &cobra.Command{
		Use:               "set [NAME|LAB.yaml]",
		Short:             "Make links to nodes slow, lossy or congested while they are in use",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(edits) == 0 && !reset && !down && !up {
				return cli.Usagef(cmd, "want what to set, or --clear; rackless link show says what is set")
			}
			if down || up {
				edits = append(edits, fabric.LinkEdit{Key: fabric.DownKey, Text: map[bool]string{true: "yes",
					false: "no"}[down]})
			}
			r, c, err := a.openSwitch(args)
			if err != nil {
				return err
			}
			// Settings without a flag stay, and only the switch knows them.
			before, err := c.Counters(cmd.Context())
			if err != nil {
				return err
			}
			changes, err := fabric.ChangeLinks(before.Ports, ports, reset, edits)
			if err != nil {
				return cli.Usagef(cmd, "lab %s: %v", r.Lab.Name, err)
			}
			// As the switch reports them.
			after, err := r.SetLinks(cmd.Context(), c, changes)
			if err != nil {
				return err
			}
			out := tables.DescribeLinks(r.Lab.Name, after)
			return a.print(format, out, out.Text())
		},
	}
	for _, key := range fabric.LinkKeys() {
		f := fabric.LinkFlag{Key: key, Edits: &edits}
		cmd.Flags().Var(f, key, f.Help())
	}
	cmd.Flags().BoolVar(&down, "down", false, "shut the port: the node's NIC loses its carrier, and no frame passes")
	cmd.Flags().BoolVar(&up, "up", false, "open a port that was shut")
	cmd.MarkFlagsMutuallyExclusive("down", "up")
	cmd.Flags().StringSliceVar(&ports, "port", nil, "of this node only; can be repeated (NODE.1 is its second NIC)")
	cmd.Flags().BoolVar(&reset, "clear", false, "remove all impairments first")
	outputFlag(cmd, &format)
	return cmd
}
