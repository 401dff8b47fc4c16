package userdirs

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestDirectoriesWithoutHome(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]map[string]string{
		"nothing is set":             {},
		"HOME is not absolute":       {"HOME": "here"},
		"the variables of XDG, too":  {"HOME": ".", "XDG_CACHE_HOME": "cache", "XDG_DATA_HOME": "."},
		"one of ours, and no others": {"RACKLESS_RUN": "/run/other"},
	} {
		d, err := Default(func(k string) string { return env[k] }, os.Getuid())
		if err != nil || d.Cache != filepath.Join(me.HomeDir, ".cache/rackless") ||
			d.Data != filepath.Join(me.HomeDir, ".local/share/rackless") {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	const nobody = 1<<31 - 7 // a user without an account
	if d, err := Default(func(string) string { return "" }, nobody); err == nil || d != (Dirs{}) ||
		!strings.Contains(err.Error(), "has no home directory: set HOME, or RACKLESS_CACHE and RACKLESS_DATA") {
		t.Errorf("without an account: %+v, %v", d, err)
	}
	env := map[string]string{"RACKLESS_CACHE": "/c", "RACKLESS_DATA": "/d"}
	if d, err := Default(func(k string) string { return env[k] }, nobody); err != nil || d.Cache != "/c" {
		t.Errorf("with both directories: %+v, %v", d, err)
	}
}

func TestDirectoriesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	me := os.Getuid()
	for name, c := range map[string]struct {
		mode os.FileMode
		uid  int
		want string
	}{
		"mine alone":                {0o700, me, ""},
		"mine, and others can read": {0o755, me, ""},
		"others can write":          {0o777, me, "others (mode 0777): chmod go-w "},
		"others can add files":      {0o777 | os.ModeSticky, me, "chmod go-w "},
		"the group can write":       {0o770, me, "others (mode 0770): chmod go-w "},
		"another user's":            {0o700, me + 1, "belongs to user " + strconv.Itoa(me)},
	} {
		dir := filepath.Join(t.TempDir(), "cache")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		if me == 0 && c.uid != me {
			if err := os.Chown(dir, 4711, 4711); err != nil {
				t.Fatal(err)
			}
			c.want = "belongs to user 4711"
		}
		none := filepath.Join(t.TempDir(), "none")
		for _, d := range []Dirs{{dir, none, none}, {none, dir, none}, {none, none, dir}, {none, link, none}} {
			err := d.Check(c.uid)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), ", or set RACKLESS_") || !strings.Contains(err.Error(), dir)) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	open := t.TempDir()
	below := Dirs{Run: filepath.Join(open, "a/run"), Cache: filepath.Join(open, "cache"), Data: "/tmp/none"}
	if err := below.Check(me); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := below.Check(me); err == nil || !strings.Contains(err.Error(), "chmod go-w "+open+", or set") {
		t.Errorf("below a directory in which others can rename it: %v", err)
	}
}
