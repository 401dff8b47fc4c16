//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/rackless/rackless/finding"
	"github.com/rackless/rackless/internal/cli"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/verify"
)

// watchVerify makes the checks again and again until ctx ends, and prints what changes.
func (a *app) watchVerify(ctx context.Context, o *verifyOptions, v *verify.Target) error {
	var w verify.Watch
	rounds := 0
	for {
		var findings []finding.Finding
		var err error
		// The first round shows its steps, since it may take long; later ones would only fill the screen.
		if rounds == 0 {
			findings, err = a.findings(ctx, o, v)
		} else {
			findings, err = v.Findings(ctx, o.only, func(string) {})
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		// Every round is kept, so that rackless ui shows the present state while this watches.
		a.keep(o, v, findings)
		at := time.Now().UTC().Truncate(time.Second)
		for _, c := range w.Changes(at, findings) {
			if err := a.printDrift(o.form, c); err != nil {
				return err
			}
		}
		if rounds == 0 && o.form == formatText {
			fmt.Fprintf(a.out, "%s  %s, %d not ok; watching every %v, Ctrl-C ends it\n", at.Format(time.RFC3339),
				words.Count(len(findings), "check"), w.NotOK(), o.interval)
			if v.Unseen != "" {
				fmt.Fprintf(a.err, "not checked: %s\n", v.Unseen)
			}
		}
		rounds++
		select {
		case <-ctx.Done():
		case <-time.After(o.interval):
		}
	}
	// The status says how things were at the last look, for scripts that watch for a time.
	if w.NotOK() > 0 {
		return cli.Exit(exitFaults)
	}
	if rounds == 0 { // nothing is known of what was never checked
		return context.Cause(ctx)
	}
	return nil
}

// printDrift prints one of them: as text with what was wanted and the fix below, where something stopped holding.
func (a *app) printDrift(form string, c verify.Drift) error {
	if show.ForPrograms(form) {
		return show.EncodeNext(a.out, form, c)
	}
	// The words are equally long, so that what follows stands in columns.
	paint := a.painter()
	status := map[finding.Status]string{finding.OK: paint("32", "ok again"), finding.Failed: paint("31", "FAILED  "),
		finding.Unknown: paint("33", "unknown ")}[c.Finding.Status]
	f := show.Clean(c.Finding, words.Visible)
	_, err := fmt.Fprintf(a.out, "%s  %s  %s  %s: %s\n", c.At.Format(time.RFC3339), status, f.Subject, f.Title, f.Have)
	if err == nil && f.Status != finding.OK {
		_, err = fmt.Fprintf(a.out, "        want  %s\n        fix   %s\n", f.Want, f.Fix)
	}
	return err
}
