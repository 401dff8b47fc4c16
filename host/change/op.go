package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/machine/topology"
)

// A State is text for the journal. Equal states have equal texts.
type State string

// Encode encodes a state as JSON. It takes an error so that a reader's results can be passed on directly.
func Encode(st any, err error) (State, error) {
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(st)
	return State(b), err
}

// Decode decodes a state from [Encode].
func Decode[T any](state State) (st T, err error) {
	if err = json.Unmarshal([]byte(state), &st); err != nil {
		err = fmt.Errorf("state %q: %w", string(state), err)
	}
	return st, err
}

// An Op is one change of the machine. Its exported fields, stored as JSON, must suffice to restore the earlier state,
// even for later versions of this program: fields may be added, but never change their meaning.
type Op interface {
	// Kind names the type of op in the journal.
	Kind() string
	// Subject identifies the thing to change. Two ops with one kind and subject change the same thing.
	Subject() string
	// Read changes nothing. A missing thing is a state, not an error.
	Read(ctx context.Context, s *System) (State, error)
	// Done reports whether a state is the wanted one.
	Done(State) bool
	// Do may be called again after it was interrupted at any point.
	Do(ctx context.Context, s *System) error
	// Restore restores a state that Read returned, after Do, or after Do or Restore was interrupted at any point. Read
	// must return that same state afterwards.
	Restore(ctx context.Context, s *System, before State) error
}

// A LateRestorer is an op that a rollback restores after all other ops.
type LateRestorer interface {
	// RestoredLate reports whether another op may make this change again at a boot. If the machine goes down during a
	// rollback, the journal must then still have this op.
	RestoredLate() bool
}

// A Restorer is an op whose restored state may differ from the earlier one.
type Restorer interface {
	Restored(before, now State) bool
}

// A Manual op has shell commands with the same effect. rackless shows them but never runs them, because they do not
// check the state before and after, and cannot be undone.
type Manual interface {
	// Shell returns lines for a root shell (POSIX). Lines that begin with # are for the reader.
	Shell() []string
}

// A RebootError is an error of Do that the next boot resolves. The step's status is Waiting.
type RebootError interface {
	error
	NeedsReboot() bool
}

// Kinds maps a kind to a function that returns an empty op of that kind.
type Kinds map[string]func() Op

func (k Kinds) decode(kind string, data json.RawMessage) (Op, error) {
	empty, ok := k[kind]
	if !ok {
		return nil, fmt.Errorf("ops of kind %q are not known to this version of rackless", kind)
	}
	op := empty()
	if err := json.Unmarshal(data, op); err != nil {
		return nil, fmt.Errorf("op of kind %q: %w", kind, err)
	}
	return op, nil
}

// A Step is an op with its description for people.
type Step struct {
	Op Op
	// What describes the step briefly.
	What string
	Why  string
	// Risk describes possible failures and side effects.
	Risk string
	// Boot is set for steps that take effect at the next boot. InForce reports whether they have.
	Boot    bool
	InForce func(ctx context.Context, s *System) (bool, error)
	// Ready, if set, reports whether the step can be made now: if not, an earlier step needs a reboot first.
	Ready func(ctx context.Context, s *System) (bool, error)
	// Guard, if set, runs before the step and in a survey, and may refuse the step.
	Guard func(ctx context.Context, s *System) error
	// Early is set for steps that need contiguous memory: they come before devices are handed over.
	Early bool
	// Before, if set, is called when the step is in effect but not in the journal, for example after a boot with new
	// kernel arguments. It returns the earlier state, or false if rackless did not cause the change.
	Before func(ctx context.Context, s *System) (State, bool, error)
}

// Commands returns nil if the op is not [Manual].
func (s *Step) Commands() []string {
	if op, ok := s.Op.(Manual); ok {
		return op.Shell()
	}
	return nil
}

// ext4Checkpoint is EXT4_IOC_CHECKPOINT of <linux/ext4.h>, _IOW('f', 43, __u32), since Linux 5.15. It writes everything
// in the journal to its final place.
const ext4Checkpoint = 0x4004662b

// Checkpoint writes the file system of dir to its final place: after a power cut, GRUB reads an ext4 without its
// journal, even if it was synced. It does nothing if the root is not that of this machine.
func (s *System) Checkpoint(dir string) (err error) {
	if s.Root != "/" {
		return nil
	}
	f, err := os.Open(s.Path(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: f.Name(), Err: err}
	}
	// Other file systems and older kernels return various errors.
	_ = unix.IoctlSetPointerInt(int(f.Fd()), ext4Checkpoint, 0)
	return nil
}

type seenKey struct{}

func withSeen(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, map[any]any{})
}

// Seen caches the result of look for the duration of a [Survey], because looking can take seconds. A guard that runs
// right before its step always looks again. Keys are like those of contexts. Errors are not cached.
func Seen[T any](ctx context.Context, key any, look func() (T, error)) (T, error) {
	seen, _ := ctx.Value(seenKey{}).(map[any]any)
	if known, ok := seen[key].(T); ok {
		return known, nil
	}
	now, err := look()
	if err == nil && seen != nil {
		seen[key] = now
	}
	return now, err
}

// FaultFrom returns the fault that a test of prepare or rollback requests in RACKLESS_FAULT, or nil for "":
//
//   - "kill:12" kills the process with SIGKILL before the 12th single change;
//   - "reset:12" resets the machine there without writing to its disks, as a power cut does;
//   - "count" prints the number of changes;
//   - "kill:12:begun" counts steps instead, and kills the process when the 12th is in the journal but not yet in its
//     head, before anything is changed;
//   - "kill:12:made" kills it when the 12th step is done but the journal does not say so yet;
//   - "kill:module vfio_pci:made" takes the step of this kind and subject, at any position.
//
// FaultFrom returns an error on any machine but the hosts of rackless emulate, because a reset destroys the work of all
// users of a machine.
func FaultFrom(s *System, text string) (func(what string), error) {
	if text == "" {
		return nil, nil
	}
	if vendor, err := s.ValueOr(vendorFile, ""); err != nil || vendor != topology.VendorEmulated {
		return nil, fmt.Errorf("RACKLESS_FAULT=%s kills prepare or resets the machine: it is for tests on hosts of "+
			"rackless emulate, and %s has %q here, not %q: unset it", text, vendorFile, vendor,
			topology.VendorEmulated)
	}
	switch how, _, _ := strings.Cut(text, ":"); how {
	case "kill", "reset", "count":
		return faultAt(text), nil
	}
	return nil, fmt.Errorf("RACKLESS_FAULT=%s: want kill:N, reset:N or count", text)
}

const vendorFile = "/sys/class/dmi/id/sys_vendor"

func faultAt(text string) func(what string) {
	how, rest, _ := strings.Cut(text, ":")
	where, phase := rest, ""
	// A subject may contain colons.
	if i := strings.LastIndex(rest, ":"); i >= 0 {
		where, phase = rest[:i], rest[i+1:]
	}
	at, err := strconv.Atoi(where)
	named := err != nil && where != ""
	n, before := 0, ""
	return func(what string) {
		record := what
		switch phase {
		case "begun":
			record = stepOf(before, "begin", "restoring")
		case "made":
			record = stepOf(what, "done", "restored")
		}
		before = what
		if record == "" {
			return
		}
		n++
		here := n == at
		if named {
			here = record == where
		}
		switch {
		case how == "count":
			fmt.Fprintf(os.Stderr, "change %d: %s\n", n, what)
		case !here:
		case how == "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case how == "reset":
			// Magic SysRq b resets at once, without sync or unmount.
			_ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
			select {}
		}
	}
}

func stepOf(what string, events ...string) string {
	for _, event := range events {
		if step, ok := strings.CutPrefix(what, "journal "+event+" "); ok {
			return step
		}
	}
	return ""
}
