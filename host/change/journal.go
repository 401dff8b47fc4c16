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

// The events of a journal.
const (
	eventBegin     = "begin"     // Before was read; the op is about to be made
	eventDone      = "done"      // it was made, and read back
	eventRestoring = "restoring" // it is about to be taken back
	eventRestored  = "restored"  // that was done, and read back
)

// eventGap is the first line of a journal that was made of what was left of a damaged one: What says what is lost.
const eventGap = "gap"

// A record is a line of the journal.
type record struct {
	Line    int             `json:"line,omitempty"` // its number; none in journals of rackless 0.9 and before
	Sum     string          `json:"sum,omitempty"`  // of all bytes before the line
	Event   string          `json:"event"`
	Time    time.Time       `json:"time"`
	Kind    string          `json:"kind,omitempty"`
	Subject string          `json:"subject,omitempty"`
	What    string          `json:"what,omitempty"`
	Op      json.RawMessage `json:"op,omitempty"`     // of begin
	Before  *State          `json:"before,omitempty"` // of begin
	After   *State          `json:"after,omitempty"`  // of done: what was read back; none of earlier versions
	Boot    string          `json:"boot,omitempty"`   // of done: the boot in which that was
}

// An Entry is an op that was begun and not restored yet: what there is to undo.
type Entry struct {
	Op     Op
	What   string
	Before State // what was there before it was first begun
	Done   bool  // the last time that it was begun it was finished, too

	made State  // what was read back when it was last finished; "" if that is not recorded
	boot string // in which that was
}

// Key tells ops apart.
func (e *Entry) key() opKey { return keyOf(e.Op) }

type opKey struct{ kind, subject string }

func keyOf(op Op) opKey { return opKey{op.Kind(), op.Subject()} }

// A Journal is the file in which changes are written before they are made. One process at a time has it open.
//
// Each line has its number and a checksum of all lines before it. A second file, the head, has the number of lines and
// the checksum of all of them: without it, a journal that lost its end would look like one that never had it.
type Journal struct {
	path    string
	file    *os.File // nil until the journal was read and is sound
	lock    *flock.Flock
	kinds   Kinds
	entries []*Entry // in the order in which they were first begun
	gap     string   // what an earlier damage has lost
	lines   int
	size    int64     // in bytes, of these lines
	sum     hash.Hash // of these bytes
	now     func() time.Time
}

func newJournal(path string, kinds Kinds) *Journal {
	return &Journal{path: path, kinds: kinds, lock: flock.New(path + ".lock"), sum: sha256.New(), now: time.Now}
}

// ErrBusy is returned by [Open] while another process has the journal.
var ErrBusy = errors.New("another rackless is changing this machine")

// Open opens the journal at a path, and makes it if need be, with its directory. What a power cut
// left of a last line is dropped: the change that it told of had not been begun. Any other damage
// is a [DamagedError], and nothing is changed.
func Open(path string, kinds Kinds) (*Journal, error) { return open(path, kinds, false) }

// OpenKnown is Open for a rollback of what a damaged journal still knows. The damaged file is kept beside the journal,
// which begins with what is lost, so that nobody forgets it: [Journal.Gap] returns it.
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
	// The head comes before the journal: one without the other is a journal that was removed.
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

// read reads the journal and its head. The head is read first: whoever reads without the lock may find more lines than
// it tells of, and never fewer.
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

// ReadJournal returns what there is to undo according to the journal at a path, without
// locking it: nothing where there is no file. With a [DamagedError] it is what is still known.
func ReadJournal(path string, kinds Kinds) ([]*Entry, error) {
	for again := false; ; again = true {
		j := newJournal(path, kinds)
		_, damage, err := j.read()
		if err == nil && damage != nil {
			if !again {
				continue // whoever has the lock may have removed one of the two files in between
			}
			err = damage
		}
		return j.entries, err
	}
}

// apply brings the entries up to date with a record.
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

// write appends a record and forces it to the disk, and the head after it. In the other order a power cut in between
// would leave a head with a line that is not there, which looks like a line that was lost. In this order it leaves a
// line that the head does not tell of: that is good, or it was cut off while it was written, and is dropped. Either way
// nothing has been done about it yet.
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
		// A rollback goes on: what is there of the line must not become the beginning of the next.
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

// done records that an op was made, and what is there since; nil if that was recorded when it was made, and it is in
// place in another boot.
func (j *Journal) done(s *System, op Op, after *State) error {
	return j.write(s, record{Event: eventDone, Kind: op.Kind(), Subject: op.Subject(), After: after, Boot: bootID(s)})
}

// event records an event of an op, with what is to be said of it.
func (j *Journal) event(s *System, event string, op Op, what string) error {
	return j.write(s, record{Event: event, Kind: op.Kind(), Subject: op.Subject(), What: what})
}

// Entries returns what there is to undo, in the order in which it was first begun.
func (j *Journal) Entries() []*Entry { return append([]*Entry(nil), j.entries...) }

// Unfinished returns, of entries, an op that was begun, or was being restored, and did not come to
// its end; nil where there is none.
func Unfinished(entries []*Entry) *Entry {
	return lists.Find(entries, func(e *Entry) bool { return !e.Done })
}

// Gap says what an earlier damage of the journal has lost; "" where there was none.
func (j *Journal) Gap() string { return j.gap }

// Close closes the journal. One that has nothing to undo any more is removed.
func (j *Journal) Close() error {
	var errs []error
	if j.file != nil {
		if len(j.entries) == 0 {
			// The head last: it says that nothing is left, so that a journal that is not there is none that was lost.
			for _, path := range []string{j.path, j.headPath()} {
				errs = append(errs, (&System{}).Remove(path))
			}
			// The lock's file goes while the lock is held. Who waits for it tries, and does not wait.
			if err := os.Remove(j.lock.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, j.file.Close())
	}
	return errors.Join(append(errs, j.lock.Close())...)
}
