// Package steps reports the steps of a longer operation to the code that shows them.
package steps

import (
	"fmt"
	"time"
)

// An Event is one thing that happened in a longer operation.
type Event struct {
	Step string // what is being done, e.g. "start nodes"
	// Live says what is being done within the step, for whoever shows it as it changes: it is called
	// again and again, from another goroutine, until the step ends or has another one.
	Live  func() string
	Left  func() time.Duration // nil if nobody knows
	Note  string               // what a user may want to know meanwhile
	Done  int                  // of Total, where the step counts
	Total int
	End   bool          // the step is over
	Err   error         // why it failed, with End
	Took  time.Duration // with End
}

// A Progress turns a sequence of steps into events. Steps follow one another: to begin one ends the
// one before, so that code that is called in a step need not know of it. Report may be nil. Calls
// come from one goroutine at a time.
type Progress struct {
	Report func(Event)

	step  string
	began time.Time
}

// Begin ends the step before, if one is open, and begins the next.
func (p *Progress) Begin(step string) {
	p.End(nil)
	p.step, p.began = step, time.Now()
	p.emit(Event{Step: step})
}

// Note reports what a user may want to know meanwhile.
func (p *Progress) Note(format string, args ...any) {
	p.emit(Event{Step: p.step, Note: fmt.Sprintf(format, args...)})
}

// Say is Note for a text that others made.
func (p *Progress) Say(text string) { p.Note("%s", text) }

// Watch has what is being done within the step asked of look, where somebody looks on.
func (p *Progress) Watch(look func() string) { p.WatchLeft(look, nil) }

// WatchLeft is Watch where the time left is known, too, of this step or of all: 0 while it is not.
func (p *Progress) WatchLeft(look func() string, left func() time.Duration) {
	p.emit(Event{Step: p.step, Live: look, Left: left})
}

// Count tells how much of the step is done.
func (p *Progress) Count(done, total int) { p.emit(Event{Step: p.step, Done: done, Total: total}) }

// End ends the step that is open, if one is.
func (p *Progress) End(err error) {
	if p.step != "" {
		p.emit(Event{Step: p.step, End: true, Err: err, Took: time.Since(p.began)})
		p.step = ""
	}
}

func (p *Progress) emit(e Event) {
	if p.Report != nil {
		p.Report(e)
	}
}
