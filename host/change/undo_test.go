package change_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

func (m *machine) byHand(t *testing.T) {
	t.Helper()
	for path, text := range map[string]string{
		"etc/default/grub":          "GRUB_CMDLINE_LINUX=debug\n",
		"etc/new/deep/unit.service": "[Unit]\n# mine\n",
		"etc/old.conf":              "back again\n",
		"sys/nr_hugepages":          "100\n",
	} {
		if err := os.WriteFile(filepath.Join(m.root, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"etc/new/wants/unit.service", "etc/default/link"} {
		full := filepath.Join(m.root, path)
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("mine", full); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *machine) undo(t *testing.T) (left []change.Changed, statuses string, remain int) {
	t.Helper()
	m.do(t, -1, func(s *change.System, j *change.Journal) error {
		results, err := change.Rollback(t.Context(), s, j, nil)
		for _, r := range results {
			left = append(left, r.Changed...)
			statuses += string(r.Status) + " "
		}
		remain = len(j.Entries())
		return err
	})
	return left, statuses, remain
}

func TestRollbackLeavesWhatSomebodyHasChangedSince(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	m.byHand(t)
	want := m.snapshot(t)
	left, statuses, remain := m.undo(t)
	if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
		t.Errorf("rollback has overwritten it (-by hand +is):\n%s", diff)
	}
	if remain != 0 || statuses != "kept kept kept kept kept kept " {
		t.Errorf("steps are %q, and %d entries remain", statuses, remain)
	}
	sum := regexp.MustCompile(`SHA-256 [0-9a-f]{8}\.\.\.`)
	var said strings.Builder
	for _, c := range left {
		said.WriteString(sum.ReplaceAllString(c.String(), "SUM") + "\n")
	}
	const wantSaid = `/sys/nr_hugepages: found 100, rackless had set 64; left as it is
/etc/default/link: found a link to mine, rackless had set a link to elsewhere; left as it is
/etc/old.conf: found 11 bytes (mode 0644, SUM), rackless had set no file; left as it is
/etc/new/wants/unit.service: found a link to mine, rackless had set a link to ../deep/unit.service; left as it is
/etc/new/deep/unit.service: found 14 bytes (mode 0644, SUM), rackless had set 7 bytes (mode 0644, SUM); left as it is
/etc/default/grub: found 25 bytes (mode 0644, SUM), rackless had set 36 bytes (mode 0644, SUM); left as it is
`
	if diff := cmp.Diff(wantSaid, said.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.do(t, -1, m.prepare(m.steps()))
	if left, _, _ := m.undo(t); left != nil {
		t.Errorf("left: %v", left)
	}
	if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
		t.Errorf("prepared and rolled back again (-want +is):\n%s", diff)
	}
}

func TestAStepThatIsNoLongerWantedIsKeptIfSomebodyHasChangedIt(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	m.byHand(t)
	want := m.snapshot(t)
	m.do(t, -1, func(s *change.System, j *change.Journal) error {
		var told []string
		results, err := change.Make(t.Context(), s, j, nil, func(r change.Result) {
			told = append(told, string(r.Status)+" "+r.Subject)
		})
		if len(results) != 6 || len(told) != 6 || told[0] != "kept /sys/nr_hugepages" {
			t.Errorf("%d results, told %q", len(results), told)
		}
		return err
	})
	if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
		t.Errorf("(-by hand +is):\n%s", diff)
	}
}

// Rollback must leave values set by hand after prepare or rollback was killed at any point.
func TestSomebodyElsesChangesSurviveARollbackAfterAnyDeath(t *testing.T) {
	t.Parallel()
	first := newMachine(t)
	making, _ := first.do(t, -1, first.prepare(first.steps()))
	undoing, _ := first.do(t, -1, rollback)
	for point := range making + undoing {
		m := newMachine(t)
		if point < making {
			m.do(t, point, m.prepare(m.steps()))
		} else {
			m.do(t, -1, m.prepare(m.steps()))
			m.do(t, point-making, rollback)
		}
		for _, path := range []string{"etc/new/deep", "etc/new/wants"} {
			if err := os.MkdirAll(filepath.Join(m.root, path), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"etc/new/wants/unit.service", "etc/default/link"} {
			full := filepath.Join(m.root, path)
			_ = os.Remove(full)
			if err := os.Symlink("x", full); err != nil {
				t.Fatal(err)
			}
		}
		m.byHand(t)
		want := m.snapshot(t)
		for path := range want {
			if strings.HasSuffix(path, ".rackless-new") {
				delete(want, path)
			}
		}
		if _, _, remain := m.undo(t); remain != 0 {
			t.Errorf("point %d: %d entries remain", point, remain)
		}
		if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
			t.Errorf("died at point %d (-by hand +is):\n%s", point, diff)
		}
	}
}

// older converts a journal to rackless 0.9: no line numbers, checksums, boot IDs or read-back states.
func older(t *testing.T, data []byte) (old []byte) {
	t.Helper()
	for line := range bytes.Lines(data) {
		var record map[string]json.RawMessage
		if err := json.Unmarshal(line[len("01234567 "):], &record); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"line", "sum", "after", "boot"} {
			delete(record, key)
		}
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		old = fmt.Appendf(old, "%08x %s\n", crc32.ChecksumIEEE(text), text)
	}
	return old
}

func TestAJournalOfAnOlderVersionIsUndoneAndLeavesWhatSomebodyHasChanged(t *testing.T) {
	t.Parallel()
	for _, byHand := range []bool{false, true} {
		m := newMachine(t)
		want := m.snapshot(t)
		m.do(t, -1, m.prepare(m.steps()))
		data, err := os.ReadFile(m.journal)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(data, []byte(`"after":`)) {
			t.Fatalf("the journal has nothing that older ones lack:\n%s", data)
		}
		m.becomes(t, older(t, data), nil)
		if byHand {
			m.byHand(t)
			want = m.snapshot(t)
		}
		left, _, remain := m.undo(t)
		if remain != 0 || byHand != (len(left) == 6) {
			t.Errorf("by hand %v: %d entries remain, left %v", byHand, remain, left)
		}
		if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
			t.Errorf("by hand %v (-want +is):\n%s", byHand, diff)
		}
	}
}

// The known part of a damaged journal still has the read-back states.
func TestWhatWasMadeIsKnownAfterADamage(t *testing.T) {
	t.Parallel()
	w := journal(t)
	w.lines[0][40] ^= 1
	w.m.becomes(t, w.all(), w.head)
	j, err := change.OpenKnown(w.m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(w.m.journal)
	if err != nil || bytes.Count(data, []byte(`"after":`)) != 1 {
		t.Errorf("%v\n%s", err, data)
	}
}
