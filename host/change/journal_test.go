package change_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
)

// journal returns the journal of a machine with two things changed.
func journal(t *testing.T) (path string, data []byte) {
	t.Helper()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()[:2]))
	data, err := os.ReadFile(m.journal)
	if err != nil {
		t.Fatal(err)
	}
	return m.journal, data
}

func TestATornLastLineIsDropped(t *testing.T) {
	t.Parallel()
	path, data := journal(t)
	lines := bytes.SplitAfter(data, []byte("\n"))
	whole := bytes.Join(lines[:3], nil)
	for cut := range lines[3] {
		if err := os.WriteFile(path, append(bytes.Clone(whole), lines[3][:cut]...), 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := change.Open(path, change.BasicKinds())
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
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
			t.Errorf("cut after %d bytes: the rest was not removed (%v)", cut, err)
		}
	}
}

func TestADamagedJournalIsRefused(t *testing.T) {
	t.Parallel()
	path, data := journal(t)
	data[20] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := change.Open(path, change.BasicKinds())
	if err == nil || !strings.Contains(err.Error(), path+":1: wrong checksum") {
		t.Errorf("error %v", err)
	}
}

func TestAnOpThatIsNotKnownIsNamed(t *testing.T) {
	t.Parallel()
	path, _ := journal(t)
	_, err := change.Open(path, change.Kinds{})
	if err == nil || !strings.Contains(err.Error(), `ops of kind "file" are not known to this version`) {
		t.Errorf("error %v", err)
	}
}

func TestReadingAJournalLocksNothing(t *testing.T) {
	t.Parallel()
	path, _ := journal(t)
	j, err := change.Open(path, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	entries, err := change.ReadJournal(path, change.BasicKinds())
	if err != nil || len(entries) != 2 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if entries, err := change.ReadJournal(filepath.Join(t.TempDir(), "none"), nil); err != nil || entries != nil {
		t.Errorf("without a journal: %v, %v", entries, err)
	}
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("00000000 {}\n"))
	f.Add([]byte("35ad6e2c {\"event\":\"begin\"}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := change.Open(path, change.BasicKinds())
		if err != nil {
			return
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
}
