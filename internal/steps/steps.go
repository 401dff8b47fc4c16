// Package steps reports the steps of a long operation to the code that shows them.
package steps

import (
	"fmt"
	"time"
)

// An Event is a change in a long operation.
type Event struct {
	Step string // current step, e.g. "start nodes"
	// Live describes the current activity. The display calls it from another goroutine until the step ends or sets
	// another.
	Live  func() string
	Left  func() time.Duration // or nil if unknown
	Note  string
	Done  int // of Total
	Total int
	End   bool
	Err   error         // why it failed, with End
	Took  time.Duration // with End
}

// A Progress turns steps into events. Beginning a step ends the one before. Report may be nil. Calls must not be
// concurrent.
type Progress struct {
	Report func(Event)

	step  string
	began time.Time
}

// Begin ends the open step and begins the next.
func (p *Progress) Begin(step string) {
	p.End(nil)
	p.step, p.began = step, time.Now()
	p.emit(Event{Step: step})
}

// Note reports a message for the user.
func (p *Progress) Note(format string, args ...any) {
	p.emit(Event{Step: p.step, Note: fmt.Sprintf(format, args...)})
}

// Say is like Note without formatting.
func (p *Progress) Say(text string) { p.Note("%s", text) }

// Watch sets a function that describes the current activity.
func (p *Progress) Watch(look func() string) { p.WatchLeft(look, nil) }

// WatchLeft is like Watch, with a function for the time left, or 0 if unknown.
func (p *Progress) WatchLeft(look func() string, left func() time.Duration) {
	p.emit(Event{Step: p.step, Live: look, Left: left})
}

// Count reports the progress within the step.
func (p *Progress) Count(done, total int) { p.emit(Event{Step: p.step, Done: done, Total: total}) }

// End ends the open step, if any.
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
