//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/rack/course"
)

// newPuzzleStartCmd makes rackless puzzle start.
func newPuzzleStartCmd(a *app) *cobra.Command {
	var number int
	var list bool
	cmd := a.ofPuzzle(&cobra.Command{
		Use:   "start [LAB]",
		Short: "Break a running lab, so that you can find out why",
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
		switch most := len(course.Puzzles()); {
		case list:
			var b strings.Builder
			for i, p := range course.Puzzles() {
				story := strings.ReplaceAll(p.Story, "NODE", "one node")
				fmt.Fprintf(&b, "%2d  %s\n", i+1, strings.ToUpper(story[:1])+story[1:])
			}
			return a.show(b.String())
		case number < 0 || number > most || cmd.Flags().Changed("puzzle") && number == 0:
			return cli.Usagef(cmd, "--puzzle %d: want 1 to %d", number, most)
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
		Use:   "check [LAB]",
		Short: "Say whether a broken lab works again, but not what is wrong",
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
	return cmd
}

// newPuzzleRevealCmd makes rackless puzzle reveal.
func newPuzzleRevealCmd(a *app) *cobra.Command {
	return a.ofPuzzle(&cobra.Command{
		Use:   "reveal [LAB]",
		Short: "Undo puzzle start, and say what it was",
	}, func(ctx context.Context, l *course.Lab) (string, error) {
		p, err := l.Mend(ctx)
		return fmt.Sprintf("%s\nIt was undone. More: rackless explain %s\n", p.Cause, p.Finding), err
	})
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
