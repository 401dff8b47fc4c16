//go:build linux

package tables

import (
	"fmt"
	"io"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/words"
)

// Schemas of the JSON documents.
const (
	PrepareSchema  = "rackless/prepare/v1"
	RollbackSchema = "rackless/rollback/v1"
)

// A Step is in the JSON of prepare and rollback. See docs/json.md.
type Step struct {
	Kind    string        `json:"kind"`
	Subject string        `json:"subject"`
	What    string        `json:"what"`
	Why     string        `json:"why,omitempty"`
	Risk    string        `json:"risk,omitempty"`
	Reboot  bool          `json:"needs_reboot,omitempty"`
	Status  change.Status `json:"status"`
	Error   string        `json:"error,omitempty"`
}

// A DoneStep was applied or undone.
type DoneStep struct {
	Step
	// Changed values were left alone by rollback, because they changed after prepare.
	Changed []change.Changed `json:"changed_since,omitempty"`
}

// A SurveyStep is a step in the JSON of prepare --dry-run.
type SurveyStep struct {
	Step
	// Commands have the effect of the step.
	Commands []string `json:"commands,omitempty"`
}

// Prepare is the JSON output of rackless prepare.
type Prepare struct {
	Schema string     `json:"schema"`
	Lab    string     `json:"lab"`
	DryRun bool       `json:"dry_run"`      // false; a dry run prints a [Survey]
	Reboot bool       `json:"needs_reboot"` // to match the plan
	Steps  []DoneStep `json:"steps"`
}

// Survey is the JSON output of rackless prepare --check and --dry-run.
type Survey struct {
	Schema  string       `json:"schema"`
	Lab     string       `json:"lab"`
	DryRun  bool         `json:"dry_run"`
	Reboot  bool         `json:"needs_reboot"`
	Outcome Outcome      `json:"outcome"`
	Steps   []SurveyStep `json:"steps"`

	user bool // it was made without root
}

// Rollback is the JSON output of rackless rollback.
type Rollback struct {
	Schema string     `json:"schema"`
	DryRun bool       `json:"dry_run"`
	Reboot bool       `json:"needs_reboot"` // removed arguments are still in force
	Steps  []DoneStep `json:"steps"`
}

// Steps returns results in their JSON form.
func Steps(results []change.Result) []DoneStep {
	out := make([]DoneStep, len(results))
	for i, r := range results {
		out[i] = DoneStep{Step: step(r), Changed: r.Changed}
	}
	return out
}

// SurveySteps returns remaining steps with shell commands.
func SurveySteps(survey []change.Result) []SurveyStep {
	out := make([]SurveyStep, len(survey))
	for i, r := range survey {
		out[i] = SurveyStep{Step: step(r), Commands: r.Commands()}
	}
	return out
}

func step(r change.Result) Step {
	s := Step{Kind: r.Kind, Subject: r.Subject, What: r.What, Why: r.Why, Risk: r.Risk, Reboot: r.Boot,
		Status: r.Status}
	if r.Err != nil {
		s.Error = r.Err.Error()
	}
	return s
}

// A StepDetail says how much is printed of a step.
type StepDetail int

// Each level includes the previous ones.
const (
	StepNames    StepDetail = iota
	StepReasons             // the reason and the risk
	StepCommands            // the equivalent shell commands
)

// WriteSteps prints steps for people. The ones in place are counted.
func WriteSteps(w io.Writer, results []change.Result, detail StepDetail) {
	inPlace := 0
	for i, r := range results {
		if r.Status == change.InPlace {
			inPlace++
			continue
		}
		note := ""
		if r.Boot && r.Status == change.Pending {
			note = " (needs a reboot)"
		}
		fmt.Fprintf(w, "%3d  %-8s  %s%s\n", i+1, r.Status, r.What, note)
		if detail < StepReasons {
			continue
		}
		writeReason(w, "why", r.Why)
		writeReason(w, "risk", r.Risk)
		if r.Err != nil {
			writeReason(w, "not", r.Err.Error())
		}
		if detail >= StepCommands {
			word := "type"
			for _, line := range r.Commands() { // may be part of a file's content
				fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("               %-5s %s", word, line), " "))
				word = ""
			}
		}
	}
	if inPlace > 0 {
		fmt.Fprintf(w, "%s in place already\n", words.Count(inPlace, "step"))
	}
}

func writeReason(w io.Writer, word, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			fmt.Fprintf(w, "               %-5s %s\n", word, line)
		}
		word = ""
	}
}

// StepProgress tells of each step as it ends, and on a terminal of the present one: update-grub and the initial file
// system take minutes on slow machines.
func StepProgress(out io.Writer, seen *steps.Progress, all int) func(change.Result) {
	n := 0
	return func(r change.Result) {
		if r.Status == change.Pending {
			seen.Begin(fmt.Sprintf("%d of %d, %s", n+1, all, r.What))
			return
		}
		seen.End(nil)
		n++
		if r.Status == change.InPlace {
			return
		}
		fmt.Fprintf(out, "%-8s  %s\n", r.Status, r.What)
		for _, c := range r.Changed {
			writeReason(out, "left", c.String())
		}
	}
}
