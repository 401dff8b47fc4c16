//go:build linux

package tables

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/words"
)

// An Outcome says whether prepare would go through.
type Outcome string

// Outcomes of a survey.
const (
	WouldPass   Outcome = "goes through"
	WouldRefuse Outcome = "refused" // prepare would change nothing
	Unknown     Outcome = "unknown" // a step could not be read, or only root sees all
)

// NewSurvey returns the JSON form of a survey. If user is set, the survey was made without root: a step that lacks only
// permission to be read is unknown instead of refused, and so is whether prepare goes through, because guards do not
// see the files of other users' processes.
func NewSurvey(lab string, survey []change.Result, user bool) Survey {
	out := Survey{Schema: PrepareSchema, Lab: lab, DryRun: true, Outcome: WouldPass, Steps: SurveySteps(survey),
		user: user}
	for i, r := range survey {
		if user && r.Status == change.Refused && errors.Is(r.Err, fs.ErrPermission) {
			out.Steps[i].Status = change.Failed
		}
		switch out.Steps[i].Status {
		case change.Refused:
			out.Outcome = WouldRefuse
		case change.Failed:
			if out.Outcome == WouldPass {
				out.Outcome = Unknown
			}
		case change.Pending, change.Waiting:
			if out.Outcome == WouldPass && user {
				out.Outcome = Unknown
			}
		}
		out.Reboot = out.Reboot || r.Status == change.Boot || r.Status == change.Waiting ||
			r.Status == change.Pending && r.Boot
	}
	return out
}

// checkWords are the words of prepare --check for the statuses of a survey.
var checkWords = map[change.Status]string{
	change.InPlace: "already so", change.Pending: "would do", change.Boot: "at reboot", change.Waiting: "at reboot",
	change.Refused: "refused", change.Failed: "not known",
}

// WriteCheck prints the outcome of every step, the reasons against it, and whether prepare would go through. out is
// the survey's [NewSurvey].
func WriteCheck(w io.Writer, survey []change.Result, out Survey) {
	count := map[string]int{}
	for i, r := range survey {
		word := checkWords[out.Steps[i].Status]
		count[word]++
		fmt.Fprintf(w, "%3d  %-10s  %s\n", i+1, word, r.What)
		if r.Err != nil {
			writeReason(w, "why", r.Err.Error())
		}
	}
	var counts []string
	for _, word := range []string{"would do", "already so", "at reboot", "refused", "not known"} {
		if n := count[word]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, word))
		}
	}
	verdict := "prepare would go through"
	switch {
	case out.Outcome == WouldRefuse:
		verdict = "prepare would refuse, and change nothing"
	case out.Outcome == Unknown && out.user:
		verdict = "not known whether prepare would go through: only root sees all; run this as root"
	case out.Outcome == Unknown:
		verdict = "not known whether prepare would go through"
	case out.Reboot:
		verdict += ", with a reboot"
	}
	fmt.Fprintf(w, "%s; %s", verdict, words.Count(len(survey), "step"))
	if len(counts) > 0 {
		fmt.Fprintf(w, ": %s", strings.Join(counts, ", "))
	}
	fmt.Fprintln(w)
}
