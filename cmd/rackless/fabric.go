package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/fabric"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rack"
)

// fabricOutput is what fabric prints as JSON, see docs/json.md.
type fabricOutput struct {
	Lab       string       `json:"lab"`
	At        time.Time    `json:"at"`
	Started   time.Time    `json:"started"`   // of the switch; counts begin there
	Addresses int          `json:"addresses"` // MAC addresses that the switch knows
	Captures  int          `json:"captures"`  // captures that run
	Ports     []fabricPort `json:"ports"`
}

// A fabricPort is one port. Rx is from the node into the switch, tx from the switch to the node.
type fabricPort struct {
	Name       string `json:"name"`
	Connected  bool   `json:"connected"`
	RxFrames   uint64 `json:"rx_frames"`
	RxBytes    uint64 `json:"rx_bytes"`
	TxFrames   uint64 `json:"tx_frames"`
	TxBytes    uint64 `json:"tx_bytes"`
	RxDrops    uint64 `json:"rx_drops"` // frames from the node that were for nobody
	TxDrops    uint64 `json:"tx_drops"` // frames for the node that did not reach it
	QueueBytes int    `json:"queue_bytes"`
	QueuePeak  int    `json:"queue_peak_bytes"`
	Reconnects uint64 `json:"reconnects"`

	// The link to the node, left out if it has no impairments, and what it did.
	Link       fabric.Link `json:"link,omitzero"`
	InFlight   int         `json:"in_flight_bytes"`
	BufferFull uint64      `json:"buffer_full"` // these two are in TxDrops
	Lost       uint64      `json:"lost"`
	Reordered  uint64      `json:"reordered"`
	ECNMarked  uint64      `json:"ecn_marked"`
	Pauses     uint64      `json:"pauses"` // the node was not read from, as a receiver with PFC did not keep up
	Paused     float64     `json:"paused_seconds"`

	// Over the time since the snapshot before; absent in the first.
	RxRate *float64 `json:"rx_bits_per_second,omitempty"`
	TxRate *float64 `json:"tx_bits_per_second,omitempty"`
}

func newFabricCmd(a *app) *cobra.Command {
	var format string
	var watch bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:   "fabric [NAME|LAB.yaml]",
		Short: "Show what passes through the switch of a lab, port by port",
		Long: `Prints the counters of the lab's switch: frames and bytes from each node (RX) and to it (TX), without preamble and checksum, and
frames dropped. The name can be left out while one lab runs. A frame for several nodes counts once at RX and once for each at TX.

Where links are impaired (see rackless fabric set --help), a second table shows how, and what that did.

With --watch they are shown again and again, with the rates in between, until Ctrl-C; as JSON, one line each time.`,
		Example: `  rackless fabric pair
  rackless fabric pair --watch`,
		Args:              maxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			const least = 100 * time.Millisecond
			if interval < least {
				return usagef(cmd, "--interval %v: want %v or more", interval, least)
			}
			r, err := a.openOne(args)
			if err != nil {
				return err
			}
			c, err := r.Switch()
			if err != nil {
				return err
			}
			read := func(before *fabricOutput) (*fabricOutput, error) {
				have, err := c.Counters(cmd.Context())
				if err != nil {
					return nil, err
				}
				return describePorts(r.Lab.Name, have, before), nil
			}
			if watch {
				return a.watchFabric(cmd.Context(), format, interval, read)
			}
			out, err := read(nil)
			if err != nil {
				return err
			}
			return a.list(format, out, func() error {
				_, err := fmt.Fprint(a.out, fabricText(out))
				return err
			})
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show them again and again, with rates")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two, with --watch")
	cmd.AddCommand(newFabricSetCmd(a))
	return cmd
}

// openOne opens the lab that is named, or the only one that runs.
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
	for _, r := range racks {
		names = append(names, r.Lab.Name)
	}
	return nil, usage(fmt.Errorf("several labs run: say which of %s", strings.Join(names, ", ")))
}

// describePorts reads a snapshot, with the rates since an earlier one if there is one of the same switch.
func describePorts(name string, c fabric.Counters, before *fabricOutput) *fabricOutput {
	out := &fabricOutput{Lab: name, At: c.At, Started: c.Started, Addresses: c.Addresses, Captures: c.Captures,
		Ports: []fabricPort{}}
	was := make(map[string]fabricPort)
	var elapsed float64 // seconds
	if before != nil && before.Started.Equal(c.Started) {
		elapsed = c.At.Sub(before.At).Seconds()
		for _, p := range before.Ports {
			was[p.Name] = p
		}
	}
	for _, p := range c.Ports {
		f := fabricPort{
			Name: p.Name, Connected: p.Connected, RxFrames: p.RxFrames, RxBytes: p.RxBytes, TxFrames: p.TxFrames,
			TxBytes: p.TxBytes,
			RxDrops: p.RxFiltered + p.RxNowhere, TxDrops: p.Drops.Total(), QueueBytes: p.QueueBytes,
			QueuePeak: p.QueuePeak,
			Link:      p.Link, InFlight: p.InFlight, BufferFull: p.Drops.BufferFull, Lost: p.Drops.Lost,
			Reordered: p.Reordered, ECNMarked: p.ECNMarked,
			Pauses: p.Pauses, Paused: p.Paused.Seconds(),
		}
		if p.Connects > 0 {
			f.Reconnects = p.Connects - 1
		}
		// A port that was removed and added again counts from zero.
		if o, ok := was[p.Name]; ok && elapsed > 0 && p.RxBytes >= o.RxBytes && p.TxBytes >= o.TxBytes {
			rx, tx := 8*float64(p.RxBytes-o.RxBytes)/elapsed, 8*float64(p.TxBytes-o.TxBytes)/elapsed
			f.RxRate, f.TxRate = &rx, &tx
		}
		out.Ports = append(out.Ports, f)
	}
	return out
}

// fabricText is the table of all ports and, where links are impaired, one of these.
func fabricText(out *fabricOutput) string {
	text := fabricGrid(out).String()
	if g := impairedGrid(out.Ports); g != nil {
		text += "\n" + g.String()
	}
	return text
}

// fabricGrid prints exact frame counts, since those are compared, and rounded bytes. There are
// columns for rates if any is known.
func fabricGrid(out *fabricOutput) *grid {
	head := []string{"port", "link", "rx frames>", "rx bytes>", "tx frames>", "tx bytes>", "drops>", "queue>"}
	rates := slices.ContainsFunc(out.Ports, func(p fabricPort) bool { return p.RxRate != nil })
	if rates {
		head = append(head, "rx rate>", "tx rate>")
	}
	g := newGrid(head...)
	rate := func(r *float64) string {
		if r == nil {
			return ""
		}
		return words.Rate(*r)
	}
	for _, p := range out.Ports {
		link := "down"
		if p.Connected {
			link = "up"
		}
		row := []string{p.Name, link, strconv.FormatUint(p.RxFrames, 10), words.Bytes(p.RxBytes),
			strconv.FormatUint(p.TxFrames, 10), words.Bytes(p.TxBytes),
			strconv.FormatUint(p.RxDrops+p.TxDrops, 10), words.Bytes(p.QueueBytes)}
		if rates {
			row = append(row, rate(p.RxRate), rate(p.TxRate))
		}
		g.add(row...)
	}
	return g
}

// watchFabric shows snapshot after snapshot until ctx ends.
func (a *app) watchFabric(ctx context.Context, format string, interval time.Duration,
	read func(*fabricOutput) (*fabricOutput, error)) error {
	show := func(out *fabricOutput) error {
		_, err := fmt.Fprintf(a.out, "%s lab %s\n%s\n", out.At.Format(time.TimeOnly), out.Lab, fabricText(out))
		return err
	}
	end := func(*fabricOutput) {}
	switch t := terminal.Of(a.out); {
	case format == formatJSON:
		show = func(out *fabricOutput) error { return writeJSONLine(a.out, out) }
	case t != nil && a.env("TERM") != "dumb":
		// The alternate screen keeps what the user had on the screen; at the end the last state is left there.
		fmt.Fprint(t, "\x1b[?1049h\x1b[?25l")
		show = func(out *fabricOutput) error {
			_, err := fmt.Fprint(t, "\x1b[H"+screen(t, out)+"\x1b[J")
			return err
		}
		end = func(last *fabricOutput) {
			fmt.Fprint(t, "\x1b[?25h\x1b[?1049l")
			if last != nil {
				fmt.Fprint(t, fabricText(last))
			}
		}
	}
	var last *fabricOutput
	defer func() { end(last) }()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		out, err := read(last)
		if ctx.Err() != nil {
			return nil // how watching ends
		}
		if err != nil {
			return err
		}
		last = out
		if err := show(out); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// screen fits a snapshot into the terminal: lines that do not fit are cut, and ports that do not are counted.
func screen(t *os.File, out *fabricOutput) string {
	width, height := terminal.Size(t)
	lines := []string{fmt.Sprintf("lab %s, %s, %s known, Ctrl-C ends", out.Lab, out.At.Format(time.TimeOnly),
		addresses(out.Addresses)), ""}
	lines = append(lines, strings.Split(strings.TrimSuffix(fabricText(out), "\n"), "\n")...)
	if over := len(lines) - (height - 1); over > 0 {
		lines = append(lines[:len(lines)-over-1], fmt.Sprintf("... and %d more", over+1))
	}
	for i, l := range lines {
		lines[i] = terminal.Cut(l, width) + "\x1b[K"
	}
	return strings.Join(lines, "\n")
}

func addresses(n int) string {
	if n == 1 {
		return "1 address"
	}
	return fmt.Sprintf("%d addresses", n)
}
