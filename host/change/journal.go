package change

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/internal/atomicfile"
	"github.com/rackless/rackless/internal/lists"
)

const (
	eventBegin     = "begin"
	eventDone      = "done"
	eventRestoring = "restoring" // Restore comes next
	eventRestored  = "restored"
)

// eventGap is the first line of a journal that was rebuilt from a damaged one. Its What describes the loss.
const eventGap = "gap"

type record struct {
	Line    int             `json:"line,omitempty"` // 0 in journals of rackless 0.9 and before
	Sum     string          `json:"sum,omitempty"`  // of all bytes before the line
	Event   string          `json:"event"`
	Time    time.Time       `json:"time"`
	Kind    string          `json:"kind,omitempty"`
	Subject string          `json:"subject,omitempty"`
	What    string          `json:"what,omitempty"`
	Op      json.RawMessage `json:"op,omitempty"`     // of begin
	Before  *State          `json:"before,omitempty"` // of begin
	After   *State          `json:"after,omitempty"`  // of done: the state read back; nil from old versions
	Boot    string          `json:"boot,omitempty"`   // of done
}

// An Entry is an op to undo: it was begun and is not restored yet.
type Entry struct {
	Op     Op
	What   string
	Before State
	Done   bool

	made State // state read back when it was last finished, or ""
	boot string
}

func (e *Entry) key() opKey { return keyOf(e.Op) }

type opKey struct{ kind, subject string }

func keyOf(op Op) opKey { return opKey{op.Kind(), op.Subject()} }

// A Journal records changes before they are made. Only one process at a time can open it. Without the head, a second
// file with the number of lines and their checksum, a lost end of the journal would go unnoticed.
type Journal struct {
	path    string
	file    *os.File // nil until the journal was read and found undamaged
	lock    *flock.Flock
	kinds   Kinds
	entries []*Entry
	gap     string
	lines   int
	size    int64 // of the lines, in bytes
	sum     hash.Hash
	now     func() time.Time
}

func newJournal(path string, kinds Kinds) *Journal {
	return &Journal{path: path, kinds: kinds, lock: flock.New(path + ".lock"), sum: sha256.New(), now: time.Now}
}

// ErrBusy is returned by [Open] if another process has the journal open.
var ErrBusy = errors.New("another rackless is changing this machine")

// Open creates the journal if necessary. It drops a last line that a power cut truncated, because that line's change
// had not begun; for any other damage it returns a [DamagedError] and changes nothing.
func Open(path string, kinds Kinds) (*Journal, error) { return open(path, kinds, false) }

// OpenKnown also opens a damaged journal, for a rollback of its known steps. It keeps the damaged file beside the new
// journal.
func OpenKnown(path string, kinds Kinds) (*Journal, error) { return open(path, kinds, true) }

func open(path string, kinds Kinds, damaged bool) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	j := newJournal(path, kinds)
	held, err := j.lock.TryLock()
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fmt.Errorf("%s: %w; wait for it, or end it", path, ErrBusy)
	}
	if err := j.open(damaged); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Journal) open(damaged bool) error {
	data, damage, err := j.read()
	if err != nil {
		return err
	}
	if damage != nil && !damaged {
		return damage
	}
	if damage != nil && damage.fresh {
		if data, err = j.salvage(data, damage); err != nil {
			return err
		}
	}
	// The head comes first: a head without a journal means that the journal was removed.
	if err := j.writeHead(&System{}); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if j.size < int64(len(data)) {
		err = errors.Join(f.Truncate(j.size), f.Sync())
	}
	if err = errors.Join(err, atomicfile.SyncDir(filepath.Dir(j.path))); err != nil {
		return errors.Join(err, f.Close())
	}
	j.file = f
	return nil
}

// read reads the head first, so a reader without the lock may find more lines than the head counts, but never fewer.
func (j *Journal) read() ([]byte, *DamagedError, error) {
	text, err := os.ReadFile(j.headPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	data, err := os.ReadFile(j.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	damage, err := j.replay(data, text)
	return data, damage, err
}

// ReadJournal returns the entries without locking the journal, or nil if there is no file. If the error is a
// [DamagedError], they are those still known.
func ReadJournal(path string, kinds Kinds) ([]*Entry, error) {
	for again := false; ; again = true {
		j := newJournal(path, kinds)
		_, damage, err := j.read()
		if err == nil && damage != nil {
			if !again {
				continue // the process with the lock may have removed one of the two files
			}
			err = damage
		}
		return j.entries, err
	}
}

func (j *Journal) apply(r *record) error {
	key := opKey{r.Kind, r.Subject}
	e := j.find(key)
	switch r.Event {
	case eventBegin:
		op, err := j.kinds.decode(r.Kind, r.Op)
		if err != nil {
			return err
		}
		if keyOf(op) != key {
			return fmt.Errorf("op of kind %q and subject %q is about %q", r.Kind, r.Subject, op.Subject())
		}
		if e == nil {
			if r.Before == nil {
				return fmt.Errorf("begin %w", errNoBefore)
			}
			e = &Entry{Before: *r.Before}
			j.entries = append(j.entries, e)
		}
		e.Op, e.What, e.Done = op, r.What, false
	case eventDone:
		if e == nil {
			return fmt.Errorf("done %w", errNoBegin)
		}
		e.Done, e.boot = true, r.Boot
		if r.After != nil {
			e.made = *r.After
		}
	case eventRestoring:
		if e == nil {
			return fmt.Errorf("restoring %w", errNoBegin)
		}
		e.Done = false
	case eventRestored:
		for i, have := range j.entries {
			if have.key() == key {
				j.entries = append(j.entries[:i:i], j.entries[i+1:]...)
				return nil
			}
		}
		return fmt.Errorf("restored %w", errNoBegin)
	case eventGap:
		j.gap = r.What
	default:
		return fmt.Errorf("event %q is not known to this version of rackless", r.Event)
	}
	return nil
}

func (j *Journal) find(key opKey) *Entry {
	return lists.Find(j.entries, func(e *Entry) bool { return e.key() == key })
}

// write syncs the record before the head. A power cut in between leaves a line that the head does not count, which read
// accepts, or drops if it was cut off; in the other order it would look like a lost line.
func (j *Journal) write(s *System, r record) error {
	line, err := j.seal(&r)
	if err != nil {
		return err
	}
	s.point("journal %s %s %s", r.Event, r.Kind, r.Subject)
	if _, err = j.file.Write(line); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		// A rollback continues after this error, so a partial line must not become the beginning of the next.
		return fmt.Errorf("%s: %w", j.path, errors.Join(err, j.file.Truncate(j.size)))
	}
	j.count(line)
	if err := j.apply(&r); err != nil {
		return err
	}
	return j.writeHead(s)
}

func (j *Journal) begin(s *System, step *Step, before State) error {
	r, err := beginOf(step, before)
	if err != nil {
		return err
	}
	return j.write(s, r)
}

func beginOf(step *Step, before State) (record, error) {
	op, err := json.Marshal(step.Op)
	return record{Event: eventBegin, Kind: step.Op.Kind(), Subject: step.Op.Subject(), What: step.What, Op: op,
		Before: &before}, err
}

// done has nil for after if the state was recorded before and the op is still in place after another boot.
func (j *Journal) done(s *System, op Op, after *State) error {
	return j.write(s, record{Event: eventDone, Kind: op.Kind(), Subject: op.Subject(), After: after, Boot: bootID(s)})
}

func (j *Journal) event(s *System, event string, op Op, what string) error {
	return j.write(s, record{Event: event, Kind: op.Kind(), Subject: op.Subject(), What: what})
}

// Entries returns the ops to undo, in the order of their first begin.
func (j *Journal) Entries() []*Entry { return append([]*Entry(nil), j.entries...) }

// Unfinished returns an interrupted entry, or nil.
func Unfinished(entries []*Entry) *Entry {
	return lists.Find(entries, func(e *Entry) bool { return !e.Done })
}

// Gap describes an earlier loss, or returns "".
func (j *Journal) Gap() string { return j.gap }

// Close removes the journal if there is nothing left to undo.
func (j *Journal) Close() error {
	var errs []error
	if j.file != nil {
		if len(j.entries) == 0 {
			// The head goes last: its Left is 0, so that the removed journal does not count as lost.
			for _, path := range []string{j.path, j.headPath()} {
				errs = append(errs, (&System{}).Remove(path))
			}
			// Other processes only try to lock, so none waits for the removed file.
			if err := os.Remove(j.lock.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, j.file.Close())
	}
	return errors.Join(append(errs, j.lock.Close())...)
}
