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

// A State is what an op found: text that only the kind of op understands, the same for the same
// state. It is journalled.
type State string

// Encode writes a state that has several parts as JSON. It takes the error with which the state was
// read, so that the results of a function that reads one can be handed on.
func Encode(st any, err error) (State, error) {
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(st)
	return State(b), err
}

// Decode reads what [Encode] wrote.
func Decode[T any](state State) (st T, err error) {
	if err = json.Unmarshal([]byte(state), &st); err != nil {
		err = fmt.Errorf("state %q: %w", string(state), err)
	}
	return st, err
}

// An Op is one thing of the machine that is to be different. Its exported fields are journalled as
// JSON; together with the kind they must be enough to restore what was, by a later version of this
// program as well: fields are added, never changed in meaning.
type Op interface {
	// Kind names the type of op in the journal: "file".
	Kind() string
	// Subject is the thing: a path, a PCI address. Two ops of one kind and subject are about the same thing.
	Subject() string
	// Read returns what is there now. It changes nothing. A thing that is not there is a state, not an error.
	Read(ctx context.Context, s *System) (State, error)
	// Done reports whether a state is what the op wants.
	Done(State) bool
	// Do makes it so. It may be called again after it was cut off anywhere.
	Do(ctx context.Context, s *System) error
	// Restore brings a state back that Read returned, after Do, or after Do or Restore was cut off
	// anywhere. Read returns that very state afterwards.
	Restore(ctx context.Context, s *System, before State) error
}

// A LateRestorer is an op that a rollback restores after all that are none.
type LateRestorer interface {
	// RestoredLate reports that something else of the preparation may bring the thing about again
	// at a boot, until it is undone itself: if the machine goes down in the middle of a
	// rollback, the journal has to know still that it is to be undone.
	RestoredLate() bool
}

// A Restorer is an op for which states that differ can mean the same after Restore. Of other ops
// the states are compared.
type Restorer interface {
	Restored(before, now State) bool
}

// A Manual op knows the commands by which a person would do the same. They are shown, and never run by rackless: it
// undoes what it does, and looks before and after, which they do not.
type Manual interface {
	// Shell returns lines for a POSIX shell of root. Lines that begin with # are for the reader.
	Shell() []string
}

// A RebootError is an error of Do that the next boot mends: what Do could not find the kernel sets
// aside then. The step counts as one that waits for it.
type RebootError interface {
	error
	NeedsReboot() bool
}

// Kinds makes empty ops by kind, to decode journals with.
type Kinds map[string]func() Op

// decode returns the op that a journal tells of.
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

// A Step is an op with what people want to know of it.
type Step struct {
	Op Op
	// What is what is done, in a few words: "hand 0000:41:00.0 to vfio-pci".
	What string
	Why  string
	// Risk is what may go wrong or who may notice; empty where nobody does.
	Risk string
	// Boot is set for steps that take effect when the machine is started again. InForce reports
	// whether that has happened.
	Boot    bool
	InForce func(ctx context.Context, s *System) (bool, error)
	// Ready, if not nil, reports whether the step can be made now; where it cannot, a reboot that a
	// step before it needs comes first.
	Ready func(ctx context.Context, s *System) (bool, error)
	// Guard, if not nil, is asked right before the step is made and whenever it would be: an error refuses it.
	Guard func(ctx context.Context, s *System) error
	// Early is set for steps that need memory in one piece: they come before devices are handed over.
	Early bool
	// Before, if not nil, is asked where the step is in place and the journal knows nothing of it:
	// something else of this preparation may have brought it about, as a boot with kernel arguments
	// does. It returns what was there before that, to be undone by a rollback; false where the
	// step is nobody's to undo.
	Before func(ctx context.Context, s *System) (State, bool, error)
}

// Commands returns the lines that a person would type for the step; nil if its op is not [Manual].
func (s *Step) Commands() []string {
	if op, ok := s.Op.(Manual); ok {
		return op.Shell()
	}
	return nil
}

// ext4Checkpoint is EXT4_IOC_CHECKPOINT of <linux/ext4.h>, _IOW('f', 43, __u32), since Linux 5.15:
// everything that is in the journal is written to its place.
const ext4Checkpoint = 0x4004662b

// Checkpoint has a directory's file system written as who does not read its journal sees it. Boot
// loaders are such: after a power cut GRUB reads an ext4 as it was before what is only in the
// journal yet, although all of it was forced to the disk. Only ext4 can be asked for more than a
// sync. It does nothing where the root is not that of this machine.
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
	// Other file systems and older kernels do not know it, and say so in several ways.
	_ = unix.IoctlSetPointerInt(int(f.Fd()), ext4Checkpoint, 0)
	return nil
}

type seenKey struct{}

// withSeen returns a context for a stretch of work that changes nothing, in which [Seen] remembers.
func withSeen(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, map[any]any{})
}

// Seen returns what look returns. Guards that look at the machine, which can take seconds, do it by
// this: all guards that one [Survey] asks judge by one look, since a survey changes nothing. A
// guard that is asked right before its step always looks again. key says what is looked at; it is
// compared together with its type, as keys of contexts are. An error is not remembered.
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

// FaultFrom makes the faults that tests of prepare and rollback ask for by RACKLESS_FAULT, so that
// what is tested is this program and not one built for tests: "kill:12" ends the process with
// SIGKILL before the 12th single change, "reset:12" resets the machine there without writing
// anything to its disks, which is what a power cut does, and "count" prints how many changes there
// are. It is nil for "". It is an error on any machine but the hosts that rackless emulate makes: a
// reset costs the work of everybody on a machine.
//
// "kill:12:begun" counts steps in place of changes, and ends the process where the 12th is in the
// journal, whose head does not tell of it yet, and nothing of it has been made; "kill:12:made"
// where all of it has been made, and the journal does not say so yet. "kill:module vfio_pci:made"
// takes the step of this kind and subject, wherever it comes.
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

// vendorFile is where a machine says who made it.
const vendorFile = "/sys/class/dmi/id/sys_vendor"

func faultAt(text string) func(what string) {
	how, rest, _ := strings.Cut(text, ":")
	where, phase := rest, ""
	// A subject may have colons in it, a number has none.
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
			// Magic SysRq b: at once, without sync or unmount.
			_ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0)
			select {}
		}
	}
}

// stepOf returns kind and subject of the step that a change tells the journal of, if it is one of
// these events; "" otherwise.
func stepOf(what string, events ...string) string {
	for _, event := range events {
		if step, ok := strings.CutPrefix(what, "journal "+event+" "); ok {
			return step
		}
	}
	return ""
}
