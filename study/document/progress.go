package document

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
)

// ShowProgress shows a run as a step. Once a block of a study with a budget is done, it says how
// many the budget holds, and what they can show. doing is what the run is at.
func ShowProgress(to *steps.Progress, s *study.Spec, p conduct.Progress, doing *atomic.Value) {
	if p.Status != "" {
		var err error
		if p.Status != study.StatusDone {
			to.Note("%s: %s", p.Status, p.Error)
		}
		// The display marks a failed step: that is for failures of rackless or the lab.
		if p.Status == study.StatusFailed { // a disturbed run is not one: its note has said it
			err = errors.New(p.Status)
		}
		to.End(err)
		return
	}
	step := fmt.Sprintf("block %d run %d: %s", p.Run.Block, p.Run.Place, p.Cell)
	step += words.If(p.Attempt > 1, fmt.Sprintf(", attempt %d", p.Attempt))
	to.Begin(step)
	what, began := words.Count(p.Done, "run")+" done", time.Now()
	if p.Total > 0 {
		what = fmt.Sprintf("%d of %d", p.Done+1, p.Total)
	}
	to.WatchLeft(func() string { return fmt.Sprint(what, doing.Load()) },
		func() time.Duration { return p.Left - time.Since(began) })
	if blocks := p.Total / max(1, len(s.Block(1))); s.Budget > 0 && p.Status == "" && p.Run.Block == 2 &&
		p.Run.Place == 1 && p.Attempt == 1 && blocks > 0 {
		to.Note("by the first block, %v hold about %s, which find %s", s.Budget, words.Count(blocks, "block"),
			studyview.SmallestEffects(s, blocks))
	}
}
