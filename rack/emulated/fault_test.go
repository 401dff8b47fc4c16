package emulated

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
)

// TestMain lets the test binary act as the daemon, which Up starts, and as an "up" that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && (os.Args[1] == DaemonCommand || os.Args[1] == "up") {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		var err error
		if os.Args[1] == DaemonCommand {
			err = RunDaemon(ctx, os.Args[2], os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		} else {
			err = upFile(ctx, os.Args[2])
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func upFile(ctx context.Context, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	l, err := lab.Parse(path, b)
	if err != nil {
		return err
	}
	d, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	r, err := rack.Up(ctx, d, l, rack.Options{Accel: "tcg", Progress: func(e rack.Event) {
		if e.Note == "" && !e.End && e.Total == 0 {
			fmt.Println(e.Step)
		}
	}})
	if err != nil {
		return err
	}
	return r.Close()
}

type place struct {
	rack.Dirs
	t   *testing.T
	tmp string // TMPDIR of the children
}

// newPlace also makes image and template.
func newPlace(t *testing.T) *place {
	t.Helper()
	if testing.Short() {
		t.Skip("starts machines")
	}
	if _, _, err := vm.Find(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	d, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.MkdirTemp("", "rlf") // leaves room for sockets
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, tmp: filepath.Join(base, "tmp")}
	p.Dirs = rack.Dirs{Run: filepath.Join(base, "run"), Cache: d.Cache, Data: filepath.Join(base, "data")}
	if err := os.Mkdir(p.tmp, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := rack.DownAll(context.Background(), p.Dirs); err != nil {
			t.Error(err)
		}
		p.nothingLeft()
		os.RemoveAll(base)
	})
	return p
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Minute, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

func parse(t *testing.T, name string, nodes int) *lab.Lab {
	t.Helper()
	l, err := lab.Parse("lab.yaml", []byte(text(name, nodes)))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func text(name string, nodes int) string {
	return fmt.Sprintf("name: %s\nnodes:\n  vm: {count: %d, nic: virtio}\n", name, nodes)
}

func (p *place) up(l *lab.Lab, o rack.Options) error {
	p.t.Helper()
	o.Accel = "tcg"
	r, err := rack.Up(limited(p.t), p.Dirs, l, o)
	if err != nil {
		return err
	}
	return r.Close()
}

// child's steps, if set, gets the names of steps as they begin.
func (p *place) child(name string, nodes int, steps io.Writer, env ...string) (*exec.Cmd, *bytes.Buffer) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), "lab.yaml")
	if err := os.WriteFile(file, []byte(text(name, nodes)), 0o644); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command(self, "up", file)
	cmd.Env = append(os.Environ(), append([]string{"RACKLESS_RUN=" + p.Run, "RACKLESS_CACHE=" + p.Cache,
		"RACKLESS_DATA=" + p.Data, "TMPDIR=" + p.tmp}, env...)...)
	said := new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = steps, said
	cmd.WaitDelay = 100 * time.Millisecond
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd, said
}

func (p *place) usable(l *lab.Lab) {
	p.t.Helper()
	r, err := rack.Open(p.Dirs, l.Name)
	if err != nil {
		p.t.Error(err)
		return
	}
	defer r.Close()
	if !r.State.Ready || !whole(r.State, nil) || len(r.State.Nodes) != len(l.Nodes) {
		p.t.Errorf("lab %s is up but not whole: %+v", l.Name, r.State)
	}
	for i, n := range l.Nodes {
		peer := l.Nodes[(i+1)%len(l.Nodes)]
		res, err := r.Run(limited(p.t), n.Name, guest.Command{Argv: []string{"sh", "-c", "hostname && ping -qc1 -W10 " +
			peer.NICs[0].Addr.Addr().String()}})
		if err != nil || res.ExitCode != 0 || !strings.HasPrefix(string(res.Stdout), n.Name+"\n") {
			p.t.Errorf("node %s to %s: %v, exit status %d: %s%s", n.Name, peer.Name, err, res.ExitCode, res.Stdout,
				res.Stderr)
		}
	}
}

func (p *place) processes(name string) []vm.Process {
	p.t.Helper()
	procs, err := vm.ProcessesUsing("", filepath.Join(p.Run, name)+"/")
	if err != nil {
		p.t.Fatal(err)
	}
	daemon := DaemonCommand + "\x00" + p.Run + "/"
	if name != "" {
		daemon += name + "\x00"
	}
	daemons, err := vm.ProcessesUsing("", daemon)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, d := range daemons {
		if !slices.Contains(procs, d) {
			procs = append(procs, d)
		}
	}
	return procs
}

func (p *place) nothingLeft() {
	p.t.Helper()
	for _, proc := range p.processes("") {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", proc.PID)) // only for the message
		p.t.Errorf("process %d is left: %q", proc.PID, cmdline)
		if err := proc.Kill(context.Background()); err != nil {
			p.t.Error(err)
		}
	}
	for _, dir := range []string{p.Run, p.tmp} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && path != dir {
				p.t.Errorf("%s is left", path)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Error(err)
		}
	}
}

func (p *place) down(name string) {
	p.t.Helper()
	if _, err := rack.Down(limited(p.t), p.Dirs, name); err != nil {
		p.t.Errorf("down %s: %v", name, err)
	}
}

var kills = flag.Int("kills", 10, "with -e2e, how often a rackless is killed in the middle of up, at moments that "+
	"chance chooses")

// The next rackless either completes the lab or removes all of it.
func TestKilledAtAnyMoment(t *testing.T) {
	killedInUp(t, 2)
}

func TestE2EKilledAtAnyMoment(t *testing.T) {
	storey.E2E(t)
	killedInUp(t, *kills)
}

func killedInUp(t *testing.T, kills int) {
	t.Helper()
	p := newPlace(t)
	l := parse(t, "kill", 2)
	if err := p.up(l, rack.Options{}); err != nil { // makes missing images and templates
		t.Fatal(err)
	}
	p.down(l.Name)
	began := time.Now()
	if err := p.up(l, rack.Options{}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	p.down(l.Name)
	p.nothingLeft()

	random := storey.Rand(t)
	// In each part of the time, in random order.
	for i, part := range random.Perm(kills) {
		after := time.Duration((float64(part) + random.Float64()) / float64(kills) * 1.1 * float64(whole))
		what := fmt.Sprintf("kill %d, after %v of about %v", i, after, whole)
		cmd, _ := p.child(l.Name, len(l.Nodes), nil)
		time.Sleep(after) // the moment matters
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, or finished before that
		if i%2 == 0 {
			if err := p.up(l, rack.Options{}); err != nil {
				t.Errorf("%s: up again: %v", what, err)
			}
			p.usable(l)
			if n := len(p.processes(l.Name)); n != 3 {
				t.Errorf("%s: %d processes after up, want two nodes and a daemon", what, n)
			}
		}
		p.down(l.Name)
		p.nothingLeft()
		if t.Failed() {
			t.Fatal(what)
		}
	}
}

type notify struct {
	line string
	f    func()
	mu   sync.Mutex
	all  string
	done bool
}

func (n *notify) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all += string(b)
	if !n.done && strings.Contains(n.all, n.line+"\n") {
		n.done = true
		n.f()
	}
	return len(b), nil
}

func TestInterruptedUpLeavesNothing(t *testing.T) {
	p := newPlace(t)
	for _, step := range []string{"image", "template", "switch", "nodes", "reach"} {
		t.Run(step, func(t *testing.T) {
			reached := make(chan struct{})
			cmd, said := p.child("int", 2, &notify{line: step, f: func() { close(reached) }})
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-reached:
			case err := <-ended:
				t.Fatalf("it ended before step %s: %v: %s", step, err, said)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			if err := <-ended; err == nil {
				p.down("int") // it finished before the signal
			} else if !strings.Contains(said.String(), "interrupt") && !strings.Contains(said.String(), "cancel") {
				t.Errorf("it said %q", said)
			}
			p.nothingLeft()
			if p.t.Failed() {
				t.Fail()
			}
		})
	}
}

// wrap replaces QEMU with a script. Only cloned machines run all of it.
func (p *place) wrap(script string) {
	p.t.Helper()
	path, _, err := vm.Find()
	if err != nil {
		p.t.Fatal(err)
	}
	dir := p.t.TempDir()
	text := "#!/bin/sh\nreal=" + path + "\ncase \"$*\" in *-incoming*) ;; *) exec $real \"$@\" ;; esac\n" + script +
		"\n"
	if err := os.WriteFile(filepath.Join(dir, "qemu-system-x86_64"), []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
	p.t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestNodesThatFail(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		limit  time.Duration
		want   []string
	}{
		"a QEMU that ends at once": {
			"echo 'could not open the sky' >&2; exit 1", 0, []string{"QEMU for vm0", "could not open the sky"},
		},
		"a QEMU that dies a moment later": {
			`sh -c "sleep 0.25; kill -9 $$" </dev/null >/dev/null 2>&1 & exec $real "$@" -S`, 0, []string{"vm0"},
		},
		"a node that never answers": {
			`exec $real "$@" -S`, 1500 * time.Millisecond, []string{"node vm0", "did not answer within 1.5s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.wrap(tt.script)
			err := p.up(parse(t, "fail", 2), rack.Options{NodeLimit: tt.limit})
			if err == nil {
				t.Fatal("the lab is up")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %v, want %q in it", err, w)
				}
			}
			if tt.limit == 0 && strings.Contains(err.Error(), "did not answer within") {
				t.Errorf("the end of QEMU was not noticed: %v", err)
			}
			p.nothingLeft()
		})
	}
}

func TestNodeThatDiesLaterIsMadeAgain(t *testing.T) {
	p := newPlace(t)
	l := parse(t, "again", 2)
	if err := p.up(l, rack.Options{}); err != nil {
		t.Fatal(err)
	}
	r, err := rack.Open(p.Dirs, l.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := r.State.Nodes
	if err := before[1].Process.Kill(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.State.Daemon.Kill(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.up(l, rack.Options{}); err != nil {
		t.Fatal(err)
	}
	p.usable(l)
	after, err := rack.Open(p.Dirs, l.Name)
	if err != nil {
		t.Fatal(err)
	}
	if after.State.Nodes[0].Process != before[0].Process {
		t.Error("the node that lived was made again")
	}
}

func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a small file system takes root")
		}
		t.Skip("mounting a small file system takes root")
	}
	p := newPlace(t)
	if err := os.Mkdir(p.Run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("rackless-test", p.Run, "tmpfs", 0, "size=64k"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v", err) // a container may forbid it
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(p.Run, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(p.Run, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	l := parse(t, "full", 2)
	err := p.up(l, rack.Options{})
	if err == nil || !strings.Contains(err.Error(), p.Run) || !strings.Contains(err.Error(),
		"no space left on device; free space there, or set RACKLESS_RUN") {
		t.Errorf("got %v", err)
	}
	if procs := p.processes(""); len(procs) != 0 {
		t.Errorf("left: %v", procs)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := p.up(l, rack.Options{}); err != nil {
		t.Errorf("with space again: %v", err)
	}
	p.down(l.Name)
	p.nothingLeft()
}

func TestManyWorkOnOneLab(t *testing.T) {
	p := newPlace(t)
	l := parse(t, "many", 2)
	t.Run("two ups", func(t *testing.T) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if err := p.up(l, rack.Options{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		p.usable(l)
		if n := len(p.processes(l.Name)); n != 3 {
			t.Errorf("%d processes, want two nodes and a daemon", n)
		}
		p.down(l.Name)
	})
	t.Run("a down while an up works waits for it", func(t *testing.T) {
		var was bool
		var downErr error
		var wg sync.WaitGroup
		var once sync.Once
		err := p.up(l, rack.Options{Progress: func(e rack.Event) {
			if e.Step == "nodes" {
				once.Do(func() { wg.Go(func() { was, downErr = rack.Down(limited(t), p.Dirs, l.Name) }) })
			}
		}})
		wg.Wait()
		if err != nil || downErr != nil || !was {
			t.Errorf("up: %v, down: %v, %v", err, was, downErr)
		}
		p.nothingLeft()
	})
	t.Run("a down of all while a lab is nothing but a lock", func(t *testing.T) {
		var gone []string
		var downErr error
		var wg sync.WaitGroup
		var once sync.Once
		err := p.up(l, rack.Options{Progress: func(e rack.Event) {
			if e.Step == "image" {
				once.Do(func() { wg.Go(func() { gone, downErr = rack.DownAll(limited(t), p.Dirs) }) })
			}
		}})
		wg.Wait()
		if err != nil || downErr != nil {
			t.Errorf("up: %v, down: %v", err, downErr)
		}
		if len(gone) == 0 { // it looked before there was a lock
			p.down(l.Name)
		}
		p.nothingLeft()
	})
}

func TestLabsWithNamesLikeOthers(t *testing.T) {
	p := newPlace(t)
	short, long := parse(t, "a", 1), parse(t, "ab", 1)
	for _, l := range []*lab.Lab{short, long} {
		if err := p.up(l, rack.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	p.down(short.Name)
	if n := len(p.processes(short.Name)); n != 0 {
		t.Errorf("%d processes of lab a are left", n)
	}
	p.usable(long)
	// "" comes from an unset variable
	for _, name := range []string{"", ".", "..", "a/b", "../run/ab"} {
		if _, err := rack.Down(limited(t), p.Dirs, name); err == nil || !strings.Contains(err.Error(),
			"not a name of a lab") {
			t.Errorf("down %q: %v", name, err)
		}
		if _, err := rack.Open(p.Dirs, name); err == nil {
			t.Errorf("open %q", name)
		}
	}
	p.usable(long)
	gone, err := rack.DownAll(limited(t), p.Dirs)
	if err != nil || !slices.Equal(gone, []string{"ab"}) {
		t.Errorf("down of all: %v, %v", gone, err)
	}
	if _, err := os.Stat(p.Run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", p.Run, err)
	}
	if gone, err := rack.DownAll(limited(t), p.Dirs); err != nil || len(gone) != 0 {
		t.Errorf("once more: %v, %v", gone, err)
	}
}
