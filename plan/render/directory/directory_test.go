package directory

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/plan/render"
)

func planFiles(word string) []render.Artifact {
	return WithSums([]render.Artifact{
		{Path: "README.md", Mode: 0o644, Data: []byte("# " + word + "\n")},
		{Path: planFile, Mode: 0o644, Data: fmt.Appendf(nil, "{\"schema\": \"rackless/plan/v1\", \"lab\": %q}\n",
			word)},
		{Path: "kernel/grub.sh", Mode: 0o755, Data: []byte("#!/bin/sh\n# " + word + "\n")},
		{Path: "guests/vm00/network", Mode: 0o600, Data: []byte(word + "\n")},
	}, "rackless: plan of lab "+word)
}

func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if e.IsDir() {
			name += "/"
		}
		all = append(all, fmt.Sprintf("%04o %s", info.Mode().Perm(), name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func word(t testing.TB, dir string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "guests/vm00/network"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func mustWrite(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestArtefactsAreWrittenWithTheirModesAndNothingIsLeftBeside(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := filepath.Join(base, "new parent", "plan")
	for _, w := range []string{"first", "second", "second"} {
		if err := Write(dir, planFiles(w)); err != nil {
			t.Fatal(err)
		}
		if got := word(t, dir); got != w {
			t.Errorf("the plan is %q, want %q", got, w)
		}
		want := []string{"0755 new parent/", "0755 new parent/plan/", "0644 new parent/plan/README.md",
			"0644 new parent/plan/SHA256SUMS",
			"0755 new parent/plan/guests/", "0755 new parent/plan/guests/vm00/",
			"0600 new parent/plan/guests/vm00/network",
			"0755 new parent/plan/kernel/", "0755 new parent/plan/kernel/grub.sh", "0644 new parent/plan/plan.json"}
		if diff := cmp.Diff(want, tree(t, base)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestFilesOfTheEarlierPlanAreGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plan")
	more := planFiles("first")
	more = WithSums(append(more[:len(more)-1], render.Artifact{Path: "domains/vm01.xml", Mode: 0o644}), "made")
	for _, files := range [][]render.Artifact{more, planFiles("second")} {
		if err := Write(dir, files); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "domains")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("domains: %v", err)
	}
}

func TestADirectoryKeepsItsMode(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "plan")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Write(dir, planFiles("first")); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("got %v, %v", info.Mode(), err)
		}
	}
}

func TestWhatIsNoUntouchedPlanIsNotReplaced(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   string
	}{
		{"an untouched plan may be", func(*testing.T, string) {}, ""},
		{"so may one of which a file is gone", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "README.md"))
		}, ""},
		{"and one with an empty directory more", func(t *testing.T, dir string) {
			os.Mkdir(filepath.Join(dir, "empty"), 0o755)
		}, ""},
		{"a note", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, "notes.txt"), "mine")
		}, `"notes.txt" is not of the plan`},
		{"a repository", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, ".git", "HEAD"), "ref")
		}, `".git/HEAD" is not of the plan`},
		{"a name that cannot be printed", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, "a\x1b[2J"), "")
		}, `"a\x1b[2J" is not of the plan`},
		{"a changed file", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, "kernel/grub.sh"), "#!/bin/sh\n")
		}, `"kernel/grub.sh" has been changed`},
		{"a link in place of a file", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, "README.md"))
			if err := os.Symlink("plan.json", filepath.Join(dir, "README.md")); err != nil {
				t.Fatal(err)
			}
		}, `"README.md" is not of the plan`},
		{"no sums", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, sumsFile))
		}, "there is something else than a plan in it"},
		{"sums alone, which many directories have", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, planFile))
		}, "there is something else than a plan in it"},
		{"another schema", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, planFile), `{"schema": "rackless/plan/v2"}`)
		}, "something else than a plan"},
		{"no JSON", func(t *testing.T, dir string) {
			mustWrite(t, filepath.Join(dir, planFile), "schema: rackless/plan/v1")
		}, "something else than a plan"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir := filepath.Join(base, "plan")
			if err := Write(dir, planFiles("first")); err != nil {
				t.Fatal(err)
			}
			tt.change(t, dir)
			before := tree(t, base)
			err := Write(dir, planFiles("second"))
			if tt.want == "" {
				if err != nil || word(t, dir) != "second" {
					t.Errorf("got %v", err)
				}
				return
			}
			if _, refused := errors.AsType[*RefusedError](err); !refused || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if diff := cmp.Diff(before, tree(t, base)); diff != "" {
				t.Errorf("it has changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestWhatCannotBeADirectoryOfAPlan(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	mustWrite(t, filepath.Join(base, "file"), "text")
	mustWrite(t, filepath.Join(base, "full", "letter"), "text")
	if err := os.Symlink("nowhere", filepath.Join(base, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", ".", "/", "..", "./", filepath.Join(base, "file"),
		filepath.Join(base, "file", "below"), filepath.Join(base, "full"),
		filepath.Join(base, "dangling"), "/proc/plan"} {
		before := tree(t, base)
		if err := Write(path, planFiles("first")); err == nil {
			t.Errorf("%q was taken", path)
		}
		if diff := cmp.Diff(before, tree(t, base)); diff != "" {
			t.Errorf("%q has left something (-before +after):\n%s", path, diff)
		}
	}
}

func TestALinkStaysAndItsDirectoryIsFilled(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := os.Mkdir(filepath.Join(base, "there"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink("there", link); err != nil {
		t.Fatal(err)
	}
	for _, w := range []string{"first", "second"} {
		if err := Write(link, planFiles(w)); err != nil {
			t.Fatal(err)
		}
		if got := word(t, filepath.Join(base, "there")); got != w {
			t.Errorf("got %q, want %q", got, w)
		}
	}
	if to, err := os.Readlink(link); err != nil || to != "there" {
		t.Errorf("the link is %q, %v", to, err)
	}
}

func TestAFaultOnTheWayLeavesTheEarlierPlan(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]render.Artifact{
		"a path that leads out":          {Path: "../outside", Mode: 0o644},
		"an absolute path":               {Path: "/outside", Mode: 0o644},
		"a file in place of a directory": {Path: "README.md/below", Mode: 0o644},
		"no name":                        {Path: "", Mode: 0o644},
		"a name that is too long":        {Path: strings.Repeat("a", 300), Mode: 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir := filepath.Join(base, "plan")
			if err := Write(dir, planFiles("first")); err != nil {
				t.Fatal(err)
			}
			before := tree(t, base)
			if err := Write(dir, append(planFiles("second"), bad)); err == nil {
				t.Error("it was written")
			}
			if diff := cmp.Diff(before, tree(t, base)); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
			fresh := filepath.Join(base, "fresh")
			if err := Write(fresh, append(planFiles("second"), bad)); err == nil {
				t.Error("it was written")
			}
			if diff := cmp.Diff(before, tree(t, base)); diff != "" {
				t.Errorf("where there was none (-before +after):\n%s", diff)
			}
		})
	}
}

func twoDirectories(t *testing.T) (base, fresh, dir string) {
	t.Helper()
	base = t.TempDir()
	fresh, dir = filepath.Join(base, "work", "plan"), filepath.Join(base, "plan")
	mustWrite(t, filepath.Join(fresh, "guests/vm00/network"), "second\n")
	mustWrite(t, filepath.Join(dir, "guests/vm00/network"), "first\n")
	return base, fresh, dir
}

func TestWhereDirectoriesCannotChangePlacesTheyAreRenamed(t *testing.T) {
	t.Parallel()
	for _, errno := range []error{unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP} {
		base, fresh, dir := twoDirectories(t)
		swap := func(a, b string) error { return &os.LinkError{Op: "exchange", Old: a, New: b, Err: errno} }
		if err := putInPlace(fresh, dir, swap); err != nil {
			t.Fatal(err)
		}
		if got := word(t, dir); got != "second" {
			t.Errorf("%v: got %q", errno, got)
		}
		if left := slices.DeleteFunc(tree(t, base), func(s string) bool {
			return strings.Contains(s, " plan/")
		}); !slices.Equal(left, []string{"0755 work/"}) {
			t.Errorf("%v: left %q", errno, left)
		}
	}
}

func TestAnEarlierPlanComesBackWhereTheNewOneCannotBeRenamed(t *testing.T) {
	t.Parallel()
	base, fresh, dir := twoDirectories(t)
	swap := func(a, b string) error {
		if err := os.RemoveAll(fresh); err != nil { // makes the following rename fail
			t.Fatal(err)
		}
		return unix.EINVAL
	}
	if err := putInPlace(fresh, dir, swap); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if got := word(t, dir); got != "first" {
		t.Errorf("got %q", got)
	}
	if _, err := os.Stat(filepath.Join(base, "work.old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left beside: %v", err)
	}
}

func TestAnyOtherFaultOfTheExchangeChangesNothing(t *testing.T) {
	t.Parallel()
	base, fresh, dir := twoDirectories(t)
	before := tree(t, base)
	for _, errno := range []error{unix.EBUSY, unix.EACCES, unix.EXDEV} {
		if err := putInPlace(fresh, dir, func(string, string) error { return errno }); !errors.Is(err, errno) {
			t.Errorf("got %v, want %v", err, errno)
		}
	}
	if diff := cmp.Diff(before, tree(t, base)); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
}

func needExchange(t *testing.T) {
	t.Helper()
	_, fresh, dir := twoDirectories(t)
	if err := exchange(fresh, dir); err != nil {
		t.Skipf("directories cannot change places here: %v", err)
	}
}

func TestWhoReadsAPlanWhileItIsReplacedAlwaysFindsOne(t *testing.T) {
	t.Parallel()
	needExchange(t)
	dir := filepath.Join(t.TempDir(), "plan")
	if err := Write(dir, planFiles("first")); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		defer close(done)
		for i := range 50 {
			if err := Write(dir, planFiles([]string{"first", "second"}[i%2])); err != nil {
				done <- err
				return
			}
		}
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if _, err := os.Stat(filepath.Join(dir, planFile)); err != nil {
			t.Errorf("no plan there: %v", err)
			for range done { // until it has ended
			}
			return
		}
	}
}
