//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/rack/course"
)

// newPuzzleStartCmd makes rackless puzzle start.
func newPuzzleStartCmd(a *app) *cobra.Command {
	var number int
	var list bool
	cmd := a.ofPuzzle(&cobra.Command{
		Use:   "start [LAB|FILE]",
		Short: "Break a running lab, or write a simulation in trouble, so that you can find out why",
	}, func(ctx context.Context, l *course.Lab) (string, error) {
		if number == 0 {
			all := l.Fitting()
			number = all[rand.IntN(len(all))]
		}
		p, err := l.Break(ctx, number)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("lab %s is broken.\n\n  %s\n\nFind out why, and repair it. rackless puzzle check "+
			"%[1]s says whether it works again, with --hint\nwhere to look; rackless puzzle reveal %[1]s gives up.\n",
			l.Lab.Name, p.Story), nil
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		labs := len(course.Puzzles())
		most := labs + len(course.SimulatedPuzzles())
		switch {
		case list:
			var b strings.Builder
			for i, p := range course.Puzzles() {
				story := strings.ReplaceAll(p.Story, "NODE", "one node")
				fmt.Fprintf(&b, "%2d  %s\n", i+1, strings.ToUpper(story[:1])+story[1:])
			}
			for i, p := range course.SimulatedPuzzles() {
				fmt.Fprintf(&b, "%2d  %s\n", labs+i+1, p.Story)
			}
			return a.show(b.String())
		case number < 0 || number > most || cmd.Flags().Changed("puzzle") && number == 0:
			return cli.Usagef(cmd, "--puzzle %d: want 1 to %d", number, most)
		case number > labs && (len(args) == 0 || filepath.Ext(args[0]) != ".yaml"):
			return cli.Usagef(cmd, "puzzle %d is a simulation: name the file to write, as in rackless puzzle start "+
				"%s.yaml --puzzle %[1]d", number, course.SimulatedPuzzles()[number-labs-1].Name)
		case number > labs:
			return a.startSimulated(&course.SimulatedPuzzles()[number-labs-1], args[0])
		}
		return run(cmd, args)
	}
	cmd.Flags().IntVar(&number, "puzzle", 0, "which puzzle, by its `NUMBER`; else one by chance")
	cmd.Flags().BoolVar(&list, "list", false, "list the puzzles, and break nothing")
	cli.OfferWords(cmd, "puzzle")
	return cmd
}

// newPuzzleCheckCmd does not say what is wrong: verify does.
func newPuzzleCheckCmd(a *app) *cobra.Command {
	var hint bool
	cmd := a.ofPuzzle(&cobra.Command{
		Use:   "check [LAB|FILE]",
		Short: "Say whether a puzzle is solved, but not what is wrong",
	}, func(ctx context.Context, l *course.Lab) (string, error) {
		if hint {
			p, err := l.Puzzle()
			return p.Hint + "\n", err
		}
		o, err := l.Judge(ctx)
		if err != nil {
			return "", err
		}
		if o.NotOK > 0 {
			return fmt.Sprintf("not yet: of %d checks %d do not hold\n", o.Checks, o.NotOK), cli.Exit(exitFaults)
		}
		return fmt.Sprintf("solved: all %d checks hold.\n%s\nMore: rackless explain %s\n", o.Checks,
			o.Puzzle.Cause, o.Puzzle.Finding), nil
	})
	cmd.Flags().BoolVar(&hint, "hint", false, "say where to look, and check nothing")
	return ofSimulated(cmd, func(ctx context.Context, p *course.Simulated, file string, text []byte) error {
		if hint {
			return a.show(p.Hint + "\n")
		}
		solved, err := p.Solved(file, text, func() bool { return ctx.Err() != nil })
		switch {
		case err != nil:
			return cli.Usage(err)
		case !solved:
			return errors.Join(a.show("not yet: rackless simulate "+file+" shows why\n"), cli.Exit(exitFaults))
		}
		return a.show("solved.\n" + p.Cause + "\n")
	})
}

// newPuzzleRevealCmd makes rackless puzzle reveal.
func newPuzzleRevealCmd(a *app) *cobra.Command {
	cmd := a.ofPuzzle(&cobra.Command{
		Use:   "reveal [LAB|FILE]",
		Short: "Undo puzzle start, and say what it was",
	}, func(ctx context.Context, l *course.Lab) (string, error) {
		p, err := l.Mend(ctx)
		return fmt.Sprintf("%s\nIt was undone. More: rackless explain %s\n", p.Cause, p.Finding), err
	})
	return ofSimulated(cmd, func(_ context.Context, p *course.Simulated, file string, _ []byte) error {
		text := fmt.Sprintf("%s\nOne solution; %s is as you left it:\n", p.Cause, file)
		for _, e := range p.Edits {
			text += fmt.Sprintf("  %s  ->  %s\n", e.From, e.To)
		}
		return a.show(text)
	})
}

// startSimulated writes the file of a puzzle, and never over another file.
func (a *app) startSimulated(p *course.Simulated, file string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return cli.Usage(fmt.Errorf("%s exists: name a file that does not", file))
	}
	if err != nil {
		return err
	}
	_, err = f.Write(p.Text())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return a.show(fmt.Sprintf("%s has a network in trouble.\n\n  %s\n\nrackless simulate %[1]s shows it. Change the "+
		"file. rackless puzzle check %[1]s says whether it is\nsolved, with --hint where to look; rackless puzzle "+
		"reveal %[1]s gives up.\n", file, p.Story))
}

// ofSimulated runs do if the argument is the file of a simulated puzzle.
func ofSimulated(cmd *cobra.Command,
	do func(ctx context.Context, p *course.Simulated, file string, text []byte) error) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			// A lab may be named by its file too, so any error is left to run.
			if text, err := userfile.Read(args[0], userfile.Text); err == nil {
				if p := course.SimulatedOf(text); p != nil {
					return do(cmd.Context(), p, args[0], text)
				}
			}
		}
		return run(cmd, args)
	}
	return cmd
}

// ofPuzzle prints do's text after all progress, unless do failed without a status of its own.
func (a *app) ofPuzzle(cmd *cobra.Command,
	do func(ctx context.Context, l *course.Lab) (text string, err error)) *cobra.Command {
	cmd.Args = cli.MaxArgs(1, "at most one lab")
	cmd.ValidArgsFunction = a.completeLabs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.openOne(args)
		if err != nil {
			return err
		}
		defer r.Close()
		p, end := a.progress()
		defer end()
		text, err := do(cmd.Context(), &course.Lab{Rack: r, Progress: p})
		status, faulty := errors.AsType[*cli.Error](err)
		faulty = faulty && status.Err == nil
		if faulty {
			p.End(nil) // the checks were made
		} else {
			p.End(err)
		}
		end()
		if err == nil || faulty {
			err = errors.Join(a.show(text), err)
		}
		return err
	}
	return cmd
}
