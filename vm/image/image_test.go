package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/u-root/u-root/pkg/cpio"
)

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

// TestMain lets the test binary be another builder; see TestBuildersWaitForEachOther.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "ensure" {
		_, err := Node.Ensure(context.Background(),
			Options{Cache: os.Args[2], build: fakeBuild(os.Args[3], 100*time.Millisecond)})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func fakeBuild(log string, takes time.Duration) builder {
	return func(ctx context.Context, _ Options, _, out string, img *Image) error {
		note := func(s string) error {
			f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			_, err = f.WriteString(s)
			return errors.Join(err, f.Close())
		}
		err := note("begin ")
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if img.Name == Host.name {
			img.Disk = diskName
		} else {
			img.Kernel, img.Initramfs = "vmlinux", "initramfs.cpio"
		}
		for _, f := range img.files() {
			err = errors.Join(err, os.WriteFile(filepath.Join(out, f), bytes.Repeat([]byte(f), 1000), 0o644))
		}
		return errors.Join(err, note("end\n"))
	}
}

func builds(t *testing.T, log string) int {
	t.Helper()
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(b), "begin ")
	if string(b) != strings.Repeat("begin end\n", n) {
		t.Errorf("builds were at work at once: %q", b)
	}
	return n
}

func TestEnsureBuildsOnceAndAgainWhatWasDamaged(t *testing.T) {
	flip := func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		b[len(b)/2] ^= 1
		return os.WriteFile(path, b, 0o644)
	}
	for name, tt := range map[string]struct {
		damage func(dir string) error
		say    string // in the note
	}{
		"a kernel cut short": {func(d string) error {
			return os.Truncate(filepath.Join(d, "vmlinux"), 10)
		}, "vmlinux is not what was built"},
		"a byte that turned": {func(d string) error {
			return flip(filepath.Join(d, "initramfs.cpio"))
		}, "initramfs.cpio is not what was built"},
		"a file that is gone": {func(d string) error {
			return os.Remove(filepath.Join(d, "initramfs.cpio"))
		}, "initramfs.cpio is not what was built"},
		"a manifest that is gone": {func(d string) error {
			return os.Remove(filepath.Join(d, manifestName))
		}, "has no manifest.json"},
		"a manifest cut short": {func(d string) error {
			return os.Truncate(filepath.Join(d, manifestName), 100)
		}, "unexpected end of JSON input"},
		"a manifest of no kernel": {replace(`"kernel": "vmlinux"`, `"kernel": "../../etc"`),
			`manifest.json has no sum of "../../etc"`},
		"a manifest of no files":   {replace(`"files": [`, `"file": [`), `manifest.json has no sum of "vmlinux"`},
		"an image of another name": {replace(`"key": "`, `"key": "x`), "manifest.json is of another image"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			log := filepath.Join(t.TempDir(), "log")
			var notes []string
			o := Options{Cache: cache, build: fakeBuild(log, 0), Progress: func(s string) { notes = append(notes, s) }}
			img, err := Node.Ensure(limited(t), o)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Node.Ensure(limited(t), o); err != nil || builds(t, log) != 1 || len(notes) != 0 {
				t.Fatalf("a second time: %v, %v, notes %q", again, err, notes)
			}
			if err := tt.damage(img.Dir); err != nil {
				t.Fatal(err)
			}
			if images, damaged, err := Node.List(limited(t), cache); err != nil || len(images) != 0 ||
				!cmp.Equal(damaged, []string{img.Key}) {
				t.Errorf("list: %v, %v, %v, want it among the damaged", images, damaged, err)
			}
			if _, err := Node.Ensure(limited(t), o); err != nil || builds(t, log) != 2 {
				t.Errorf("%v, %d builds, want 2", err, builds(t, log))
			}
			if len(notes) != 1 || !strings.Contains(notes[0], "is damaged") || !strings.Contains(notes[0], tt.say) {
				t.Errorf("notes %q, want %q", notes, tt.say)
			}
			if images, damaged, err := Node.List(limited(t), cache); err != nil || len(images) != 1 ||
				len(damaged) != 0 {
				t.Errorf("list: %v, %v, %v", images, damaged, err)
			}
		})
	}
}

func replace(old, new string) func(dir string) error {
	return func(dir string) error {
		path := filepath.Join(dir, manifestName)
		b, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(b, []byte(old)) {
			err = fmt.Errorf("no %s in %s", old, b)
		}
		return errors.Join(err, os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644))
	}
}

func TestBuildersWaitForEachOther(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "made", "on the way")
	log := filepath.Join(t.TempDir(), "log")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if out, err := exec.CommandContext(limited(t), self, "ensure", cache, log).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
		wg.Go(func() {
			if _, err := Node.Ensure(limited(t),
				Options{Cache: cache, build: fakeBuild(log, 100*time.Millisecond)}); err !=
				nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := builds(t, log); n != 1 {
		t.Errorf("%d builds, want 1", n)
	}
}

func TestWaitingForABuilderEndsWithItsContext(t *testing.T) {
	cache := t.TempDir()
	r, _, err := Node.recipe(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := at(cache, r.Key()).lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("interrupted"))
	defer cancel()
	if _, err := Node.Ensure(ctx, Options{Cache: cache}); err == nil || !strings.HasSuffix(err.Error(),
		".lock: another process builds this image: interrupted") {
		t.Errorf("got %v", err)
	}
}

func TestEnsureRemovesWhatKilledBuildersLeft(t *testing.T) {
	cache := t.TempDir()
	r, _, err := Node.recipe(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	busy := ".build-" + "bbbbbbbbbbbbbbbb"
	for _, d := range []string{".build-" + r.Key(), ".build-" + "aaaaaaaaaaaaaaaa", ".build-" + "1234567", busy} {
		writeTree(t, cache, map[string]string{d + "/root/etc/x": "x"})
	}
	unlock, err := at(cache, "bbbbbbbbbbbbbbbb").lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	o := Options{Cache: cache, build: fakeBuild(filepath.Join(t.TempDir(), "log"), 0)}
	if _, err := Node.Ensure(limited(t), o); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(cache, ".build-"+"*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != busy {
		t.Errorf("left: %v, %v, want that of the builder at work alone", left, err)
	}
}

func TestCacheThatCannotBeUsed(t *testing.T) {
	never := func(context.Context, Options, string, string, *Image) error {
		return errors.New("built without a cache")
	}
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"file": "x"})
	for _, cache := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "file", "below"), "/proc/nowhere"} {
		_, err := Node.Ensure(limited(t), Options{Cache: cache, build: never})
		if err == nil || !strings.HasPrefix(err.Error(), "image cache: ") || !strings.Contains(err.Error(), cache) ||
			!strings.HasSuffix(err.Error(), "; set RACKLESS_CACHE to a directory that can be written") {
			t.Errorf("%s: got %v", cache, err)
		}
	}
}

func tiny(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a small file system takes root")
		}
		t.Skip("mounting a small file system takes root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("rackless-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v", err) // containers may forbid it
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestFullDisk(t *testing.T) {
	cache := tiny(t)
	fill := func(_ context.Context, _ Options, _, out string, _ *Image) error {
		return os.WriteFile(filepath.Join(out, "vmlinux"), make([]byte, 2<<20), 0o644)
	}
	apt := func(context.Context, Options, string, string, *Image) error {
		_, err := run(context.Background(), command{name: "sh",
			args: []string{"-c", "echo 'E: write: No space left on device' >&2; exit 100"}})
		return fmt.Errorf("download packages: %w", err)
	}
	for name, build := range map[string]builder{"of ours": fill, "of a program's": apt} {
		_, err := Node.Ensure(limited(t), Options{Cache: cache, build: build})
		if err == nil || !strings.HasPrefix(err.Error(), "build the image in "+cache+": ") ||
			!strings.HasSuffix(err.Error(), "; free about 1 GB there, or set RACKLESS_CACHE to a directory with "+
				"more space") {
			t.Errorf("a write %s: got %v", name, err)
		}
	}
}

func TestRemove(t *testing.T) {
	cache := t.TempDir()
	img, err := Node.Ensure(limited(t), Options{Cache: cache, build: fakeBuild(filepath.Join(t.TempDir(), "log"), 0)})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"": "not a key", "../..": "not a key", "a/b": "not a key",
		"0000000000000000": "not in the cache: see rackless image ls",
	} {
		if err := Remove(limited(t), cache, key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v", key, err)
		}
	}
	if err := Remove(limited(t), cache, img.Key); err != nil {
		t.Fatal(err)
	}
	if images, damaged, err := Node.List(limited(t), cache); err != nil || len(images)+len(damaged) != 0 {
		t.Errorf("list: %v, %v, %v", images, damaged, err)
	}
	if images, damaged, err := Node.List(limited(t), filepath.Join(cache, "none")); err != nil ||
		len(images)+len(damaged) != 0 {
		t.Errorf("list of no cache: %v, %v, %v", images, damaged, err)
	}
}

func TestRecipeKeyOfNodes(t *testing.T) {
	base := nodeRecipe("bookworm", "amd64", "linux-image-amd64", "")
	key := base.Key()
	if again := nodeRecipe("bookworm", "amd64", "linux-image-amd64", "").Key(); again != key || len(key) != 16 {
		t.Errorf("keys %s and %s of the same recipe", key, again)
	}
	for name, change := range map[string]func(*Recipe){
		"format":        func(r *Recipe) { r.Format++ },
		"release":       func(r *Recipe) { r.Release = "trixie" },
		"kernel":        func(r *Recipe) { r.Kernel = "/boot/vmlinuz-6.1" },
		"kernel digest": func(r *Recipe) { r.KernelDigest = "00" },
		"packages":      func(r *Recipe) { r.Packages = r.Packages[1:] },
		"programs":      func(r *Recipe) { r.Programs = append(r.Programs, "sh") },
		"kept files":    func(r *Recipe) { r.Keep = nil },
		"links":         func(r *Recipe) { r.Links[0].Target = "usr/lib/x" },
		"modules":       func(r *Recipe) { r.Modules[0], r.Modules[1] = r.Modules[1], r.Modules[0] },
		"optional ones": func(r *Recipe) { r.Optional = r.Optional[1:] },
		"drivers":       func(r *Recipe) { r.Drivers = r.Drivers[1:] },
		"architecture":  func(r *Recipe) { r.Arch = "arm64" },
		"our own files": func(r *Recipe) { r.FilesDigest = "00" },
		"one moved from a list to the next": func(r *Recipe) {
			r.Modules, r.Optional = r.Modules[:len(r.Modules)-1], append(r.Modules[len(r.Modules)-1:], r.Optional...)
		},
	} {
		r := nodeRecipe("bookworm", "amd64", "linux-image-amd64", "")
		change(&r)
		if r.Key() == key {
			t.Errorf("%s: the key does not change", name)
		}
	}
}

func initramfs(t *testing.T) []byte {
	t.Helper()
	root := t.TempDir()
	writeTree(t, root, map[string]string{
		"usr/bin/busybox":            string(elfFile(t, "", nil, "")),
		"usr/bin/dash":               string(elfFile(t, loader, []string{"libc.so.6"}, "")),
		"lib64/ld-linux-x86-64.so.2": "-> /usr/lib/ld.so", "usr/lib/ld.so": "loader", "lib/libc.so.6": "libc",
		"etc/x.d/b": "b", "etc/x.d/a": "a", "etc/x.d/libc": "-> /lib/libc.so.6",
		"usr/lib/alternatives/libold.so.1.16": "old",
	})
	r := Recipe{Programs: []string{"busybox", "dash"}, Keep: []string{"etc/x.d/*", "usr/lib/libold.so.1"},
		Links: []Link{
			{Path: "usr/lib/libold.so.1", Target: "usr/lib/alternatives/libold.so.1.*"}, {Path: "usr/lib/libgone.so",
				Target: "usr/lib/gone/*"},
		}}
	for _, l := range r.Links {
		if err := l.make(root); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := writeInitramfs(&out, root, r, []module{{"base", []byte("1"), true}, {"rdma_rxe", []byte("2"), false}},
		driverSet{
			modules: []module{{"igb", []byte("3"), true}},
			rows:    []driverRow{{"pci:v00008086d000010C9sv*", []string{"dca", "igb"}}},
		}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestInitramfs(t *testing.T) {
	archive := initramfs(t)
	if !bytes.Equal(archive, initramfs(t)) {
		t.Error("the same input gives other bytes")
	}
	recs, err := cpio.ReadAllRecords(cpio.Newc.Reader(bytes.NewReader(archive)))
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]cpio.Record)
	for _, r := range recs {
		if dir := filepath.Dir(r.Name); dir != "." && have[dir].Mode&cpio.S_IFMT != cpio.S_IFDIR {
			t.Errorf("%s comes before its directory", r.Name)
		}
		if _, dup := have[r.Name]; dup {
			t.Errorf("%s is there twice", r.Name)
		}
		if r.MTime != 0 || r.UID != 0 || r.GID != 0 {
			t.Errorf("%s carries a time or an owner", r.Name)
		}
		have[r.Name] = r
	}
	packed, err := pack([]byte("3"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"init": "bin/busybox", "bin/busybox": "/usr/bin/busybox", "bin/sh": "/usr/bin/dash", "usr/lib/ld.so": "loader",
		"lib64/ld-linux-x86-64.so.2": "/usr/lib/ld.so",
		"lib/libc.so.6":              "libc", "etc/x.d/a": "a", "etc/x.d/libc": "/lib/libc.so.6",
		"usr/lib/libold.so.1": "old",
		"lib/modules/load":    "-base\nrdma_rxe\n", "lib/modules/rdma_rxe.ko": "2",
		"lib/modules/drivers": "pci:v00008086d000010C9sv* dca igb\n", "lib/modules/igb.ko.gz": string(packed),
	} {
		b := make([]byte, have[name].FileSize)
		if have[name].ReaderAt != nil {
			if _, err := have[name].ReadAt(b, 0); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if string(b) != want {
			t.Errorf("%s: got %q, want %q", name, b, want)
		}
	}
	for name, perm := range map[string]uint64{"sbin/rackless-node": 0o755, "etc/hosts": 0o644, "usr/bin/dash": 0o755,
		"proc": 0o755, "dev/console": 0o600} {
		if got := have[name].Mode & 0o777; got != perm {
			t.Errorf("%s: mode %o, want %o", name, got, perm)
		}
	}
}

func TestInitramfsNamesWhatIsMissing(t *testing.T) {
	root := t.TempDir()
	writeTree(t, root, map[string]string{"bin/a": "x"})
	for want, r := range map[string]Recipe{
		"program gone is in none of the packages":   {Programs: []string{"a", "gone"}},
		"no file of the packages matches etc/x.d/*": {Programs: []string{"a"}, Keep: []string{"etc/x.d/*"}},
		"program dash is in none of the packages":   {Programs: []string{"a"}},
	} {
		if err := writeInitramfs(&bytes.Buffer{}, root, r, nil, driverSet{}); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
