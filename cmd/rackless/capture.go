//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rdma/fabric"
)

type captureFlags struct {
	node     string
	port     string // "" for all nodes
	file     string // "-" is standard output
	count    uint64
	duration time.Duration
	snaplen  int
	force    bool
}

// newCaptureCmd captures in the switch: nodes need no tcpdump and no CPU time.
func newCaptureCmd(a *app) *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture [NAME|LAB.yaml]",
		Short: "Capture the packets on the switch of a lab, as pcapng for Wireshark",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return cli.Usagef(cmd, "want at most one lab, have %s", words.Count(len(args), "argument"))
			case f.duration < 0:
				return cli.Usagef(cmd, "--duration %v: want more than 0", f.duration)
			case f.snaplen < 0:
				return cli.Usagef(cmd, "--snaplen %d: want 0 (whole frames) or more", f.snaplen)
			case f.node != "" && f.snaplen > 0 && f.snaplen < fabric.MACPair:
				return cli.Usagef(cmd, "--snaplen %d: --node goes by the addresses, which are the first %d bytes",
					f.snaplen, fabric.MACPair)
			}
			return nil
		},
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, c, err := a.openSwitch(args)
			if err != nil {
				return err
			}
			return a.capture(cmd.Context(), r, c, f)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.file, "out", "", "`FILE` to write, - for standard output (default NAME.pcapng)")
	cli.Renamed(cmd, "output", "o", "out")
	fs.StringVar(&f.node, "node", "", "only frames from and to this node")
	fs.StringVar(&f.port, "port", "", "only frames that enter the switch at this `PORT`; both directions of a link "+
		"between switches")
	fs.Uint64VarP(&f.count, "count", "c", 0, "end after this many frames (0: no end)")
	fs.DurationVarP(&f.duration, "duration", "d", 0, "end after this time, e.g. 10s (0: no end)")
	fs.IntVarP(&f.snaplen, "snaplen", "s", 0, "keep only this many bytes of each frame (0: all)")
	fs.BoolVar(&f.force, "force", false, "overwrite an existing file")
	cli.Offer(cmd, "node", func(_ *cobra.Command, args []string, _ string) ([]string,
		cobra.ShellCompDirective) {
		r, err := a.openOne(args)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return r.Lab.NodeNames(), cobra.ShellCompDirectiveNoFileComp
	})
	cli.Offer(cmd, "out", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"pcapng"}, cobra.ShellCompDirectiveFilterFileExt
	})
	return cmd
}

func (a *app) capture(ctx context.Context, r *rack.Rack, c *fabric.Client, f captureFlags) error {
	var keep func([]byte) bool
	// By addresses: frames to the node enter the switch at other ports.
	if f.node != "" {
		macs, err := rack.MACsOf(r.Lab, f.node)
		if err != nil {
			return err
		}
		keep = fabric.FramesOf(macs)
	}
	w, where, closeFile, err := a.captureFile(r.Lab.Name, f)
	if err != nil {
		return err
	}

	// Ctrl-C, the limits, and a full disk all end through ctx.
	ctx, end := context.WithCancel(ctx)
	defer end()
	// Not in the switch, which keeps forwarding frames meanwhile.
	filter := &fabric.PacketFilter{W: w, Keep: keep, Limit: f.count, Full: end}
	var began time.Time
	state := func() string {
		return fmt.Sprintf("%d frames, %s, %s", filter.Packets.Load(), words.Bytes(filter.Bytes.Load()),
			words.Seconds(time.Since(began)))
	}
	var meter *terminal.Meter
	opts := fabric.CaptureOptions{Port: f.port, Snaplen: f.snaplen}
	opts.Started = func() {
		began = time.Now()
		fmt.Fprintf(a.err, "capturing to %s; Ctrl-C ends\n", where)
		meter = terminal.NewMeter(a.err, a.env, state)
		if f.duration > 0 {
			time.AfterFunc(f.duration, end) // harmless after the end
		}
	}
	err = c.Capture(ctx, opts, filter)
	// A failed capture must neither leave an empty file nor replace an earlier one.
	err = errors.Join(err, closeFile(err != nil && (f.force || filter.Packets.Load() == 0)))
	if meter != nil {
		meter.Close()
		fmt.Fprintf(a.err, "captured %s\n", state())
	}
	return err
}

// captureFile's closeFile deletes the output if remove is true.
func (a *app) captureFile(labName string, f captureFlags) (w io.Writer, where string, closeFile func(remove bool) error,
	err error) {
	if f.file == "-" {
		// A terminal would interpret the bytes.
		if terminal.Of(a.out) != nil {
			return nil, "", nil, cli.Usage(errors.New("capture: pcapng is binary: send it to a file (--out FILE) or " +
				"a pipe, not to the terminal"))
		}
		return a.out, "standard output", func(bool) error { return nil }, nil
	}
	name := cmp.Or(f.file, labName+".pcapng")
	w, closeFile, err = fabric.CaptureFile(name, f.force)
	return w, name, closeFile, err
}
