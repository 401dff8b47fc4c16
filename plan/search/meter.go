package search

import (
	"context"
	"errors"
	"fmt"
)

// DefaultSteps is the limit where Options.Steps is 0: about a second of work.
const DefaultSteps = 30_000_000

// TimeLimit is what stops a search whose context has a deadline.
const TimeLimit = "time limit"

// A meter counts steps and says when to stop. Steps and not time decide, so that a search does the
// same on any machine; the context ends it in between, and is looked at now and then only.
type meter struct {
	ctx     context.Context
	steps   int64
	limit   int64
	look    int64 // when to look at the context next
	stopped string
	// soft is where a part of the work gives up so that another gets its turn; the search as a whole goes on.
	soft   int64
	nested []int64
}

// budget bounds the part of the work that follows, until endBudget; a part of a part has no more than the whole.
func (w *meter) budget(n int64) {
	w.nested = append(w.nested, w.soft)
	if until := w.steps + n; w.soft == 0 || until < w.soft {
		w.soft = until
	}
}

func (w *meter) endBudget() {
	w.soft = w.nested[len(w.nested)-1]
	w.nested = w.nested[:len(w.nested)-1]
}

// lookEvery is how many steps pass between looks at the context: well under a millisecond.
const lookEvery = 8192

// add counts n steps and reports whether to stop, this part of the work or all of it.
func (w *meter) add(n int64) bool { return w.addHard(n) || w.soft > 0 && w.steps >= w.soft }

// addHard counts n steps and reports whether to stop all work.
func (w *meter) addHard(n int64) bool {
	w.steps += n
	if w.stopped != "" {
		return true
	}
	if w.steps >= w.look {
		w.look = w.steps + lookEvery
		switch err := w.ctx.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			w.stopped = TimeLimit
			return true
		case err != nil:
			w.stopped = "cancelled"
			return true
		}
	}
	if w.steps >= w.limit {
		w.stopped = fmt.Sprintf("step limit %d", w.limit)
		return true
	}
	return false
}
