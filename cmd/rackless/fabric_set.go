//go:build linux

package main

import (
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/report/fabricview"
)

// linkFlags are the settings of a link as flags, by the names that fabric knows.
var linkFlags = map[string]struct{ kind, help string }{
	"rate":    {"RATE", "bits a second on the wire, such as 1Gbit"},
	"burst":   {"SIZE", "what may leave at once after a pause, with --rate"},
	"delay":   {"TIME", "added to each frame, such as 50us"},
	"jitter":  {"TIME", "varies the delay by up to this, both ways; keeps the order"},
	"loss":    {"PERCENT", "of the frames are lost, such as 0.1%"},
	"reorder": {"PERCENT", "of the frames skip the delay, and overtake"},
	"ecn": {"MIN:MAX:PERCENT", "queue from which packets are marked, from which all are, and how many just " +
		"below that"},
	"buffer": {"SIZE", "what may wait for the link, such as 256KiB"},
	"trust":  {"dscp|pcp", "what gives a frame its priority; each has its own queue"},
	"pfc": {"HIGH:LOW[:PRIO,...]", "queue above which senders are held, and down to which, such as 64KiB:32KiB, or " +
		"64KiB:32KiB:3 with --trust"},
	"seed": {"N", "of the random sequences"},
}

// A linkFlag is a flag for one setting. A wrong value is refused when the command line is read.
type linkFlag struct {
	key   string
	edits *[]fabric.LinkEdit
}

// String returns no default: a setting that is not named stays as it is.
func (f linkFlag) String() string { return "" }

// Type returns the placeholder that the help shows for the value.
func (f linkFlag) Type() string { return linkFlags[f.key].kind }

// Edits are kept in the order of the command line, since a later one may take an earlier one away.
func (f linkFlag) Set(text string) error {
	*f.edits = append(*f.edits, fabric.LinkEdit{Key: f.key, Text: text})
	return new(fabric.Link).Set(f.key, text)
}

// newFabricSetCmd makes rackless fabric set, with one flag for each setting that package fabric knows.
func newFabricSetCmd(a *app) *cobra.Command {
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
				return cli.Usagef(cmd, "want what to set, or --clear; rackless fabric shows what is set")
			}
			if down || up {
				edits = append(edits, fabric.LinkEdit{Key: fabric.DownKey, Text: map[bool]string{true: "yes",
					false: "no"}[down]})
			}
			r, c, err := a.openSwitch(args)
			if err != nil {
				return err
			}
			// The links as they are now: what is not named stays, and only the switch knows it.
			before, err := c.Counters(cmd.Context())
			if err != nil {
				return err
			}
			changes, err := fabric.ChangeLinks(before.Ports, ports, reset, edits)
			if err != nil {
				return cli.Usagef(cmd, "lab %s: %v", r.Lab.Name, err)
			}
			// What is printed is what the switch has, and not what it was told.
			after, err := r.SetLinks(cmd.Context(), c, changes)
			if err != nil {
				return err
			}
			out := fabricview.DescribeLinks(r.Lab.Name, after)
			return a.print(format, out, out.Text())
		},
	}
	for _, key := range fabric.LinkKeys() {
		cmd.Flags().Var(linkFlag{key, &edits}, key, linkFlags[key].help)
	}
	cmd.Flags().BoolVar(&down, "down", false, "shut the port: the node's NIC loses its carrier, and no frame passes")
	cmd.Flags().BoolVar(&up, "up", false, "open a port that was shut")
	cmd.MarkFlagsMutuallyExclusive("down", "up")
	cmd.Flags().StringSliceVar(&ports, "port", nil, "of this node only; can be repeated (NODE.1 is its second NIC)")
	cmd.Flags().BoolVar(&reset, "clear", false, "remove all impairments first")
	outputFlag(cmd, &format)
	return cmd
}
