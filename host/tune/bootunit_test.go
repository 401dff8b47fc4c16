package tune

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/golden"
)

func TestTheBootUnit(t *testing.T) {
	t.Parallel()
	golden.Check(t, "testdata/rackless-prepare.service", string(bootUnit("/usr/local/bin/rackless")))
}

func TestAPercentSignIsNoSpecifier(t *testing.T) {
	t.Parallel()
	if got := string(bootUnit("/opt/100%/rackless")); strings.Count(got, "/opt/100%%/rackless") != 2 {
		t.Error(got)
	}
}

func TestAProgramThatOthersCouldReplaceIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, program string
		set           func(root string) error
		stranger      bool
		want          string
	}{
		{"a program of root's", "/usr/local/bin/rackless", nil, false, ""},
		{"one that is found by links", "/opt/bin/rackless", func(root string) error {
			return os.Symlink("../usr/local/bin", filepath.Join(root, "opt/bin"))
		}, false, ""},
		{"one behind an absolute link", "/opt/bin/rackless", func(root string) error {
			return os.Symlink("/usr/local/bin", filepath.Join(root, "opt/bin"))
		}, false, ""},
		{"a program that everybody may write", "/usr/local/bin/rackless", func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/local/bin/rackless"), 0o777)
		}, false, "/usr/local/bin/rackless can be written by others than root (-rwxrwxrwx, owner "},
		{"a directory that everybody may write", "/usr/local/bin/rackless", func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/local"), 0o777)
		}, false, "/usr/local can be written by others than root"},
		{"a directory like /tmp", "/usr/local/bin/rackless", func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/local"), 0o777|os.ModeSticky)
		}, false, "/usr/local can be written by others than root"},
		{"a link to where everybody may write", "/opt/rackless", func(root string) error {
			if err := os.Mkdir(filepath.Join(root, "tmp"), 0o777); err != nil {
				return err
			}
			if err := os.Chmod(filepath.Join(root, "tmp"), 0o777); err != nil {
				return err
			}
			return os.Symlink("/tmp/rackless", filepath.Join(root, "opt/rackless"))
		}, false, "/tmp can be written by others than root"},
		{"a program of somebody else's", "/usr/local/bin/rackless", nil, true, "/ can be written by others than root"},
		{"a link in a circle", "/opt/a", func(root string) error {
			return os.Symlink("a", filepath.Join(root, "opt/a"))
		}, false, "/opt/a: too many links"},
		{"none", "/usr/local/bin/other", nil, false, "no such file or directory"},
		{"a directory", "/usr/local/bin", nil, false, "/usr/local/bin is not a program"},
		{"a file that is no program", "/usr/local/bin/rackless", func(root string) error {
			return os.Chmod(filepath.Join(root, "usr/local/bin/rackless"), 0o644)
		}, false, "/usr/local/bin/rackless is not a program (-rw-r--r--)"},
		{"a file in place of a directory", "/usr/local/bin/rackless/x", nil, false,
			"/usr/local/bin/rackless is not a directory"},
		{"a name without a directory", "rackless", nil, false, `"rackless" is not an absolute path without dots`},
		{"a path with dots", "/usr/local/bin/../bin/rackless", nil, false, "is not an absolute path without dots"},
		{"a path with a space", "/usr/local/my bin/rackless", nil, false,
			`"/usr/local/my bin/rackless" has ' ' in its path, which does not go into a unit of systemd: ` +
				`install rackless to /usr/local/bin`},
		{"a path with a new line", "/usr/bin/x\nExecStart=/bin/sh", nil, false, `has '\n' in its path`},
		{"a path with a variable", "/usr/bin/$HOME", nil, false, `has '$' in its path`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.write("usr/local/bin/rackless", "#!\n")
			m.write("opt/keep", "")
			if err := os.Chmod(filepath.Join(m.root, "usr/local/bin/rackless"), 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.set != nil {
				if err := tt.set(m.root); err != nil {
					t.Fatal(err)
				}
			}
			err := guardProgram(m.system(), tt.program, func(uid uint32) bool {
				return !tt.stranger && int(uid) == os.Getuid()
			})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestTheBootUnitIsMadeAndUndone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	steps := BootUnit("/usr/local/bin/rackless")
	steps[0].Guard = nil // the owner of the test files depends on the user
	if _, err := m.prepare(steps); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(m.root,
		"etc/systemd/system/multi-user.target.wants/rackless-prepare.service")); err != nil ||
		to != "/etc/systemd/system/rackless-prepare.service" {
		t.Errorf("it is not enabled: %q, %v", to, err)
	}
	if err := m.rollback(); err != nil {
		t.Fatal(err)
	}
	if now := m.snapshot(); len(now) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(now))
	}
	if len(m.ran) != 0 {
		t.Errorf("a unit that the next boot starts takes %q", m.ran)
	}
}

func TestPrepareWaitsForTheUnitOfTheBoot(t *testing.T) {
	for _, tt := range []struct {
		name   string
		states []string // the last state repeats
		told   string
		err    string
	}{
		{"no unit", []string{"ActiveState=inactive\nJob=\n"}, "", ""},
		{"it has a job, then works, then is done", []string{"Job=12\nActiveState=inactive\n",
			"Job=12\nActiveState=activating\n",
			"ActiveState=active\n"}, "rackless-prepare.service goes on with the preparation after the boot: " +
			"waiting for it, " +
			"at most 20m0s", ""},
		{"it never ends", []string{"Job=12\nActiveState=activating\n"}, "waiting for it, at most 20m0s",
			"rackless-prepare.service still works after 20m0s: see journalctl -u rackless-prepare.service"},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, told := 0, []string{}
			s := &change.System{Run: func(_ context.Context, argv []string) ([]byte, error) {
				if !slices.Contains(argv, bootUnitName) {
					t.Errorf("%s: %q was run", tt.name, argv)
				}
				asked++
				return []byte(tt.states[min(asked, len(tt.states))-1]), nil
			}}
			err := AwaitBootUnit(t.Context(), s, func(what string) { told = append(told, what) })
			if got := strings.Join(told, "\n"); !strings.HasSuffix(got, tt.told) || tt.told == "" && got != "" {
				t.Errorf("%s: told %q, want %q", tt.name, got, tt.told)
			}
			if err == nil && tt.err != "" || err != nil && err.Error() != tt.err {
				t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
			}
		})
	}
}
