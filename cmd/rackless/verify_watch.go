package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackless/rackless/check"
	"github.com/rackless/rackless/rack"
)

// A drift is a check whose outcome is another than before. As JSON it is one line of verify --watch, see docs/json.md.
type drift struct {
	At      time.Time     `json:"at"`
	Before  check.Status  `json:"before,omitempty"` // left out of what was not ok when watching began
	Finding check.Finding `json:"finding"`
}

// A watch remembers what does not hold.
type watch struct {
	off   map[subjectOfCheck]check.Finding
	began bool
}

// A subjectOfCheck is what stays the same of a finding while its outcome changes.
type subjectOfCheck struct{ id, subject string }

// changes returns what is different from the findings before, in the order of the new ones. In the
// first round that is all that is not ok.
//
// A check that was not made this time, because its node does not answer, is as it was.
func (w *watch) changes(at time.Time, now []check.Finding) []drift {
	var out []drift
	before := w.off
	w.off = map[subjectOfCheck]check.Finding{}
	seen := map[subjectOfCheck]bool{}
	for _, f := range now {
		key := subjectOfCheck{f.ID, f.Subject}
		seen[key] = true
		was, wasOff := before[key]
		if f.Status != check.OK {
			w.off[key] = f
		}
		switch {
		case f.Status == check.OK && wasOff:
			out = append(out, drift{at, was.Status, f})
		case f.Status != check.OK && !wasOff:
			c := drift{At: at, Finding: f}
			if w.began {
				c.Before = check.OK
			}
			out = append(out, c)
		case f.Status != check.OK && f.Status != was.Status:
			out = append(out, drift{at, was.Status, f})
		}
	}
	var answer []drift
	for key, was := range before {
		switch {
		case seen[key]:
		case check.Silent(was): // it answers again: then the finding is not made at all
			again := was
			again.Status, again.Have, again.Fix = check.OK, "it answers again", ""
			answer = append(answer, drift{at, was.Status, again})
		default:
			w.off[key] = was
		}
	}
	slices.SortFunc(answer, func(a, b drift) int { return strings.Compare(a.Finding.Subject, b.Finding.Subject) })
	w.began = true
	return append(out, answer...)
}

// watchVerify makes the checks again and again until ctx ends, and prints what changes.
func (a *app) watchVerify(ctx context.Context, o *verifyOptions, v *verification) error {
	var w watch
	rounds := 0
	for {
		var findings []check.Finding
		var err error
		if rounds == 0 {
			ui := newUI(a.err, a.env)
			p := &rack.Progress{Report: ui.event}
			findings, err = v.findings(ctx, o.only, p.Begin)
			p.End(err)
			ui.close()
		} else {
			findings, err = v.findings(ctx, o.only, func(string) {})
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return err
		}
		a.keep(o, v, findings)
		at := time.Now().UTC().Truncate(time.Second)
		all := w.changes(at, findings)
		for _, c := range all {
			if err := a.printDrift(o.form, c); err != nil {
				return err
			}
		}
		if rounds == 0 && o.form == formatText {
			fmt.Fprintf(a.out, "%s  %d checks, %d not ok; watching every %v, Ctrl-C ends it\n", at.Format(time.RFC3339),
				len(findings), len(w.off), o.interval)
			if v.unseen != "" {
				fmt.Fprintf(a.err, "not checked: %s\n", v.unseen)
			}
		}
		rounds++
		select {
		case <-ctx.Done():
		case <-time.After(o.interval):
		}
	}
	if len(w.off) > 0 {
		return &exitError{exitFaults, nil} // all has been said
	}
	if rounds == 0 { // nothing is known of what was never checked
		return context.Cause(ctx)
	}
	return nil
}

// printDrift prints one of them: as text with what was wanted and the fix below, where something stopped holding.
func (a *app) printDrift(form string, c drift) error {
	if form == formatJSON {
		return writeJSONLine(a.out, c)
	}
	paint := painter(a.color())
	status := map[check.Status]string{check.OK: paint("32", "ok again"), check.Failed: paint("31", "FAILED  "),
		check.Unknown: paint("33", "unknown ")}[c.Finding.Status]
	f := c.Finding
	_, err := fmt.Fprintf(a.out, "%s  %s  %s  %s: %s\n", c.At.Format(time.RFC3339), status, f.Subject, f.Title, f.Have)
	if err == nil && f.Status != check.OK {
		_, err = fmt.Fprintf(a.out, "        want  %s\n        fix   %s\n", f.Want, f.Fix)
	}
	return err
}
