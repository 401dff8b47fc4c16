package image

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func need(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is missing: apt-get install %s", program, debian)
		}
		t.Skipf("%s is missing: apt-get install %s", program, debian)
	}
}

func TestKindsShareACache(t *testing.T) {
	need(t, "apt-get", "apt")
	cache, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	type state struct{ Whole, Damaged []string }
	list := func(k *Kind) (s state) {
		t.Helper()
		images, damaged, err := k.List(t.Context(), cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range images {
			s.Whole = append(s.Whole, i.Key)
		}
		s.Damaged = damaged
		return s
	}
	made := map[*Kind]*Image{}
	for _, k := range []*Kind{Node, Host} {
		img, err := k.Ensure(t.Context(), Options{Cache: cache, build: fakeBuild(log, 0)})
		if err != nil {
			t.Fatal(err)
		}
		again, err := k.Ensure(t.Context(), Options{Cache: cache, build: fakeBuild(log, 0)})
		if diff := cmp.Diff(img, again); diff != "" || err != nil {
			t.Errorf("%s: %v, found is not what was built: %s", k.name, err, diff)
		}
		made[k] = img
	}
	if n := builds(t, log); n != 2 {
		t.Errorf("%d builds, want one of each kind", n)
	}
	for k, img := range made {
		if diff := cmp.Diff(state{Whole: []string{img.Key}}, list(k)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k.name, diff)
		}
	}
	if err := os.Truncate(made[Host].DiskPath(), 1); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state{Damaged: []string{made[Host].Key}}, list(Host)); diff != "" {
		t.Errorf("cut short (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(state{Whole: []string{made[Node].Key}}, list(Node)); diff != "" {
		t.Errorf("nodes, beside a host that is damaged (-want +got):\n%s", diff)
	}
	var notes []string
	if _, err := Host.Ensure(t.Context(), Options{Cache: cache, build: fakeBuild(log, 0),
		Progress: func(s string) { notes = append(notes, s) }}); err != nil || builds(t, log) != 3 {
		t.Errorf("after damage: %v, %d builds, want 3", err, builds(t, log))
	}
	if len(notes) != 1 || !strings.Contains(notes[0],
		"is damaged (damaged: disk.qcow2 is not what was built): building it again") {
		t.Errorf("notes %q", notes)
	}
	if err := Remove(t.Context(), cache, made[Host].Key); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(state{}, list(Host)); diff != "" {
		t.Errorf("removed, and still there: %s", diff)
	}
}

// Keys of users' images must not change with only the form of recipes, because building takes minutes.
func TestKeysOfImagesInCachesStay(t *testing.T) {
	node := Recipe{Format: 1, Release: "r", Kernel: "k", Packages: []string{"p"}, Programs: []string{"b"},
		Keep: []string{"f"}, Links: []Link{{"l", "t"}}, Modules: []string{"m"}, Optional: []string{"o"},
		Drivers: []string{"d"}, FilesDigest: "x"}
	host := Recipe{Format: 1, Release: "r", Suites: []string{"s"}, Packages: []string{"p"},
		Backported: []string{"q"}, DiskMiB: 4096, FilesDigest: "x"}
	for want, r := range map[string]Recipe{
		`{"format":1,"release":"r","kernel":"k","packages":["p"],"programs":["b"],"keep":["f"],` +
			`"links":[{"path":"l","target":"t"}],"modules":["m"],"optional":["o"],"drivers":["d"],` +
			`"files_digest":"x"}`: node,
		`{"format":1,"release":"r","suites":["s"],"packages":["p"],"backported":["q"],"disk_mib":4096,` +
			`"files_digest":"x"}`: host,
	} {
		if got, err := json.Marshal(r); err != nil || string(got) != want {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestErrorsOfBuildingSayWhatToDo(t *testing.T) {
	need(t, "apt-get", "apt")
	cache := t.TempDir()
	full := func(context.Context, Options, string, string, *Image) error {
		return errors.New("mmdebstrap: E: write: No space left on device")
	}
	if _, err := Host.Ensure(t.Context(), Options{Cache: cache, build: full}); err == nil ||
		!strings.HasSuffix(err.Error(), "; free about 4 GB there, or set RACKLESS_CACHE to a directory with "+
			"more space") {
		t.Errorf("a full disk: %v", err)
	}
	if err := os.WriteFile(filepath.Join(cache, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Host.Ensure(t.Context(), Options{Cache: filepath.Join(cache, "file")}); err == nil ||
		!strings.HasSuffix(err.Error(), "; set RACKLESS_CACHE to a directory that can be written") {
		t.Errorf("a cache that is a file: %v", err)
	}
}

func TestMissingToolsAreNamedWithTheirPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkTools("the image")
	if err == nil || !strings.Contains(err.Error(),
		"run: apt-get install --no-install-recommends mmdebstrap qemu-utils qemu-system-x86") {
		t.Errorf("got %v", err)
	}
}

func TestCommandsThatFail(t *testing.T) {
	_, err := run(t.Context(), command{name: "sh",
		args: []string{"-c", "for i in 1 2 3 4 5 6 7 8 9; do echo line $i >&2; done; exit 3"}})
	if err == nil || err.Error() != "sh: exit status 3: line 2; line 3; line 4; line 5; line 6; line 7; line "+
		"8; line 9" {
		t.Errorf("got %v", err)
	}
	if _, err := run(t.Context(), command{name: "false"}); err == nil || err.Error() != "false: exit status 1" {
		t.Errorf("silent: got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupted"))
	if _, err := run(ctx, command{name: "sh", args: []string{"-c", "exit 3"}}); err == nil ||
		err.Error() != "interrupted" {
		t.Errorf("interrupted: got %v", err)
	}
	out, err := run(t.Context(), command{name: "sh", args: []string{"-c", `read x; pwd; echo "$x$Y"`}, dir: "/",
		stdin: "in\n", env: []string{"Y=y"}})
	if err != nil || string(out) != "/\niny\n" {
		t.Errorf("got %q, %v", out, err)
	}
}

// hostLimit allows for busy CPUs.
const hostLimit = 25 * time.Minute

// TestHost builds the image for the tests in cmd/rackless.
func TestHost(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an image: minutes")
	}
	for _, tool := range tools {
		need(t, tool.program, tool.debian)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), hostLimit, errors.New("the test's own limit"))
	defer cancel()
	img, err := Host.Ensure(ctx, Options{Cache: testCache(t), Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Join(img.Packages, "\n")
	for _, p := range img.Recipe.Packages {
		if !strings.Contains("\n"+packages, "\n"+p+"=") {
			t.Errorf("%s is not installed", p)
		}
	}
}

func testCache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("RACKLESS_CACHE"); dir != "" {
		return filepath.Join(dir, "images")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "rackless", "images")
}

// make setup-emulate installs exactly these tools.
func TestSetupInstallsTheToolsOfTheImage(t *testing.T) {
	script, err := os.ReadFile("../../hack/setup.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(script), `if [ "$1" != lab ]; then`)
	block, _, _ := strings.Cut(rest, "\tfi\n")
	none := func(string) (string, error) { return "", os.ErrNotExist }
	for _, p := range append(MissingTools(none), "e2fsprogs", "uidmap") {
		if p != "qemu-system-x86" && !strings.Contains(block, "need "+p+" ") { // every lab needs QEMU
			t.Errorf("hack/setup.sh emulate does not install %s", p)
		}
	}
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(page), "rackless emulate --keep")
	if !strings.Contains(before, "make setup-emulate") {
		t.Error("docs/tutorial.md starts an emulated host before it says make setup-emulate")
	}
}
