package boot

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
)

const (
	planText = "iommu=pt isolcpus=managed_irq,domain,2-29 nohz_full=2-29 hugepagesz=1G hugepages=0:16,1:16"
	planWhy  = "devices that the host keeps are not slowed down"
)

var planArgs = strings.Fields(planText)

func need(t *testing.T, program, debian string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
			if _, err := os.Stat(dir + program); err == nil {
				return dir + program
			}
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: not found: apt-get install %s", program, debian)
		}
		t.Skipf("%s: not found: apt-get install %s", program, debian)
	}
	return path
}

type machine struct {
	t testing.TB
	*change.System
	programs map[string]func(argv []string) (string, error)
	ran      []string
	journal  string
}

func newMachine(t testing.TB, files map[string]string) *machine {
	t.Helper()
	m := &machine{t: t, System: &change.System{Root: t.TempDir()}, programs: map[string]func([]string) (string,
		error){}, journal: filepath.Join(t.TempDir(), "journal")}
	m.Run = func(_ context.Context, argv []string) ([]byte, error) {
		m.ran = append(m.ran, strings.Join(argv, " "))
		p := m.programs[filepath.Base(argv[0])]
		if p == nil {
			return nil, fmt.Errorf("%s: no such program", argv[0])
		}
		out, err := p(argv)
		return []byte(out), err
	}
	for _, dir := range []string{"/run", "/proc", "/etc"} {
		if err := os.MkdirAll(m.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range files {
		m.write(path, text)
	}
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	full, mode := m.Path(path), fs.FileMode(0o644)
	if dir := filepath.Base(filepath.Dir(path)); dir == "bin" || dir == "sbin" {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) efi(name, text string) {
	data := "\x06\x00\x00\x00"
	for _, c := range text + "\x00" {
		data += string([]byte{byte(c), 0})
	}
	m.write("/sys/firmware/efi/efivars/"+name+"-"+loaderVariables, data)
}

func (m *machine) text(path string) string {
	m.t.Helper()
	b, err := m.ReadFile(path)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func (m *machine) tree() map[string]string {
	m.t.Helper()
	tree := map[string]string{}
	err := filepath.WalkDir(m.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text += " " + string(b)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			text += " -> " + to
		}
		tree[strings.TrimPrefix(path, m.Root)] = text
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return tree
}

func (m *machine) wantTree(when string, want map[string]string) {
	m.t.Helper()
	if diff := cmp.Diff(want, m.tree()); diff != "" {
		m.t.Fatalf("%s (-want +got):\n%s", when, diff)
	}
}

func (m *machine) steps() []change.Step {
	m.t.Helper()
	steps, err := Steps(m.System, planArgs, []string{planWhy})
	if err != nil {
		m.t.Fatal(err)
	}
	return steps
}

func (m *machine) withJournal(f func(*change.Journal) error) error {
	m.t.Helper()
	j, err := change.Open(m.journal, Kinds())
	if err != nil {
		m.t.Fatal(err)
	}
	defer j.Close()
	return f(j)
}

func (m *machine) make() ([]change.Result, error) {
	m.t.Helper()
	var results []change.Result
	err := m.withJournal(func(j *change.Journal) (err error) {
		results, err = change.Make(context.Background(), m.System, j, m.steps(), nil)
		return err
	})
	return results, err
}

func (m *machine) mustMake(want change.Status) {
	m.t.Helper()
	results, err := m.make()
	if err != nil {
		m.t.Fatal(err)
	}
	if len(results) != 1 || results[0].Status != want {
		m.t.Fatalf("results are %+v; want %s", results, want)
	}
}

func (m *machine) mustFail(want string) {
	m.t.Helper()
	if _, err := m.make(); err == nil || !strings.Contains(err.Error(), want) {
		m.t.Fatalf("error %v; want %q", err, want)
	}
}

func (m *machine) rollback() error {
	m.t.Helper()
	return m.withJournal(func(j *change.Journal) error {
		_, err := change.Rollback(context.Background(), m.System, j, nil)
		return err
	})
}

func (m *machine) mustRollback() {
	m.t.Helper()
	if err := m.rollback(); err != nil {
		m.t.Fatal(err)
	}
	if _, err := os.Stat(m.journal); err == nil {
		m.t.Fatal("there is a journal after the rollback")
	}
}

type powerCut struct{}

func (m *machine) until(n int, f func()) (cut bool) {
	m.Fault = func(string) {
		if n--; n < 0 {
			panic(powerCut{})
		}
	}
	defer func() {
		m.Fault = nil
		if r := recover(); r != nil {
			if _, ok := r.(powerCut); !ok {
				panic(r)
			}
			cut = true
		}
	}()
	f()
	return false
}

// everyCut interrupts prepare and rollback at every change. boot, if set, applies the effects of a reboot after the
// cut.
func everyCut(t *testing.T, machine func() *machine) {
	t.Helper()
	ref := machine()
	before := ref.tree()
	ref.mustMake(change.Boot)
	made := ref.tree()
	if cmp.Equal(before, made) {
		t.Fatal("nothing was made")
	}
	ref.mustMake(change.Boot)
	ref.wantTree("made twice", made)
	ref.mustRollback()
	ref.wantTree("rolled back", before)

	points := 0
	for n := 0; ; n++ {
		m := machine()
		if !m.until(n, func() { m.mustMake(change.Boot) }) {
			break
		}
		points++
		m.mustMake(change.Boot)
		m.wantTree(fmt.Sprintf("prepare, cut off at change %d, and made again", n), made)
		m.mustRollback()
		m.wantTree(fmt.Sprintf("the same, rolled back (%d)", n), before)

		m = machine()
		m.until(n, func() { m.mustMake(change.Boot) })
		m.mustRollback()
		m.wantTree(fmt.Sprintf("prepare, cut off at change %d, and rolled back", n), before)
	}
	for n := 0; ; n++ {
		m := machine()
		m.mustMake(change.Boot)
		if !m.until(n, m.mustRollback) {
			break
		}
		points++
		m.mustRollback()
		m.wantTree(fmt.Sprintf("rollback, cut off at change %d, and again", n), before)

		m = machine()
		m.mustMake(change.Boot)
		m.until(n, m.mustRollback)
		m.mustMake(change.Boot)
		m.wantTree(fmt.Sprintf("rollback, cut off at change %d, and made again", n), made)
		m.mustRollback()
		m.wantTree(fmt.Sprintf("the same, rolled back (%d)", n), before)
	}
	if points < 8 {
		t.Errorf("only %d points to cut off at", points)
	}
	t.Logf("%d points", points)
}
