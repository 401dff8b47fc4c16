package boot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/cmdline"
	"github.com/rackless/rackless/internal/lists"
)

// A rpmOSTree is a system whose kernel arguments belong to its deployments (Fedora CoreOS,
// Silverblue). Its state is what rpm-ostree kargs prints: of the deployment that the next boot
// takes.
type rpmOSTree struct {
	Args    []string `json:"args"`
	Program string   `json:"program"`
	settled
}

func (o *rpmOSTree) Kind() string    { return "kernel-args-rpm-ostree" }
func (o *rpmOSTree) Subject() string { return subject("rpm-ostree", o.Args) }
func (o *rpmOSTree) where() string   { return "by rpm-ostree, in a new deployment" }

func (o *rpmOSTree) Read(ctx context.Context, s *change.System) (change.State, error) {
	line, err := o.line(ctx, s)
	return o.settled.read(change.State(line)), err
}

func (o *rpmOSTree) line(ctx context.Context, s *change.System) (string, error) {
	out, err := s.Query(ctx, o.Program, "kargs")
	if err != nil {
		return "", err
	}
	// It names the deployment, and is another in each.
	words := lists.Filter(strings.Fields(string(out)),
		func(word string) bool { return !strings.HasPrefix(word, "ostree=") })
	return strings.Join(words, " "), nil
}

func (o *rpmOSTree) Done(state change.State) bool { return cmdline.Has(string(state), o.Args) }

func (o *rpmOSTree) guard(ctx context.Context, s *change.System) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	return fits(cmdline.Edit(line, o.Args))
}

func (o *rpmOSTree) Do(ctx context.Context, s *change.System) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	return o.lead(ctx, s, line, cmdline.Edit(line, o.Args))
}

// Restore makes a deployment with the arguments of before. Those that somebody has added in the meantime stay.
func (o *rpmOSTree) Restore(ctx context.Context, s *change.System, before change.State) error {
	line, err := o.line(ctx, s)
	if err != nil {
		return err
	}
	undone := cmdline.UndoLines([]string{line}, []string{string(before)}, 0, o.Args)
	if err := o.lead(ctx, s, line, undone[0]); err != nil {
		return err
	}
	after, err := o.line(ctx, s)
	o.settle(change.State(after), before)
	return err
}

// lead makes one line of another, with one new deployment, and checks it.
func (o *rpmOSTree) lead(ctx context.Context, s *change.System, from, to string) error {
	options := kargsOptions(strings.Fields(from), strings.Fields(to))
	if len(options) == 0 {
		return nil
	}
	if _, err := s.Program(ctx, append([]string{o.Program, "kargs"}, options...)...); err != nil {
		return err
	}
	line, err := o.line(ctx, s)
	if err == nil && line != strings.Join(strings.Fields(to), " ") {
		return fmt.Errorf("%s kargs was to lead to %q, and led to %q", o.Program, to, line)
	}
	return err
}

// kargsOptions are those of rpm-ostree kargs that make one list of words of another, in order. It
// deletes first, of two that are the same the first one, and then appends
// (kernel_arg_transaction_execute in rpm-ostree's daemon): so everything behind the first
// difference is taken off and put back.
func kargsOptions(from, to []string) []string {
	same := 0
	for same < len(from) && same < len(to) && from[same] == to[same] {
		same++
	}
	// A word that is to be deleted must not be found before.
	for moved := true; moved; {
		moved = false
		for _, word := range from[same:] {
			if at := slices.Index(from[:same], word); at >= 0 {
				same, moved = at, true
				break
			}
		}
	}
	options := lists.Map(from[same:], func(word string) string { return "--delete=" + word })
	options = append(options, lists.Map(to[same:], func(word string) string { return "--append=" + word })...)
	return options
}
