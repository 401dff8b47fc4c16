package change_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

type written struct {
	m     *machine
	lines [][]byte
	head  []byte
}

func (w *written) all() []byte { return bytes.Join(w.lines, nil) }

func journal(t *testing.T) *written {
	t.Helper()
	w := &written{m: newMachine(t)}
	w.m.do(t, -1, w.m.prepare(w.m.steps()[:2]))
	data, err1 := os.ReadFile(w.m.journal)
	head, err2 := os.ReadFile(w.m.journal + ".head")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	w.lines, w.head = slices.Collect(bytes.Lines(data)), head
	return w
}

// becomes replaces the machine's journal and head; nil removes them.
func (m *machine) becomes(t *testing.T, journal, head []byte) {
	t.Helper()
	for path, data := range map[string][]byte{m.journal: journal, m.journal + ".head": head} {
		err := os.Remove(path)
		if data != nil {
			err = os.WriteFile(path, data, 0o600)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// The head does not count the cut line yet.
func TestATornLastLineIsDropped(t *testing.T) {
	t.Parallel()
	w := journal(t)
	whole := bytes.Join(w.lines[:3], nil)
	for cut := range w.lines[3] {
		w.m.becomes(t, append(bytes.Clone(whole), w.lines[3][:cut]...), change.HeadOf(whole, change.BasicKinds()))
		j, err := change.Open(w.m.journal, change.BasicKinds())
		if err != nil {
			t.Fatalf("cut after %d bytes: %v", cut, err)
		}
		entries := j.Entries()
		if len(entries) != 2 || !entries[0].Done || entries[1].Done {
			t.Errorf("cut after %d bytes: entries %+v", cut, entries)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if now, err := os.ReadFile(w.m.journal); err != nil || !bytes.Equal(now, whole) {
			t.Errorf("cut after %d bytes: the rest was not removed (%v)", cut, err)
		}
	}
}

// Damage is reported, or nothing is lost.
func TestNoDamageOfAJournalIsSilent(t *testing.T) {
	t.Parallel()
	w := journal(t)
	all := w.all()
	want, damage, err := change.Replay(all, w.head, change.BasicKinds())
	if err != nil || damage != nil || len(want) != 2 {
		t.Fatalf("the whole journal: %q, %v, %v", want, damage, err)
	}
	try := func(what string, at int, data, head []byte) {
		got, damage, err := change.Replay(data, head, change.BasicKinds())
		if damage == nil && err == nil && !slices.Equal(got, want) {
			t.Errorf("%s at %d: silently %q", what, at, got)
		}
		if (bytes.HasPrefix(all, data) && len(data) < len(all) || head == nil) && damage == nil {
			t.Errorf("%s at %d: no damage, %v", what, at, err)
		}
	}
	for at := range all {
		try("cut", at, all[:at], w.head)
		for _, flip := range []byte{0x01, 0x20, 0xff} {
			changed := bytes.Clone(all)
			changed[at] ^= flip
			try("changed", at, changed, w.head)
		}
	}
	for at := range w.head {
		try("head cut", at, all, w.head[:at])
		changed := bytes.Clone(w.head)
		changed[at] ^= 0x20
		try("head changed", at, all, changed)
	}
	for at := range w.lines {
		try("line left out", at, bytes.Join(slices.Delete(slices.Clone(w.lines), at, at+1), nil), w.head)
		try("line doubled", at, bytes.Join(slices.Insert(slices.Clone(w.lines), at, w.lines[at]), nil), w.head)
		swapped := slices.Clone(w.lines)
		swapped[at], swapped[0] = swapped[0], swapped[at]
		try("lines exchanged", at, bytes.Join(swapped, nil), w.head)
	}
	try("head removed", 0, all, nil)
}

func TestADamagedJournalIsRefusedAndSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(*written) (journal, head []byte)
		want   []string
	}{
		"a byte of the first line": {func(w *written) ([]byte, []byte) {
			w.lines[0] = bytes.Replace(w.lines[0], []byte("quiet"), []byte("quuet"), 1)
			w.lines[0][20] ^= 1
			return w.all(), w.head
		}, []string{"journal is damaged: line 1 is missing or damaged",
			"can still be undone: 1\n  file /etc/new",
			"changes that the missing lines recorded\n  file /etc/default/grub\n",
			"rackless rollback --what-is-known"}},
		"a line that was changed with its checksum": {func(w *written) ([]byte, []byte) {
			text := bytes.Replace(w.lines[0][len("01234567 "):], []byte(`"time":"2`), []byte(`"time":"1`), 1)
			w.lines[0] = fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE(bytes.TrimSuffix(text, []byte("\n"))), text)
			return w.all(), w.head
		}, []string{"the lines before line 2 are not those that were written", "undone: 2"}},
		"the end": {func(w *written) ([]byte, []byte) { return bytes.Join(w.lines[:2], nil), w.head },
			[]string{"lines 3 to 4 are missing or damaged",
				"can still be undone: 1\n  file /etc/default/grub"}},
		"half of the last line": {func(w *written) ([]byte, []byte) {
			w.lines[3] = w.lines[3][:30]
			return w.all(), w.head
		}, []string{"line 4 is missing or damaged", "can still be undone: 2"}},
		"an empty journal": {func(w *written) ([]byte, []byte) {
			return []byte{}, w.head
		}, []string{"lines 1 to 4 are"}},
		"a removed journal": {func(w *written) ([]byte, []byte) { return nil, w.head }, []string{"lines 1 to 4 are"}},
		"a removed head": {func(w *written) ([]byte, []byte) { return w.all(), nil },
			[]string{"journal.head is missing: lines after line 4 may be, too", "undone: 2"}},
		"a head of another journal": {func(w *written) ([]byte, []byte) {
			return w.all(), journal(t).head
		}, []string{"its lines are not those that", "journal.head tells of"}},
		"a line that does not belong to it": {func(w *written) ([]byte, []byte) {
			return append(w.lines[0], append([]byte("x\n"), bytes.Join(w.lines[1:], nil)...)...), w.head
		}, []string{"what follows line 1 is no line of it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := journal(t)
			data, head := c.damage(w)
			w.m.becomes(t, data, head)
			before := w.m.snapshot(t)
			_, err := change.Open(w.m.journal, change.BasicKinds())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v\nwant %q", err, want)
				}
			}
			_, again := change.ReadJournal(w.m.journal, change.BasicKinds())
			if again == nil || again.Error() != err.Error() {
				t.Errorf("read without the lock: %v", again)
			}
			if now, _ := os.ReadFile(w.m.journal); !bytes.Equal(now, data) {
				t.Error("the damaged journal was changed")
			}
			if diff := cmp.Diff(before, w.m.snapshot(t)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The journal reports the loss to its end, also if the process dies in between.
func TestWhatADamagedJournalKnowsIsTakenBack(t *testing.T) {
	t.Parallel()
	w := journal(t)
	before := newMachine(t).snapshot(t)
	w.m.becomes(t, bytes.Join(w.lines[2:], nil), w.head)
	for range 2 {
		j, err := change.OpenKnown(w.m.journal, change.BasicKinds())
		if err != nil || len(j.Entries()) != 1 || !strings.Contains(j.Gap(), "lines 1 to 2 are missing or damaged") {
			t.Fatalf("%v", err)
		}
		change.Abandon(j)
		if _, err := change.Open(w.m.journal, change.BasicKinds()); !isDamaged(err) {
			t.Fatalf("prepare goes on: %v", err)
		}
	}
	j, err := change.OpenKnown(w.m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(rollback(&change.System{Root: w.m.root}, j), j.Close()); err != nil {
		t.Fatal(err)
	}
	now := w.m.snapshot(t)
	now["/etc/default/grub"] = before["/etc/default/grub"] // changed by the lost lines
	if diff := cmp.Diff(before, now); diff != "" {
		t.Error(diff)
	}
	kept, err := filepath.Glob(w.m.journal + "*")
	if err != nil || len(kept) != 1 || !strings.Contains(kept[0], "journal.damaged-") {
		t.Errorf("kept: %q, %v", kept, err)
	}
}

// Its earlier state is recorded again.
func TestAStepThatWasBegunAgainIsNotLost(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	for _, want := range []string{"64", "128"} {
		m.do(t, -1, m.prepare([]change.Step{{Op: &change.Value{Path: "/sys/nr_hugepages", Want: want}, What: "pages"}}))
	}
	data, err := os.ReadFile(m.journal)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(data, []byte("\n"))
	known, damage, err := change.Replay(rest, change.HeadOf(data, change.BasicKinds()), change.BasicKinds())
	if diff := cmp.Diff([]string{"value /sys/nr_hugepages 3"}, known); err != nil || diff != "" || damage == nil ||
		len(damage.Lost) > 0 {
		t.Errorf("%v %+v (-want +got):\n%s", err, damage, diff)
	}
}

func isDamaged(err error) bool {
	_, ok := errors.AsType[*change.DamagedError](err)
	return ok
}

// journal-v1 was written by the version that had no line numbers.
func TestAJournalOfTheVersionBeforeIsGoneOnWithAndTakenBack(t *testing.T) {
	t.Parallel()
	old, err := os.ReadFile("testdata/journal-v1")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	before := m.snapshot(t)
	s := m.steps()
	steps := []change.Step{s[1], s[2], s[5]}
	m.do(t, -1, m.prepare(steps))
	m.becomes(t, old[:len(old)-10], nil)
	m.do(t, -1, m.prepare(append(steps, s[3])))
	data, err := os.ReadFile(m.journal)
	if err != nil {
		t.Fatal(err)
	}
	m.becomes(t, data[len("81323d23 "):], change.HeadOf(data, change.BasicKinds()))
	if _, err := change.Open(m.journal, change.BasicKinds()); !isDamaged(err) {
		t.Errorf("an old line that is damaged: %v", err)
	}
	m.becomes(t, data, change.HeadOf(data, change.BasicKinds()))
	m.do(t, -1, rollback)
	if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAnOpThatIsNotKnownIsNamed(t *testing.T) {
	t.Parallel()
	w := journal(t)
	_, err := change.Open(w.m.journal, change.Kinds{})
	if err == nil || !strings.Contains(err.Error(), `ops of kind "file" are not known to this version`) {
		t.Errorf("error %v", err)
	}
	if now, err := os.ReadFile(w.m.journal); err != nil || !bytes.Equal(now, w.all()) {
		t.Errorf("the journal was changed: %v", err)
	}
}

func TestReadingAJournalLocksNothing(t *testing.T) {
	t.Parallel()
	w := journal(t)
	j, err := change.Open(w.m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	entries, err := change.ReadJournal(w.m.journal, change.BasicKinds())
	if err != nil || len(entries) != 2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if entries, err := change.ReadJournal(filepath.Join(t.TempDir(), "none"), nil); err != nil || entries != nil {
		t.Errorf("without a journal: %v, %v", entries, err)
	}
}

// The next line must not be appended to half a line from a full disk.
func TestALineThatCouldNotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	data, err := os.ReadFile(m.journal)
	if err != nil {
		t.Fatal(err)
	}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	change.BreakWrites(j)
	if err := rollback(&change.System{Root: m.root}, j); err == nil {
		t.Error("nothing can be written, and it is no error")
	}
	change.Abandon(j)
	if now, err := os.ReadFile(m.journal); err != nil || !bytes.Equal(now, data) {
		t.Errorf("the journal was changed: %v", err)
	}
}

func FuzzJournal(f *testing.F) {
	old, err := os.ReadFile("testdata/journal-v1")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(""), []byte(""))
	f.Add(old, change.HeadOf(old, change.BasicKinds()))
	f.Add([]byte("00000000 {}\n"), []byte("35ad6e2c {\"event\":\"begin\"}\n"))
	f.Fuzz(func(t *testing.T, data, head []byte) {
		known, damage, err := change.Replay(data, head, change.BasicKinds())
		if damage != nil && (len(damage.Gaps) == 0 || len(damage.Known) != len(known) || damage.Error() == "") {
			t.Errorf("damage %+v, known %q", damage, known)
		}
		if err != nil && damage != nil {
			t.Errorf("both %v and %v", damage, err)
		}
	})
}
