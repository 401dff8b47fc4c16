package emulate

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/internal/userdirs"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/image"
)

// testDirs is short, because sockets are below it.
func testDirs(t *testing.T) userdirs.Dirs {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := vm.ProcessesUsing("", dir)
		if err != nil {
			t.Error(err)
		}
		for _, p := range left {
			t.Errorf("process %d still runs with %s in its arguments", p.PID, dir)
			if err := p.Kill(context.Background()); err != nil {
				t.Error(err)
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return userdirs.Dirs{Run: filepath.Join(dir, "run"), Cache: filepath.Join(dir, "cache")}
}

func small(t *testing.T) *Profile {
	t.Helper()
	p, err := ParseProfile("small.yaml", []byte(`
name: small
packages: 1
threads_per_core: 1
numa_nodes: [{cores: 1, memory: 512MiB}, {cores: 1, memory: 512MiB}]
distances: [[10, 20], [20, 10]]
disk: 4GiB
gpus: [{address: "06:00.0", numa_node: 1, audio: true}]
nics: [{address: "41:00.0", numa_node: 1, vfs: 7}]
`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func put(t *testing.T, d userdirs.Dirs, name string, change func(*State)) {
	t.Helper()
	self, err := vm.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Dir: hostDir(d, name), State: State{Version: stateVersion, Name: name, Profile: small(t), Keep: true,
		Ready: true, Owner: self}}
	change(&h.State)
	if err := os.MkdirAll(h.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.save(); err != nil {
		t.Fatal(err)
	}
}

func dead(s *State) { s.Keep, s.Owner.StartTime = false, s.Owner.StartTime+1 }

func TestSweepRemovesWhatKilledOwnersLeftAndNothingElse(t *testing.T) {
	d := testDirs(t)
	put(t, d, "kept", func(*State) {})
	put(t, d, "kept-by-the-dead", func(s *State) { dead(s); s.Keep = true })
	put(t, d, "owned", func(s *State) { s.Keep = false })
	put(t, d, "left", dead)
	gone, err := Sweep(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	left, err := names(d)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"left"}, gone); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"kept", "kept-by-the-dead", "owned"}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestHostsAreEmulatedOnX86Alone(t *testing.T) {
	if err := supported("amd64"); err != nil {
		t.Error(err)
	}
	if err := supported("arm64"); err == nil || !strings.Contains(err.Error(), "one of arm64: labs run here") {
		t.Errorf("on arm64: %v", err)
	}
}

func TestAHostBelongsToWhoStartedIt(t *testing.T) {
	d := testDirs(t)
	put(t, d, "a", func(s *State) { s.Keep = false })
	unlock, err := lock(t.Context(), d, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{Dirs: d, Profile: small(t), Name: "a", Progress: &steps.Progress{}})
	if err == nil || !strings.Contains(err.Error(), "host a belongs to process") || !strings.Contains(err.Error(),
		"say --name for another") {
		t.Errorf("Start: %v", err)
	}
	if _, err := Remove(t.Context(), d, "a"); err == nil || !strings.Contains(err.Error(), "goes with it") {
		t.Errorf("Remove: %v", err)
	}
	unlock()
	if was, err := Remove(t.Context(), d, "a"); !was || err != nil {
		t.Errorf("Remove without an owner at work: %v, %v", was, err)
	}
	if left, err := os.ReadDir(Dir(d)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestAKeptHostIsNotTakenForAnotherMachine(t *testing.T) {
	d := testDirs(t)
	put(t, d, "a", func(*State) {})
	_, err := Start(t.Context(), Options{Dirs: d, Profile: Builtin()[1], Name: "a", Progress: &steps.Progress{}})
	want := "host a is kept and is another machine (small, 2 CPUs, 1GiB; asked for is epyc-7551p, 64 CPUs, 3GiB): " +
		"say --name for another, or remove it with: rackless emulate rm a"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestAHostThatIsNotThereIsSaidWithThoseThatAre(t *testing.T) {
	d := testDirs(t)
	for _, name := range []string{"", ".", "../..", "../a", "A", "a b", strings.Repeat("a", maxName+1)} {
		if _, err := Open(d, name); err == nil || errors.Is(err, ErrNoHost) {
			t.Errorf("Open(%q): %v, want that it is no name", name, err)
		}
		if _, err := Remove(t.Context(), d, name); err == nil {
			t.Errorf("Remove(%q) took it for a name", name)
		}
	}
	_, err := Open(d, "a")
	if want := "host a: no such host; start one with: rackless emulate --keep PROFILE"; !errors.Is(err, ErrNoHost) ||
		err.Error() != want {
		t.Errorf("got %v", err)
	}
	put(t, d, "b", func(*State) {})
	if _, err := Open(d, "a"); !errors.Is(err, ErrNoHost) || !strings.HasSuffix(err.Error(), "there are: b") {
		t.Errorf("got %v", err)
	}
}

func TestAStateThatCannotBeReadDoesNotHideTheOthers(t *testing.T) {
	d := testDirs(t)
	put(t, d, "good", func(*State) {})
	put(t, d, "newer", func(s *State) { s.Version = 99 })
	if err := os.Mkdir(hostDir(d, "begun"), 0o700); err != nil { // being made
		t.Fatal(err)
	}
	hosts, err := List(d)
	if len(hosts) != 1 || hosts[0].Name != "good" {
		t.Errorf("hosts: %v", hosts)
	}
	if err == nil || !strings.Contains(err.Error(),
		"has version 99, this rackless knows 1; remove the host with: rackless emulate rm newer") {
		t.Errorf("error: %v", err)
	}
}

func TestMoreMemoryThanThereIsIsRefusedBeforeAnythingIsMade(t *testing.T) {
	d := testDirs(t)
	p, err := small(t).WithMemory(1 << 49)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Start(t.Context(), Options{Dirs: d, Profile: p, Progress: &steps.Progress{}})
	if err == nil || !strings.Contains(err.Error(), "say --memory with less") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(Dir(d)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestTheSecondDiskHoldsTheProgramAndItsFilesAndIsMadeOnce(t *testing.T) {
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	need(t, "mke2fs")
	need(t, "debugfs")
	dir, src := t.TempDir(), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := write("program", "#!/bin/sh\n")
	write("image/kernel", "a kernel")
	tools := Tools{Program: program, Files: map[string]string{"cache/images/k": filepath.Join(src, "image")}}
	made := 0
	make := func() string {
		t.Helper()
		path, err := MakeTools(t.Context(), dir, tools, func(string) { made++ })
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	first := make()
	for path, want := range map[string]string{"bin/rackless": "#!/bin/sh\n", "cache/images/k/kernel": "a kernel"} {
		out, err := exec.Command("debugfs", "-R", "cat "+path, first).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s holds %q, %v; want %q", path, out, err, want)
		}
	}
	out, err := exec.Command("debugfs", "-R", "stat bin/rackless", first).Output()
	if err != nil || !bytes.Contains(out, []byte("Mode:  0755")) {
		t.Errorf("the program's mode: %s, %v", out, err)
	}
	if out, err := exec.Command("debugfs", "-R", "show_super_stats -h", first).Output(); err != nil ||
		!bytes.Contains(out, []byte("Filesystem volume name:   "+toolsLabel+"\n")) {
		t.Errorf("no label %s: %s, %v", toolsLabel, out, err)
	}
	if again := make(); again != first || made != 1 {
		t.Errorf("made %d times, %s and %s", made, first, again)
	}

	old := time.Now().Add(-2 * toolsAge)
	if err := os.Chtimes(first, old, old); err != nil {
		t.Fatal(err)
	}
	write("program", "#!/bin/sh -e\n")
	second := make()
	if second == first || made != 2 {
		t.Errorf("made %d times, %s and %s", made, first, second)
	}
	if _, err := os.Stat(first); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the old disk: %v, want that it is gone", err)
	}
	if fi, err := os.Stat(second); err != nil || lab.Bytes(fi.Size()) != toolsSize {
		t.Errorf("%v, %v: want %v", fi, err, toolsSize)
	}
}

func bootNode(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("machines are not booted with -short")
	}
	if _, _, err := vm.Find(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	user, err := userdirs.Default(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	img, err := image.Node.Ensure(t.Context(), image.Options{Cache: user.Images(), Progress: func(string) {}})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Dirs: userdirs.Dirs{Run: testDirs(t).Run, Cache: user.Cache}, Accel: "tcg", Boot: Boot{Key: img.Key,
		Kernel: img.KernelPath(), Initrd: img.InitramfsPath(),
		Append: "console=ttyS0 loglevel=3 panic=-1 cryptomgr.notests mitigations=off nokaslr"}}
}

const testLimit = 30 * time.Minute

func TestLifeOfAHost(t *testing.T) {
	o := bootNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	d := testDirs(t)
	var notes []string
	o.Dirs, o.Profile = d, small(t)
	o.Progress = &steps.Progress{Report: func(e steps.Event) {
		if e.Note != "" {
			notes = append(notes, e.Note)
		}
		if e.End {
			t.Logf("%s: %v", e.Step, e.Took.Round(10*time.Millisecond))
		}
	}}
	run := func(h *Host, argv ...string) string {
		t.Helper()
		var out, complaints bytes.Buffer
		exit, err := h.Exec(ctx, []string{"WHO=me"}, argv, []byte("typed"), &out, &complaints)
		if err != nil || exit != 0 {
			t.Fatalf("%q: exit status %d, %v: %s", argv, exit, err, &complaints)
		}
		return strings.TrimSpace(out.String())
	}
	for _, name := range []string{"first", "second"} {
		o.Name = name
		h, err := Start(ctx, o)
		if err != nil {
			t.Fatalf("%v; notes: %q", err, notes)
		}
		if !h.Cloned {
			t.Fatalf("it was booted: %s", h.ColdReason)
		}
		if got := run(h, "sh", "-c", "hostname; echo $WHO; cat"); got != name+"\nme\ntyped" {
			t.Errorf("got %q", got)
		}
		if got := run(h, "sh", "-c", "grep -c . /sys/bus/pci/devices/0000:06:00.0/class "+
			"/sys/bus/pci/devices/0000:41:00.0/class | wc -l"); got != "2" {
			t.Errorf("%s of 2 devices", got)
		}
		run(h, "date", "-s", "@1000000000")
		if err := h.identify(ctx); err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseInt(run(h, "date", "+%s"), 10, 64)
		if off := time.Since(time.Unix(seconds, 0)); err != nil || off.Abs() > time.Hour {
			t.Errorf("its clock is off by %v, %v", off, err)
		}
		if name == "second" {
			again(ctx, t, h, o, run)
		}
		if err := h.Close(ctx, d); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(h.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory: %v, want that it is gone", err)
		}
	}
	if made, err := templates(d, nil).List(); err != nil || len(made) != 1 || made[0].Damaged != nil {
		t.Errorf("templates: %v, %v; want one for both", made, err)
	}
}

func again(ctx context.Context, t *testing.T, h *Host, o Options, run func(*Host, ...string) string) {
	t.Helper()
	const bootID = "/proc/sys/kernel/random/boot_id"
	before := run(h, "cat", bootID)
	if err := h.Boot(ctx, o); err == nil || !strings.Contains(err.Error(), "runs already") {
		t.Errorf("Boot of one that runs: %v", err)
	}
	if err := h.PowerCut(ctx); err != nil {
		t.Fatal(err)
	}
	if h.Running() {
		t.Error("it runs without power")
	}
	if _, err := h.Exec(ctx, nil, []string{"true"}, nil, nil, nil); err == nil || !strings.Contains(err.Error(),
		"is off") {
		t.Errorf("Exec in one that is off: %v", err)
	}
	if err := h.Boot(ctx, o); err != nil {
		t.Fatal(err)
	}
	if h.Cloned || run(h, "cat", bootID) == before {
		t.Error("it was resumed, want a new boot")
	}
	have, err := Open(o.Dirs, h.Name)
	if err != nil || have.Process != h.Process || have.ColdReason == "" {
		t.Errorf("its state: %+v, %v", have, err)
	}
}

// The adapters come back, too. cmd/rackless's TestPowerCut cuts disk and boot loader.
func TestE2EAdaptersComeBackAfterAPowerCut(t *testing.T) {
	storey.E2E(t)
	o := bootNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	r740, err := Find("r740")
	if err != nil {
		t.Fatal(err)
	}
	o.Profile, o.Cold, o.Progress = r740.Scale(20), true, &steps.Progress{}
	h, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(context.WithoutCancel(ctx), o.Dirs); err != nil {
			t.Error(err)
		}
	}()
	has := func(when string) {
		t.Helper()
		var out bytes.Buffer
		exit, err := h.Exec(ctx, nil, []string{"sh", "-c", "ls /sys/class/infiniband"}, nil, &out, &out)
		if err != nil || exit != 0 || out.String() != "mlx5_0\nmlx5_1\n" {
			t.Errorf("%s: exit status %d, %v, RDMA devices %s", when, exit, err, &out)
		}
	}
	has("at the start")
	if err := errors.Join(h.PowerCut(ctx), h.Boot(ctx, o)); err != nil {
		t.Fatal(err)
	}
	has("after the power cut")
}

func TestTemplatesThatHostsStandOnAreInUse(t *testing.T) {
	d := testDirs(t)
	put(t, d, "host", func(s *State) { s.Template = "used" })
	got, err := templates(d, nil).Used()
	if diff := cmp.Diff([]string{"used"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
