package change_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/machinetest"
)

type machine struct {
	root    string
	journal string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	dir := machinetest.MemoryDir(t)
	m := &machine{root: filepath.Join(dir, "root"), journal: filepath.Join(dir, "var", "journal")}
	for path, text := range map[string]string{
		"etc/default/grub": "GRUB_CMDLINE_LINUX=quiet\n",
		"sys/nr_hugepages": "3\n",
		"sys/thp":          "always [madvise] never\n",
		"etc/old.conf":     "old\n",
	} {
		path = filepath.Join(m.root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("grub", filepath.Join(m.root, "etc/default/link")); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *machine) steps() []change.Step {
	step := func(op change.Op) change.Step {
		return change.Step{Op: op, What: op.Kind() + " " + op.Subject(), Why: "a test"}
	}
	return []change.Step{
		step(&change.File{Path: "/etc/default/grub", Data: []byte("GRUB_CMDLINE_LINUX=\"quiet iommu=pt\"\n"),
			Mode: 0o644}),
		step(&change.File{Path: "/etc/new/deep/unit.service", Data: []byte("[Unit]\n"), Mode: 0o644}),
		step(&change.Link{Path: "/etc/new/wants/unit.service", To: "../deep/unit.service"}),
		step(&change.File{Path: "/etc/old.conf", Absent: true}),
		step(&change.Link{Path: "/etc/default/link", To: "elsewhere"}),
		step(&change.Value{Path: "/sys/nr_hugepages", Want: "64"}),
	}
}

func (m *machine) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, m.root)
		switch {
		case d.IsDir():
			all[name] = info.Mode().String()
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			all[name] = "-> " + to
		default:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text := string(b)
			if strings.HasPrefix(name, "/sys/") {
				text = strings.TrimRight(text, "\n")
			}
			all[name] = info.Mode().String() + " " + text
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type died struct{ at string }

// do reports whether f was killed at the given point (-1 for never), and how many points it passed.
func (m *machine) do(t *testing.T, point int, f func(s *change.System, j *change.Journal) error) (points int,
	killed bool) {
	t.Helper()
	s := &change.System{Root: m.root}
	var j *change.Journal
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(died); !ok {
				panic(r)
			}
			killed = true
		}
		if j != nil {
			change.Abandon(j)
		}
	}()
	var err error
	if j, err = change.Open(m.journal, change.BasicKinds()); err != nil {
		t.Fatal(err)
	}
	s.Fault = func(what string) {
		if points == point {
			panic(died{what})
		}
		points++
	}
	if err := f(s, j); err != nil {
		t.Fatalf("at point %d: %v", point, err)
	}
	err = j.Close()
	j = nil
	if err != nil {
		t.Fatal(err)
	}
	return points, false
}

func (m *machine) prepare(steps []change.Step) func(s *change.System, j *change.Journal) error {
	return func(s *change.System, j *change.Journal) error {
		_, err := change.Make(context.Background(), s, j, steps, nil)
		return err
	}
}

func rollback(s *change.System, j *change.Journal) error {
	_, err := change.Rollback(context.Background(), s, j, nil)
	return err
}

func TestAProcessThatDiesAnywhereLeavesOneOfTwoGoodStates(t *testing.T) {
	t.Parallel()
	first := newMachine(t)
	before := first.snapshot(t)
	points, _ := first.do(t, -1, first.prepare(first.steps()))
	after := first.snapshot(t)
	back, _ := first.do(t, -1, rollback)
	if diff := cmp.Diff(before, first.snapshot(t)); diff != "" {
		t.Fatalf("rollback leaves a difference (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(first.journal); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing is left to take back, and the journal is still there: %v", err)
	}
	tried := 0
	for point := range points {
		for _, end := range []string{"prepare again", "rollback"} {
			m := newMachine(t)
			if _, killed := m.do(t, point, m.prepare(m.steps())); !killed {
				t.Fatalf("point %d of %d was not reached", point, points)
			}
			want := before
			if end == "rollback" {
				m.do(t, -1, rollback)
			} else {
				m.do(t, -1, m.prepare(m.steps()))
				want = after
			}
			if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
				t.Errorf("died at point %d, then %s (-want +got):\n%s", point, end, diff)
			}
			if end == "prepare again" {
				m.do(t, -1, rollback)
				if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
					t.Errorf("died at point %d, then prepare again, then rollback (-want +got):\n%s", point, diff)
				}
			}
			tried++
		}
	}
	for point := range back {
		for _, end := range []string{"prepare again", "rollback"} {
			m := newMachine(t)
			m.do(t, -1, m.prepare(m.steps()))
			if _, killed := m.do(t, point, rollback); !killed {
				t.Fatalf("point %d of %d of rollback was not reached", point, back)
			}
			want := before
			if end == "rollback" {
				m.do(t, -1, rollback)
			} else {
				m.do(t, -1, m.prepare(m.steps()))
				want = after
			}
			if diff := cmp.Diff(want, m.snapshot(t)); diff != "" {
				t.Errorf("died at point %d of rollback, then %s (-want +got):\n%s", point, end, diff)
			}
			tried++
		}
	}
	t.Logf("%d ways to die tried", tried)
}

func TestWhatIsThereAlreadyIsNotTouched(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	points, _ := m.do(t, -1, m.prepare(m.steps()))
	if points != 0 {
		t.Errorf("the second time %d changes were made", points)
	}
}

func TestAStepThatIsNoLongerWantedIsTakenBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	steps := m.steps()
	m.do(t, -1, m.prepare(steps[:2]))
	one := m.snapshot(t)
	m.do(t, -1, m.prepare(steps))
	m.do(t, -1, m.prepare(steps[:2]))
	if diff := cmp.Diff(one, m.snapshot(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnotherValueKeepsTheOriginal(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot(t)
	for _, want := range []string{"64", "128"} {
		m.do(t, -1, m.prepare([]change.Step{{Op: &change.Value{Path: "/sys/nr_hugepages", Want: want}, What: "pages"}}))
	}
	m.do(t, -1, rollback)
	if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAGuardRefusesBeforeAnythingIsChanged(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot(t)
	steps := m.steps()
	steps[5].Guard = func(context.Context, *change.System) error {
		return errors.New("64 pages leave the host nothing")
	}
	s := &change.System{Root: m.root}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	_, err = change.Make(t.Context(), s, j, steps, nil)
	if _, ok := errors.AsType[*change.RefusedError](err); !ok || !strings.Contains(err.Error(),
		"leave the host nothing") {
		t.Errorf("error %v, want the guard's", err)
	}
	if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAStepThatDoesNotTakeIsAnError(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot(t)
	s := &change.System{Root: m.root}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	steps := []change.Step{
		m.steps()[0],
		// simulate a kernel that ignores the write
		{Op: &change.Value{Path: "/sys/thp", Want: "never", Write: "always [madvise] never"}, What: "THP off"},
	}
	_, err = change.Make(t.Context(), s, j, steps, nil)
	if err == nil || !strings.Contains(err.Error(), `THP off: it was made, and reads back as "madvise"`) {
		t.Errorf("error %v", err)
	}
	if _, err := change.Rollback(t.Context(), s, j, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, m.snapshot(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAStepWaitsForTheReboot(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	booted := false
	steps := m.steps()[:3]
	steps[0].Boot = true
	steps[0].InForce = func(context.Context, *change.System) (bool, error) { return booted, nil }
	steps[1].Ready = steps[0].InForce
	status := func() string {
		s := &change.System{Root: m.root}
		j, err := change.Open(m.journal, change.BasicKinds())
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		results, err := change.Make(t.Context(), s, j, steps, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range results {
			all = append(all, string(r.Status))
		}
		return strings.Join(all, ", ")
	}
	if got := status(); got != "reboot, waiting, made" {
		t.Errorf("before the reboot: %s", got)
	}
	booted = true
	if got := status(); got != "in place, made, in place" {
		t.Errorf("after the reboot: %s", got)
	}
}

func TestRollbackSaysWhatRemainsAndGoesOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	if err := os.Remove(filepath.Join(m.root, "sys/nr_hugepages")); err != nil {
		t.Fatal(err)
	}
	s := &change.System{Root: m.root}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	_, err = change.Rollback(t.Context(), s, j, nil)
	want := `value /sys/nr_hugepages remains (value /sys/nr_hugepages): it was "3" before, and reads "\nmissing" now`
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if n := len(j.Entries()); n != 1 {
		t.Errorf("%d entries remain, want the one that failed", n)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.root, "sys/nr_hugepages"), []byte("64\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	m.do(t, -1, rollback)
}

func TestASecondProcessIsSentAway(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := change.Open(m.journal, change.BasicKinds()); !errors.Is(err, change.ErrBusy) {
		t.Errorf("error %v, want that another is at work", err)
	}
}

func TestDirectoriesWithSomethingElseInThemStay(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.do(t, -1, m.prepare(m.steps()))
	other := filepath.Join(m.root, "etc/new/other.conf")
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &change.System{Root: m.root}
	j, err := change.Open(m.journal, change.BasicKinds())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if _, err := change.Rollback(t.Context(), s, j, nil); err != nil {
		t.Errorf("a file of somebody else in a directory that was made: %v", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}

func ExampleSystem() {
	s := &change.System{Root: "/"}
	fmt.Println(s.Path("/sys/devices/system/cpu/isolated"))
	// Output: /sys/devices/system/cpu/isolated
}

type late struct{ change.Value }

func (l *late) Kind() string     { return "late" }
func (*late) RestoredLate() bool { return true }

func TestWhatABootBringsAboutAgainIsTakenBackLast(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	kinds := change.BasicKinds()
	kinds["late"] = func() change.Op { return &late{} }
	s := &change.System{Root: m.root}
	j, err := change.Open(m.journal, kinds)
	if err != nil {
		t.Fatal(err)
	}
	steps := []change.Step{
		{Op: &change.File{Path: "/etc/default/grub", Data: []byte("hugepages=64\n"), Mode: 0o644}, What: "arguments"},
		{Op: &late{change.Value{Path: "/sys/nr_hugepages", Want: "64"}}, What: "pages"},
		{Op: &change.Value{Path: "/sys/thp", Want: "never"}, What: "thp"},
	}
	if _, err := change.Make(t.Context(), s, j, steps, nil); err != nil {
		t.Fatal(err)
	}
	var order []string
	if _, err := change.Rollback(t.Context(), s, j, func(r change.Result) {
		if r.Status == change.Restored {
			order = append(order, r.What)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"thp", "arguments", "pages"}, order); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
