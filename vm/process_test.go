package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "stand-in" {
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin) // only the end matters
		os.Exit(0)
	}
	if len(os.Args) > 2 && os.Args[1] == "stand-in-qemu" {
		standInQEMU(os.Args[2:])
	}
	if len(os.Args) == 3 && os.Args[1] == "stand-in-starter" {
		if err := standInStarter(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type standIn struct {
	cmd *exec.Cmd
	Process
	in   io.Closer // closing it ends the process
	gone bool
}

func start(t *testing.T, name string, args ...string) *standIn {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if name == "" {
		name = self
	}
	cmd := &exec.Cmd{Path: self, Args: append([]string{name, "stand-in"}, args...)}
	if base := filepath.Base(name); strings.ContainsAny(base, " ()") {
		// comm is from the file, not the argument
		cmd.Path = filepath.Join(t.TempDir(), base)
		if err := os.Link(self, cmd.Path); err != nil {
			b, readErr := os.ReadFile(self) // on another file system
			if err := errors.Join(readErr, os.WriteFile(cmd.Path, b, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &standIn{cmd: cmd, in: in}
	t.Cleanup(func() { in.Close(); s.reap() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	s.Process, err = FindProcess(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *standIn) reap() {
	if !s.gone {
		_ = s.cmd.Wait() // the test knows how it ended
		s.gone = true
	}
}

// limited ends a hanging test.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, errors.New("the test's own limit"))
	t.Cleanup(cancel)
	return ctx
}

func TestProcessIsKnownByMoreThanItsNumber(t *testing.T) {
	c := start(t, "")
	if !c.Alive() {
		t.Fatal("a running process is not alive")
	}
	for name, other := range map[string]Process{
		"a process that had the number before":   {c.PID, c.StartTime - 1, c.BootID},
		"one that will have it later":            {c.PID, c.StartTime + 1, c.BootID},
		"one of another boot of the machine":     {c.PID, c.StartTime, "00000000-0000-4000-8000-000000000000"},
		"one of a state file without a boot":     {c.PID, c.StartTime, ""},
		"a number that nobody has":               {1 << 30, c.StartTime, c.BootID},
		"number 0, which is a group for kill(2)": {0, c.StartTime, c.BootID},
		"number -1, which is everybody":          {-1, c.StartTime, c.BootID},
		"the zero value":                         {},
	} {
		t.Run(name, func(t *testing.T) {
			if other.Alive() {
				t.Error("is alive")
			}
			if err := other.Signal(syscall.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("signal: got %v, want %v", err, os.ErrProcessDone)
			}
			if err := other.Kill(limited(t)); err != nil {
				t.Errorf("kill: %v, want nothing to do", err)
			}
			if err := other.Wait(limited(t)); err != nil {
				t.Errorf("wait: %v", err)
			}
			if !c.Alive() {
				t.Fatal("the process that has the number now was hit")
			}
		})
	}
}

func TestZombieIsNotAlive(t *testing.T) {
	c := start(t, "")
	if err := c.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(limited(t)); err != nil {
		// a child never waited for is a zombie
		t.Fatal(err)
	}
	if s, err := procStat(c.PID); err != nil || s.State != "Z" {
		t.Fatalf("state %q, %v, want a zombie", s.State, err)
	}
	if c.Alive() {
		t.Error("a zombie is alive")
	}
	if err := c.Settle(limited(t)); err != nil {
		t.Errorf("a zombie settles: %v", err)
	}
	if err := c.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a zombie: %v", err)
	}
	c.reap()
	if c.Alive() {
		t.Error("a process that is gone is alive")
	}
	if _, err := FindProcess(c.PID); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("find a process that is gone: %v", err)
	}
}

func TestKillReturnsWhenTheProcessIsGone(t *testing.T) {
	for range 10 {
		c := start(t, "")
		if err := c.Kill(limited(t)); err != nil {
			t.Fatal(err)
		}
		if c.Alive() {
			t.Fatal("alive after kill")
		}
		if err := c.Kill(limited(t)); err != nil {
			t.Errorf("second kill: %v", err)
		}
	}
}

func TestKillEndsAStoppedProcess(t *testing.T) {
	c := start(t, "")
	if err := c.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(limited(t)); err != nil || c.Alive() {
		t.Errorf("got %v, alive %v", err, c.Alive())
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	c := start(t, "")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, errors.New("too slow"))
	defer cancel()
	want := fmt.Sprintf("wait for process %d to end: too slow", c.PID)
	if err := c.Wait(ctx); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// The program chooses it, unquoted.
func TestStatWithAnyCommandName(t *testing.T) {
	for _, name := range []string{"with space", "a) Z 1 2 3", "((()))", ") ("} {
		t.Run(name, func(t *testing.T) {
			c := start(t, "/"+name)
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.PID)); err != nil || string(b) != name+"\n" {
				t.Fatalf("the process is called %q, %v: the test tests nothing", b, err)
			}
			other := start(t, "")
			if !c.Alive() || c.StartTime > other.StartTime || other.StartTime-c.StartTime > 100*20 {
				// 100 ticks a second
				t.Errorf("alive %v, started at %d, the next child at %d", c.Alive(), c.StartTime, other.StartTime)
			}
		})
	}
}

func TestTheEndOfAProcess(t *testing.T) {
	dir := t.TempDir()
	const rest = " 1 1 1 0 -1 %s 1 1 1 1 1 1 1 1 20 0 %s 0 700" // up to the start time
	with := func(flags, command, state, threads string) string {
		return "7 (" + command + ") " + state + fmt.Sprintf(rest, flags, threads) + strings.Repeat(" 1", 25)
	}
	line := func(command, state, threads string) string { return with("4194560", command, state, threads) }
	for name, tt := range map[string]struct {
		in            string
		exiting, over bool
	}{
		"a process that sleeps":                    {line("qemu", "S", "5"), false, false},
		"a command like a zombie":                  {line("x) Z 1 1 1 0", "R", "1"), false, false},
		"a zombie":                                 {line("qemu", "Z", "1"), true, true},
		"a first thread that waits for the others": {line("qemu", "Z", "3"), true, false},
		"one that closes its files":                {with("4194564", "qemu", "R", "1"), true, false},
	} {
		if err := os.MkdirAll(filepath.Join(dir, "7"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "7", "stat"), []byte(tt.in), 0o644); err != nil {
			t.Fatal(err)
		}
		proc, err := procfs.NewFS(dir)
		if err != nil {
			t.Fatal(err)
		}
		p, err := proc.Proc(7)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Stat()
		if err != nil || s.Starttime != 700 || isExiting(s) != tt.exiting || isOver(s) != tt.over {
			t.Errorf("%s: got %+v, exiting %v, over %v, %v", name, s, isExiting(s), isOver(s), err)
		}
	}
	if s, err := procStat(1 << 30); err == nil {
		t.Errorf("of no process: %+v", s)
	}
}

// A process just started by a killed rackless must not be missed, as QEMU was once in some hundred times.
func TestProcessesUsingFindsWhatIsBeingStarted(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tries := 1000
	if testing.Short() {
		tries = 100
	}
	dir := t.TempDir()
	startAndFind := func(text string) error {
		cmd := exec.Command(self, "stand-in", text)
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		found, err := ProcessesUsing("", text)
		if err != nil || len(found) != 1 || found[0].PID != cmd.Process.Pid {
			err = fmt.Errorf("process %d: found %v, %v", cmd.Process.Pid, found, err)
		}
		in.Close()
		return errors.Join(err, cmd.Wait())
	}
	const beside = 4
	var workers sync.WaitGroup
	for w := range beside {
		workers.Go(func() {
			for i := w; i < tries; i += beside {
				if err := startAndFind(fmt.Sprintf("%s/being-started-%d.", dir, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
}

func TestProcessesUsingFindsByProgramAndArgument(t *testing.T) {
	dir := t.TempDir()
	c := start(t, "/usr/bin/qemu-system-fake", "-chardev", "id=con,logfile="+dir+"/lab/vm00/console.log")
	neighbour := start(t, "/usr/bin/qemu-system-fake", "-chardev", "id=con,logfile="+dir+"/lab2/vm00/console.log")
	start(t, "/usr/bin/tail", "-f", "logfile="+dir+"/lab/vm00/console.log") // an observing user
	start(t, "/usr/bin/qemu-system-fake", "something else")

	find := func(program, text string) []Process {
		t.Helper()
		got, err := ProcessesUsing(program, text)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b Process) int { return a.PID - b.PID })
		return got
	}
	if got := find("qemu-system", "logfile="+dir+"/lab/"); !slices.Equal(got, []Process{c.Process}) {
		t.Errorf("got %v, want %v alone", got, c.Process)
	}
	if got := find("qemu-system", "logfile="+dir+"/lab"); !slices.Contains(got, c.Process) ||
		!slices.Contains(got, neighbour.Process) || len(got) != 2 {
		t.Errorf("by the start of both names: got %v", got)
	}
	if got := find("", "\x00logfile="+dir+"/lab/vm00/console.log\x00"); len(got) != 1 { // a whole argument
		t.Errorf("by a whole argument: got %v, want the one who looks on", got)
	}
	if got := find("qemu-system-fak", "stand-in\x00-chardev\x00"); len(got) != 2 {
		t.Errorf("by arguments in a row: got %v, want 2", got)
	}
	if got := find(dir, ""); len(got) != 0 {
		t.Errorf("no such program: got %v", got)
	}
	if err := c.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(limited(t)); err != nil {
		t.Fatal(err)
	}
	if got := find("qemu-system", "logfile="+dir+"/lab/"); len(got) != 0 {
		t.Errorf("a zombie: got %v", got)
	}
}
