package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// standInQEMU is saved or resumed, with QMP as its first socket. It prints its first argument, if any, and exits at
// once.
func standInQEMU(args []string) {
	if args[0] != "" {
		fmt.Fprintln(os.Stderr, args[0])
		os.Exit(3)
	}
	l, err := net.FileListener(os.NewFile(firstDescriptor, "qmp"))
	for err == nil {
		var nc net.Conn
		if nc, err = l.Accept(); err == nil {
			err = standInQMP(nc)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func standInQMP(nc net.Conn) error {
	defer nc.Close()
	fmt.Fprintln(nc, `{"QMP": {"version": {}, "capabilities": []}}`)
	for in := bufio.NewScanner(nc); in.Scan(); {
		var ask struct {
			Execute   string
			Arguments struct{ URI string }
		}
		if err := json.Unmarshal(in.Bytes(), &ask); err != nil {
			return err
		}
		fmt.Fprintln(nc, `{"return": {"status": "running"}}`)
		var err error
		switch uri := ask.Arguments.URI; ask.Execute {
		case "migrate":
			err = saveState(strings.TrimPrefix(uri, "unix:"))
		case "migrate-incoming":
			err = takeState(uri)
		default:
			continue
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(nc, `{"event": "MIGRATION", "data": {"status": "completed"}, "timestamp": {}}`)
	}
	return nil
}

const savedState = "the state of the devices"

func saveState(path string) error {
	nc, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	_, err = io.WriteString(nc, savedState)
	return errors.Join(err, nc.Close())
}

func takeState(uri string) error {
	var fd uintptr
	if _, err := fmt.Sscanf(uri, "fd:%d", &fd); err != nil {
		return err
	}
	b, err := io.ReadAll(os.NewFile(fd, "state"))
	if err == nil && string(b) != savedState {
		err = errors.New("load of migration failed: Invalid argument")
	}
	return err
}

var shapes = []struct {
	name    string
	sockets Sockets
	files   []string
}{
	{"node", Sockets{SocketQMP, SocketAgent, SocketConsole, "setup.sock"}, []string{"ram"}},
	{"host", Sockets{SocketQMP, SocketAgent, "serial.sock", SocketConsole}, []string{"ram0", "ram1", "disk.qcow2"}},
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rlv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func cacheIn(dir string) (Cache, *[]string) {
	notes := new([]string)
	return Cache{Dir: dir, Note: func(format string, args ...any) {
		*notes = append(*notes, fmt.Sprintf(format, args...))
	}}, notes
}

func standInMachine(t *testing.T, dir string, sockets Sockets, say string) Machine {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Machine{Name: "vm00", Binary: self, Dir: dir, Sockets: sockets, Args: []string{"stand-in-qemu", say}}
}

func boot(t *testing.T, c Cache, key string, sockets Sockets, files []string, settle error) (*Template, error) {
	t.Helper()
	return c.Ensure(limited(t), key, func() (*Template, error) {
		return c.Make(limited(t), Template{Key: key, Image: "i", CPUs: 2}, Boot{
			Machine: func(_ context.Context, dir string) (Machine, error) {
				for _, f := range files {
					if err := os.WriteFile(filepath.Join(dir, f), []byte("content of "+f), 0o600); err != nil {
						return Machine{}, err
					}
				}
				return standInMachine(t, dir, sockets, ""), nil
			},
			Settle: func(context.Context, string) (func(), error) { return func() {}, settle },
			Files:  files,
			Limit:  time.Minute,
		})
	})
}

func TestTemplatesAreMadeOnceAndGoneOnFrom(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			c, notes := cacheIn(filepath.Join(shortDir(t), "c"))
			made, err := boot(t, c, "k", s.sockets, s.files, nil)
			if err != nil {
				t.Fatal(err)
			}
			again, err := boot(t, c, "k", s.sockets, s.files, errors.New("made a second time"))
			if err != nil || len(*notes) != 0 {
				t.Fatalf("%v, notes %q", err, *notes)
			}
			if diff := cmp.Diff(made, again, cmp.AllowUnexported(Template{})); diff != "" {
				t.Errorf("opened is not what was made:\n%s", diff)
			}
			var left []string
			entries, err := os.ReadDir(made.Dir)
			for _, e := range entries {
				left = append(left, e.Name())
			}
			want := append(slices.Clone(s.files), fileState, fileManifest)
			slices.Sort(want)
			if diff := cmp.Diff(want, left); diff != "" || err != nil {
				t.Errorf("%v, in its directory (-want +got):\n%s", err, diff)
			}
			m := standInMachine(t, shortDir(t), s.sockets, "")
			child, err := m.Start(again)
			if err != nil {
				t.Fatal(err)
			}
			defer child.Kill()
			if err := child.Resume(limited(t)); err != nil {
				t.Error(err)
			}
			if st, err := QueryState(limited(t), child.Process, m.Dir); st != Running || err != nil {
				t.Errorf("state %q, %v", st, err)
			}
			child.Kill()
			if st, err := QueryState(limited(t), child.Process, m.Dir); st != Dead || err != nil {
				t.Errorf("killed: state %q, %v", st, err)
			}
		})
	}
}

func TestTemplatesThatCannotBeMadeLeaveNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		settle error
		want   string
	}{
		"a guest that does not settle": {errors.New("no answer"), "no answer; its console ended: (nothing)"},
		"a clock that is wrong":        {ErrClock, ErrClock.Error()},
		"a disk that is full": {fmt.Errorf("write: %w", syscall.ENOSPC),
			"write: no space left on device; its console ended: (nothing); free space there or set RACKLESS_CACHE"},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := cacheIn(shortDir(t))
			_, err := boot(t, c, "k", shapes[0].sockets, shapes[0].files, tt.settle)
			if err == nil || err.Error() != tt.want || !errors.Is(err, tt.settle) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
			if left, err := os.ReadDir(c.Dir); err != nil || len(left) != 1 || left[0].Name() != "k.lock" {
				t.Errorf("left: %v, %v, want a lock file alone", left, err)
			}
		})
	}
}

func TestAStateThatQEMURefusesIsItsError(t *testing.T) {
	c, _ := cacheIn(shortDir(t))
	made, err := boot(t, c, "k", shapes[0].sockets, shapes[0].files, nil)
	if err != nil {
		t.Fatal(err)
	}
	made.state = made.state[1:]
	child, err := standInMachine(t, shortDir(t), shapes[0].sockets, "").Start(made)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Kill()
	err = child.Explain(t.Context(), child.Resume(limited(t)))
	want := "QEMU for vm00 ended (exit status 1); its last words: load of migration failed: Invalid argument"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// On file systems without delayed writes, such as tmpfs, the test proves nothing.
func TestFilesOnTheirWayToTheDiskAreWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ram")
	for range 3 {
		if err := os.WriteFile(path, bytes.Repeat([]byte{1}, 64<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := StampOf(path)
		if err != nil {
			t.Fatal(err)
		}
		synced := make(chan error, 1)
		go func() {
			f, err := os.Open(path)
			if err == nil {
				err = errors.Join(f.Sync(), f.Close())
			}
			synced <- err
		}()
		for done := false; !done; {
			select {
			case err := <-synced:
				if done = true; err != nil {
					t.Fatal(err)
				}
			default:
			}
			have, err := StampOf(path)
			if err != nil || have != want {
				t.Fatalf("got %+v, %v, want %+v", have, err, want)
			}
		}
	}
}

func TestDamagedTemplatesAreNotUsed(t *testing.T) {
	for _, s := range shapes {
		dir := t.TempDir()
		c, _ := cacheIn(dir)
		put(t, dir, "k", s.files, templateFormat)
		type damage struct {
			file   string
			change func(*testing.T, string)
			want   string
		}
		tests := map[string]damage{
			"nothing":                   {fileState, func(*testing.T, string) {}, ""},
			"state with one bit turned": {fileState, flip, "state is not what was written"},
			"state cut short":           {fileState, cut, "state is not what was written"},
			"state missing":             {fileState, remove, "incomplete: "},
			"manifest cut short":        {fileManifest, cut, "template.json: unexpected end of JSON input"},
			"manifest missing":          {fileManifest, remove, "no such file or directory"},
			"manifest of another key": {fileManifest, replace(`"key": "k"`, `"key": "l"`),
				"state is not what was written"},
			"manifest of another format": {fileManifest, replace(`"format": 4`, `"format": 2`),
				"made by another version of rackless (format 2, this one makes 4)"},
		}
		for _, f := range s.files {
			not := f + " is not what was written"
			tests[f+" cut short"] = damage{f, cut, not}
			tests[f+" missing"] = damage{f, remove, "incomplete: "}
			tests[f+" written to"] = damage{f, touch, not}
			tests[f+" with holes"] = damage{f, hollow, not}
		}
		for name, tt := range tests {
			t.Run(s.name+"/"+name, func(t *testing.T) {
				path := filepath.Join(dir, "k", tt.file)
				b, err := os.ReadFile(path)
				fi, statErr := os.Stat(path)
				if err := errors.Join(err, statErr, os.Rename(path, path+".kept")); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := os.Rename(path+".kept", path); err != nil {
						t.Error(err)
					}
				}()
				err = errors.Join(os.WriteFile(path, b, 0o600), os.Chtimes(path, time.Time{}, fi.ModTime()))
				if err != nil {
					t.Fatal(err)
				}
				tt.change(t, path)
				if !strings.HasSuffix(name, "written to") { // for other changes only
					err := os.Chtimes(path, time.Time{}, fi.ModTime())
					if err != nil && !errors.Is(err, os.ErrNotExist) {
						t.Fatal(err)
					}
				}
				_, err = c.open("k")
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			})
		}
	}
}

func put(t *testing.T, cache, key string, files []string, format int) {
	t.Helper()
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(strings.Repeat(f, 4096)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tmpl := Template{Key: key, Image: "image-" + key, QEMU: "10.0.2", Accelerator: "tcg", CPUs: 1, Memory: 6, NICs: 2,
		state: []byte("state")}
	if err := tmpl.write(dir, files); err != nil {
		t.Fatal(err)
	}
	if format != templateFormat {
		replace(fmt.Sprintf(`"format": %d`, templateFormat), fmt.Sprintf(`"format": %d`, format))(t,
			filepath.Join(dir, fileManifest))
	}
}

func TestListAndRemove(t *testing.T) {
	c, _ := cacheIn(t.TempDir())
	if all, err := (Cache{Dir: filepath.Join(c.Dir, "none")}).List(); err != nil || all != nil {
		t.Errorf("a cache that does not exist: %v, %v", all, err)
	}
	for i, key := range []string{"bb", "aa", "cc"} {
		put(t, c.Dir, key, shapes[i%2].files, templateFormat)
	}
	put(t, c.Dir, "ee", shapes[0].files, templateFormat-1)
	flip(t, filepath.Join(c.Dir, "cc", fileState))
	for _, dir := range []string{"dd", ".t123"} {
		if err := os.Mkdir(filepath.Join(c.Dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.Dir, "aa.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := c.List()
	if err != nil || len(all) != 5 {
		t.Fatalf("got %v, %v", all, err)
	}
	for i, want := range []struct {
		key, image string
		damaged    bool
	}{{"aa", "image-aa", false}, {"bb", "image-bb", false}, {"cc", "image-cc", true}, {"dd", "", true},
		{"ee", "image-ee", true}} {
		if got := all[i]; got.Key != want.key || got.Image != want.image || (got.Damaged != nil) != want.damaged ||
			got.Dir != filepath.Join(c.Dir, want.key) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if a := all[0]; a.QEMU != "10.0.2" || a.Accelerator != "tcg" || a.CPUs != 1 || a.Memory != 6 || a.NICs != 2 ||
		a.Made.IsZero() || a.Disk == 0 {
		t.Errorf("got %+v", a)
	}
	gone, err := c.Remove(t.Context(), func(l Listed) bool { return l.Image == "image-aa" || l.Key == "dd" })
	if err != nil || len(gone) != 2 || gone[0].Key != "aa" || gone[1].Key != "dd" {
		t.Errorf("removed %v, %v", gone, err)
	}
	if left, err := Keys(c.Dir); err != nil || !slices.Equal(left, []string{"bb", "cc", "ee"}) {
		t.Errorf("left %v, %v", left, err)
	}
}

func TestPruneRemovesWhatNobodyUsesOrCanUse(t *testing.T) {
	old := time.Now().Add(-2 * templateAge)
	for name, tt := range map[string]struct {
		used func() ([]string, error)
		want []string
	}{
		"nodes, which stand on none": {nil, []string{"busy", "kept", "new"}},
		"hosts, which do": {func() ([]string, error) { return []string{"used", "used-older"}, nil },
			[]string{"busy", "kept", "new", "used", "used-older"}},
		"hosts that cannot be read": {func() ([]string, error) { return nil, errors.New("a state that is damaged") },
			[]string{"busy", "kept", "new", "old", "older-format", "used", "used-older"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := cacheIn(t.TempDir())
			c.Used = tt.used
			for _, key := range []string{"busy", "kept", "new", "old", "older-format", "used", "used-older"} {
				format := templateFormat
				if strings.Contains(key, "older") {
					format = 2
				}
				put(t, c.Dir, key, shapes[0].files, format)
				if key == "new" || format != templateFormat {
					continue
				}
				if err := os.Chtimes(filepath.Join(c.Dir, key, fileManifest), old, old); err != nil {
					t.Fatal(err)
				}
			}
			unlock, err := c.lock(t.Context(), "busy")
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
			if err := c.prune("kept"); err != nil {
				t.Fatal(err)
			}
			got, err := Keys(c.Dir)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v, left (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestUseKeepsATemplateFromBeingPruned(t *testing.T) {
	c, _ := cacheIn(t.TempDir())
	put(t, c.Dir, "k", shapes[1].files, templateFormat)
	old := time.Now().Add(-2 * templateAge)
	if err := os.Chtimes(filepath.Join(c.Dir, "k", fileManifest), old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(); err != nil || c.isRecent("k") {
		t.Errorf("listed is used: %v", err)
	}
	if _, err := c.use("k"); err != nil || !c.isRecent("k") {
		t.Errorf("used is not recent: %v", err)
	}
}

func TestSweepLeavesTemplatesThatAreBeingMade(t *testing.T) {
	c, notes := cacheIn(t.TempDir())
	for _, d := range []string{"0123456789abcdef", workPrefix + "aaaaaaaaaaaaaaaa", workPrefix + "bbbbbbbbbbbbbbbb"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, d, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := c.lock(t.Context(), "bbbbbbbbbbbbbbbb")
	if err != nil {
		t.Fatal(err)
	}
	left := func() []string {
		t.Helper()
		if err := Sweep(c.Dir, workPrefix); err != nil {
			t.Fatal(err)
		}
		all, err := filepath.Glob(filepath.Join(c.Dir, "*", "x"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			all[i] = filepath.Base(filepath.Dir(all[i]))
		}
		return all
	}
	if diff := cmp.Diff([]string{workPrefix + "bbbbbbbbbbbbbbbb", "0123456789abcdef"}, left()); diff != "" {
		t.Errorf("while one is at work (-want +got):\n%s", diff)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("too slow"))
	defer cancel()
	if _, err := c.lock(ctx, "bbbbbbbbbbbbbbbb"); err == nil ||
		!strings.HasSuffix(err.Error(), "bbbbbbbbbbbbbbbb.lock: too slow") {
		t.Errorf("a lock that is held: %v", err)
	}
	if want := []string{"waiting for another rackless, which makes the template"}; !slices.Equal(*notes, want) {
		t.Errorf("notes %q, want %q", *notes, want)
	}
	unlock()
	if diff := cmp.Diff([]string{"0123456789abcdef"}, left()); diff != "" {
		t.Errorf("after (-want +got):\n%s", diff)
	}
}

func TestKeysFollowTheirParts(t *testing.T) {
	key := Key("a", "b")
	if again := Key("a", "b"); again != key || len(key) != 16 {
		t.Errorf("keys %s and %s of the same parts", key, again)
	}
	for _, other := range [][]string{{"a"}, {"a", "c"}, {"ab"}, {"b", "a"}} {
		if Key(other...) == key {
			t.Errorf("%q has the key of a and b", other)
		}
	}
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, change(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string) {
	rewrite(t, path, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
}

func replace(old, to string) func(*testing.T, string) {
	return func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte {
			if !strings.Contains(string(b), old) {
				t.Errorf("no %s in %s", old, b)
			}
			return []byte(strings.Replace(string(b), old, to, 1))
		})
	}
}

func cut(t *testing.T, path string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, fi.Size()/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		t.Fatal(err)
	}
}

// hollow is a file that was not on disk yet at a crash: its size remains, without data.
func hollow(t *testing.T, path string) {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{0, fi.Size()} {
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHoles(t *testing.T) {
	const size = 3<<20 + 4096
	path := filepath.Join(t.TempDir(), "ram")
	want := make([]byte, size)
	want[0], want[1<<20+5000], want[2<<20-1], want[size-1] = 1, 2, 3, 4
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := makeHoles(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file has changed, %v", err)
	}
	if s, err := StampOf(path); err != nil || s.Size != size || s.Data > 64<<10 {
		t.Errorf("%+v, %v", s, err)
	}
}
