package boot

import (
	"context"
	"fmt"
	"strings"

	"github.com/rackless/rackless/host/change"
)

// A byHand is a boot loader that is not changed by rackless. Its guard says what to write where;
// the step counts as made once the kernel runs with the arguments.
type byHand struct {
	Args  []string `json:"args"`
	Found string   `json:"found"` // what there is
	Todo  string   `json:"todo"`  // where the arguments go
}

// The states of a byHand.
const (
	handDone    change.State = "the kernel runs with the arguments"
	handMissing change.State = "the kernel runs without the arguments"
)

func (o *byHand) Kind() string    { return "kernel-args-by-hand" }
func (o *byHand) Subject() string { return subject("boot loader", o.Args) }
func (o *byHand) where() string   { return "by hand: " + o.Found }

func (o *byHand) Read(_ context.Context, s *change.System) (change.State, error) {
	if has, err := runsWith(s, o.Args); err != nil || !has {
		return handMissing, err
	}
	return handDone, nil
}

func (o *byHand) Done(state change.State) bool { return state == handDone }

func (o *byHand) guard(context.Context, *change.System) error {
	return fmt.Errorf("rackless does not change the boot loader of this machine (%s): add %q to the command line of "+
		"the kernel, in place of other values of the same, %s; "+
		"start the machine again, and prepare again", o.Found, strings.Join(o.Args, " "), o.Todo)
}

// Do is never reached: the guard refuses before it.
func (o *byHand) Do(ctx context.Context, s *change.System) error { return o.guard(ctx, s) }

// Restore has nothing to bring back.
func (o *byHand) Restore(context.Context, *change.System, change.State) error { return nil }
