//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/report/simview"
	"github.com/rackless/rackless/report/tables"
	"github.com/rackless/rackless/study/suggest"
)

type simulateOptions struct {
	format string

	capture string // link
	out     string
	force   bool

	suggest bool
	trials  int
	timeout time.Duration
}

// defaultTrials of a search take about a minute for a few thousand packets.
const defaultTrials = 60

func newSimulateCmd(a *app) *cobra.Command {
	var o simulateOptions
	cmd := &cobra.Command{
		Use:   "simulate FILE.yaml|LAB.yaml",
		Short: "Simulate congestion between RDMA NICs in virtual time",
		Args: func(cmd *cobra.Command, args []string) error {
			given := cmd.Flags().Changed
			switch {
			case o.capture == "" && (given("out") || o.force):
				return cli.Usagef(cmd, "--out and --force are for the file of --capture LINK")
			case !o.suggest && (given("trials") || given("timeout")):
				return cli.Usagef(cmd, "--trials and --timeout limit --suggest")
			case o.suggest && o.format == formHTML:
				return cli.Usagef(cmd, "--suggest prints %s, %s or %s", formatText, formatJSON, formatYAML)
			case o.trials < 1:
				return cli.Usagef(cmd, "--trials %d: want 1 or more", o.trials)
			case o.timeout < 0:
				return cli.Usagef(cmd, "--timeout %v: want more than 0", o.timeout)
			}
			return cli.ExactArgs(1, "one FILE.yaml")(cmd, args)
		},
		ValidArgsFunction: completeLabFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.suggest {
				return a.suggest(cmd.Context(), o, args[0])
			}
			return a.simulate(cmd.Context(), o, args[0])
		},
	}
	o.format = formatText
	fs := cmd.Flags()
	cli.EnumFlag(cmd, &o.format, "output", "o", "how to print the result", formatText, formatJSON, formatYAML, formHTML)
	fs.StringVar(&o.capture, "capture", "", "write the packets of a `LINK`, of a host or of a port such as s0:2, as "+
		"pcapng")
	fs.StringVar(&o.out, "out", "", "`FILE` of the capture (default NAME.pcapng)")
	fs.BoolVar(&o.force, "force", false, "overwrite an existing file")
	fs.BoolVar(&o.suggest, "suggest", false, "search for better thresholds and timers, and measure their effects")
	fs.IntVar(&o.trials, "trials", defaultTrials, "`NUMBER` of choices that the search tries")
	fs.DurationVar(&o.timeout, "timeout", 0, "end the search and its measurements after this time, e.g. 2m (0: no end)")
	cmd.MarkFlagsMutuallyExclusive("suggest", "capture")
	cli.Offer(cmd, "out", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"pcapng"}, cobra.ShellCompDirectiveFilterFileExt
	})
	return cmd
}

// besideFile reads files that another one names.
func besideFile(file string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(filepath.Dir(file), name)
		}
		return userfile.Read(name, userfile.Text)
	}
}

// simulate prints the result until then after Ctrl-C.
func (a *app) simulate(ctx context.Context, o simulateOptions, file string) error {
	text, err := userfile.Read(file, userfile.Text)
	if err != nil {
		return cli.Usage(err)
	}
	c, err := simulate.Parse(file, text, besideFile(file))
	if err != nil {
		return cli.Usage(err)
	}
	if o.format == formHTML && c.Curves == nil && c.Level != simulate.FlowLevel {
		c.Curves = &simulate.Curves{}
	}
	end := func() error { return nil }
	if o.capture != "" {
		if end, err = startCapture(c, o); err != nil {
			return cli.Usage(err)
		}
	}
	r := simulate.Run(c, func() bool { return ctx.Err() != nil })
	err = end()
	if o.format == formHTML {
		err = errors.Join(err, simview.Page(a.out, r, tables.Simulation(r)))
	} else {
		err = errors.Join(err, a.print(o.format, r, tables.Simulation(r)))
	}
	if err != nil {
		return err
	}
	if r.Unfinished > 0 {
		return &cli.Error{Code: exitFailed, Err: fmt.Errorf("%d of %s did not end within %v of the simulation",
			r.Unfinished, words.Count(len(r.Flows), "flow"), r.Time)}
	}
	return nil
}

// startCapture captures a link in a file, which end completes. A file that could not be written is removed.
func startCapture(c *simulate.Config, o simulateOptions) (end func() error, err error) {
	name := o.out
	if name == "" {
		name = filepath.Base(c.Name) + ".pcapng"
	}
	// An unknown link leaves no file behind.
	if _, err := simulate.NewCapture(c, o.capture, nil); err != nil {
		return nil, fmt.Errorf("--capture: %w", err)
	}
	w, done, err := fabric.CaptureFile(name, o.force)
	if err != nil {
		return nil, err
	}
	k, err := simulate.NewCapture(c, o.capture, w)
	if err != nil {
		return nil, err
	}
	return func() error {
		err := k.Close()
		return errors.Join(err, done(err != nil))
	}, nil
}

// suggest prints what was found until then after Ctrl-C and at the timeout.
func (a *app) suggest(ctx context.Context, o simulateOptions, file string) error {
	text, err := userfile.Read(file, userfile.Text)
	if err != nil {
		return cli.Usage(err)
	}
	steps, end := a.progress()
	defer end()
	steps.Begin("search")
	var doing atomic.Value
	doing.Store("")
	steps.Watch(func() string { return doing.Load().(string) })
	s := suggest.Options{Trials: o.trials, Progress: func(text string) { doing.Store(text) }}
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
		// The effects take about as long as the search.
		half := time.Now().Add(o.timeout / 2)
		s.Enough = func() bool { return time.Now().After(half) }
	}
	found, err := suggest.Search(ctx, file, text, besideFile(file), s)
	end()
	if err != nil {
		return cli.Usage(err)
	}
	return a.print(o.format, found, tables.Suggestion(found))
}
