//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/terminal"
	"github.com/rackless/rackless/internal/wait"
	nodefacts "github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/top"
	"github.com/rackless/rackless/report/ui"
	"github.com/rackless/rackless/study/lock"
)

const topKeys = "q quits"

// rdmaPause is the time between two readings of the RDMA counters in the nodes, which cost them CPU time.
const rdmaPause = 3 * time.Second

// newTopCmd makes rackless top.
func newTopCmd(a *app) *cobra.Command {
	var format string
	var once bool
	interval := time.Second
	cmd := &cobra.Command{
		Use:               "top [NAME|LAB.yaml]",
		Short:             "Show the rates of a running lab live: ports, drops, marks, CNPs, CPUs",
		Args:              cli.MaxArgs(1, "at most one lab"),
		ValidArgsFunction: a.completeLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			const least = 100 * time.Millisecond // as of link show
			if interval < least {
				return cli.Usagef(cmd, "--interval %v: want %v or more", interval, least)
			}
			held, err := lock.FromEnv(a.env)
			if err != nil {
				return cli.Usage(err)
			}
			r, err := a.openOne(args)
			if err != nil {
				return err
			}
			defer r.Close()
			t := &topReader{lab: r.Lab.Name, source: &ui.Source{Dirs: r.Dirs, Lock: held}}
			if once {
				return a.topOnce(cmd.Context(), t, format, interval)
			}
			return a.top(cmd.Context(), t, format, interval)
		},
	}
	outputFlag(cmd, &format)
	cmd.Flags().BoolVar(&once, "once", false, "print the rates over one interval, and end")
	cmd.Flags().DurationVar(&interval, "interval", interval, "time between two readings")
	cli.OfferWords(cmd, "interval")
	return cmd
}

// A topReader reads a lab again and again.
type topReader struct {
	lab    string
	source *ui.Source
}

// read reads the lab, without its RDMA counters. It fails only if the lab is gone.
func (t *topReader) read(ctx context.Context) (*top.Reading, error) {
	r, err := rack.Open(t.source.Dirs, t.lab) // up may have changed it
	if err != nil {
		return nil, err
	}
	defer r.Close()
	d := r.Describe(ctx)
	out := &top.Reading{Lab: t.lab, Accelerator: d.Accel, Emulated: r.Emulated(), At: time.Now()}
	for _, n := range d.Nodes {
		m := top.Machine{Name: n.Name, State: n.State, CPUs: n.CPUs}
		if n.PID > 0 {
			if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID)); err == nil {
				if used, err := nodefacts.ParseProcessTime(string(stat)); err == nil {
					m.CPUTime = &used
				}
			}
		}
		out.Nodes = append(out.Nodes, m)
	}
	if r.SwitchState() != rack.SwitchNone {
		f, err := t.source.Fabric(ctx, t.lab)
		if out.FabricErr = err; err == nil {
			out.Fabric = &f
		}
	}
	return out, nil
}

// readRDMA reads the RDMA counters of all nodes into r.
func (t *topReader) readRDMA(ctx context.Context, r *top.Reading) {
	r.RDMA, r.RDMAErr = t.source.RDMA(ctx, t.lab)
	r.RDMAAt = time.Now()
}

func (a *app) topOnce(ctx context.Context, t *topReader, format string, interval time.Duration) error {
	var two [2]*top.Reading
	for i := range two {
		if i > 0 {
			if err := wait.For(ctx, interval); err != nil {
				return err
			}
		}
		var err error
		if two[i], err = t.read(ctx); err != nil {
			return err
		}
		t.readRDMA(ctx, two[i])
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	v := top.New(two[1], two[0])
	return a.print(format, v, v.Text())
}

// top shows the lab until q, Ctrl-C or the end of the lab.
func (a *app) top(ctx context.Context, t *topReader, format string, interval time.Duration) (err error) {
	draw := func(v *top.View) error { return a.print(format, v, v.Text()+"\n") }
	var keys <-chan byte
	switch out := terminal.Of(a.out); {
	case show.ForPrograms(format):
		draw = func(v *top.View) error { return show.EncodeNext(a.out, format, v) }
	case out != nil && a.env("TERM") != "dumb":
		screen, taken := terminal.OpenScreen(a.in, out)
		if taken != nil {
			return taken
		}
		defer func() { err = errors.Join(err, screen.Close()) }()
		help := topKeys
		if keys = screen.Keys; keys == nil {
			help = "Ctrl-C quits"
		}
		draw = func(v *top.View) error {
			width, height := screen.Size()
			return screen.Draw(v.Screen(width, height, help))
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	rdma := t.followRDMA(ctx)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var past topPast
	for {
		now, err := t.read(ctx)
		if ctx.Err() != nil {
			return nil // the normal end
		}
		if err != nil {
			return err
		}
		if err := draw(past.view(now, rdma)); err != nil {
			return err
		}
		for next := false; !next; {
			select {
			case <-ctx.Done():
				return nil
			case key := <-keys:
				if key == 'q' || key == 'Q' || key == terminal.CtrlC {
					return nil
				}
			case <-tick.C:
				next = true
			}
		}
	}
}

// followRDMA reads the RDMA counters again and again, beside the rest: nodes may take seconds to answer.
func (t *topReader) followRDMA(ctx context.Context) <-chan *top.Reading {
	out := make(chan *top.Reading, 1)
	go func() {
		for {
			r := &top.Reading{}
			t.readRDMA(ctx, r)
			select {
			case out <- r:
			case <-ctx.Done():
				return
			}
			if wait.For(ctx, rdmaPause) != nil {
				return
			}
		}
	}()
	return out
}

// topPast holds the last readings of a lab and of its RDMA counters, which come more rarely.
type topPast struct {
	last          *top.Reading
	devices, have *top.Reading // the last but one, and the last
}

func (p *topPast) view(now *top.Reading, rdma <-chan *top.Reading) *top.View {
	select {
	case r := <-rdma:
		p.devices, p.have = p.have, r
	default:
	}
	if p.have != nil {
		now.RDMA, now.RDMAAt, now.RDMAErr = p.have.RDMA, p.have.RDMAAt, p.have.RDMAErr
	}
	before := p.last
	p.last = now
	if before == nil {
		return top.New(now, nil)
	}
	with := *before
	with.RDMA, with.RDMAAt = nil, time.Time{}
	if p.devices != nil {
		with.RDMA, with.RDMAAt = p.devices.RDMA, p.devices.RDMAAt
	}
	return top.New(now, &with)
}
