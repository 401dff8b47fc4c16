package change

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gofrs/flock"

	"github.com/rackless/rackless/internal/atomicfile"
)

// The events of a journal.
const (
	eventBegin     = "begin"     // Before was read; the op is about to be made
	eventDone      = "done"      // it was made, and read back
	eventRestoring = "restoring" // it is about to be taken back
	eventRestored  = "restored"  // that was done, and read back
)

// A record is a line of the journal.
type record struct {
	Event   string          `json:"event"`
	Time    time.Time       `json:"time"`
	Kind    string          `json:"kind"`
	Subject string          `json:"subject"`
	What    string          `json:"what,omitempty"`
	Op      json.RawMessage `json:"op,omitempty"`     // of begin
	Before  *State          `json:"before,omitempty"` // of begin
	At      string          `json:"-"`                // "journal:12", for messages
}

// An Entry is an op that was begun and not restored yet: what there is to take back.
type Entry struct {
	Op     Op
	What   string
	Before State // what was there before it was first begun
	Done   bool  // the last time that it was begun it was finished, too
}

// Key tells ops apart.
func (e *Entry) key() opKey { return keyOf(e.Op) }

type opKey struct{ kind, subject string }

func keyOf(op Op) opKey { return opKey{op.Kind(), op.Subject()} }

// A Journal is the file in which changes are written before they are made. One process at a time has it open.
type Journal struct {
	path    string
	file    *os.File
	lock    *flock.Flock
	kinds   Kinds
	entries []*Entry // in the order in which they were first begun
	now     func() time.Time
}

// ErrBusy is returned by [Open] while another process has the journal.
var ErrBusy = errors.New("another rackless is changing this machine")

// Open opens the journal at a path, and makes it if need be, with its directory. What a power cut
// left of a last line is dropped: the change that it told of had not been begun. Any other damage
// is an error, and nothing is changed.
func Open(path string, kinds Kinds) (*Journal, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	j := &Journal{path: path, kinds: kinds, lock: flock.New(path + ".lock"), now: time.Now}
	held, err := j.lock.TryLock()
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fmt.Errorf("%s: %w; wait for it, or end it", path, ErrBusy)
	}
	if err := j.open(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Journal) open() error {
	f, err := os.OpenFile(j.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	j.file = f
	if err := atomicfile.SyncDir(filepath.Dir(j.path)); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole, err := j.replay(data)
	if err != nil {
		return err
	}
	if whole < len(data) {
		return errors.Join(f.Truncate(int64(whole)), f.Sync())
	}
	return nil
}

// ReadJournal returns what there is to take back according to the journal at a path, without
// locking it: nothing where there is no file.
func ReadJournal(path string, kinds Kinds) ([]*Entry, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j := &Journal{path: path, kinds: kinds}
	_, err = j.replay(data)
	return j.entries, err
}

// replay reads the lines, and returns how many bytes of them are whole.
func (j *Journal) replay(data []byte) (whole int, err error) {
	for n := 1; whole < len(data); n++ {
		line, _, ended := bytes.Cut(data[whole:], []byte("\n"))
		at := fmt.Sprintf("%s:%d", j.path, n)
		r, err := parseRecord(line)
		if last := whole+len(line)+1 >= len(data); last && (!ended || err != nil) {
			return whole, nil // cut off while it was written
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w; the journal is damaged: restore it from a backup, or undo by hand what it "+
				"tells of and remove it", at, err)
		}
		r.At = at
		if err := j.apply(r); err != nil {
			return 0, fmt.Errorf("%s: %w", at, err)
		}
		whole += len(line) + 1
	}
	return whole, nil
}

// A line is the checksum of its JSON in eight hexadecimal digits, a space, and the JSON.
func parseRecord(line []byte) (*record, error) {
	digits, text, ok := bytes.Cut(line, []byte(" "))
	sum, err := strconv.ParseUint(string(digits), 16, 32)
	if !ok || err != nil || len(digits) != 8 || crc32.ChecksumIEEE(text) != uint32(sum) {
		return nil, errors.New("wrong checksum")
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, err
	}
	return r, nil
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
				return errors.New("begin without the state of before")
			}
			e = &Entry{Before: *r.Before}
			j.entries = append(j.entries, e)
		}
		e.Op, e.What, e.Done = op, r.What, false
	case eventDone:
		if e == nil {
			return errors.New("done without begin")
		}
		e.Done = true
	case eventRestoring:
		if e == nil {
			return errors.New("restoring without begin")
		}
		e.Done = false
	case eventRestored:
		for i, have := range j.entries {
			if have.key() == key {
				j.entries = append(j.entries[:i:i], j.entries[i+1:]...)
				return nil
			}
		}
		return errors.New("restored without begin")
	default:
		return fmt.Errorf("event %q is not known to this version of rackless", r.Event)
	}
	return nil
}

func (j *Journal) find(key opKey) *Entry {
	for _, e := range j.entries {
		if e.key() == key {
			return e
		}
	}
	return nil
}

// write appends a record and forces it to the disk.
func (j *Journal) write(s *System, r record) error {
	r.Time = j.now().UTC()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	s.point("journal %s %s %s", r.Event, r.Kind, r.Subject)
	line := fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text)
	if _, err := j.file.Write(line); err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("%s: %w", j.path, err)
	}
	return j.apply(&r)
}

func (j *Journal) begin(s *System, step *Step, before State) error {
	op, err := json.Marshal(step.Op)
	if err != nil {
		return err
	}
	return j.write(s, record{Event: eventBegin, Kind: step.Op.Kind(), Subject: step.Op.Subject(), What: step.What,
		Op: op, Before: &before})
}

func (j *Journal) event(s *System, event string, op Op) error {
	return j.write(s, record{Event: event, Kind: op.Kind(), Subject: op.Subject()})
}

// Entries returns what there is to take back, in the order in which it was first begun.
func (j *Journal) Entries() []*Entry { return append([]*Entry(nil), j.entries...) }

// Unfinished returns, of entries, an op that was begun, or was being restored, and did not come to
// its end; nil where there is none.
func Unfinished(entries []*Entry) *Entry {
	for _, e := range entries {
		if !e.Done {
			return e
		}
	}
	return nil
}

// Close closes the journal. One that has nothing to take back any more is removed.
func (j *Journal) Close() error {
	var errs []error
	if j.file != nil {
		if len(j.entries) == 0 {
			if err := os.Remove(j.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		errs = append(errs, j.file.Close())
	}
	// The lock's file goes while the lock is held. Who waits for it tries, and does not wait.
	if j.lock.Locked() && len(j.entries) == 0 {
		if err := os.Remove(j.lock.Path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, j.lock.Close())...)
}
