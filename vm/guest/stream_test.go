package guest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

type shellAgent struct {
	shell  string // runs sh
	env    []string
	leader bool

	mu    sync.Mutex
	files map[int64]*os.File
	runs  map[int]*run
	next  int64
}

type run struct {
	out, err bytes.Buffer
	done     chan struct{}
	cmd      *exec.Cmd
}

func newShellAgent() *shellAgent {
	return &shellAgent{shell: "sh", files: make(map[int64]*os.File), runs: make(map[int]*run)}
}

func (g *shellAgent) Done() <-chan struct{} { return nil }
func (g *shellAgent) Close() error          { return nil }

func (g *shellAgent) Call(_ context.Context, command string, args, result any) error {
	var a struct {
		Path   string   `json:"path"`
		Arg    []string `json:"arg"`
		Input  []byte   `json:"input-data"`
		PID    int      `json:"pid"`
		Mode   string   `json:"mode"`
		Handle int64    `json:"handle"`
		Count  int      `json:"count"`
	}
	b, err := json.Marshal(args)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return err
	}
	var answer any
	g.mu.Lock()
	defer g.mu.Unlock()
	switch command {
	case "guest-exec":
		if a.Path == "sh" && g.shell != "sh" {
			a.Path, a.Arg = g.shell, append([]string{"sh"}, a.Arg...)
		}
		r := &run{cmd: exec.Command(a.Path, a.Arg...), done: make(chan struct{})}
		// A service has no home.
		environ := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOME=") })
		r.cmd.Env = append(environ, g.env...)
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: g.leader}
		r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(a.Input), &r.out, &r.err
		if err := r.cmd.Start(); err != nil {
			return err
		}
		go func() { _ = r.cmd.Wait(); close(r.done) }()
		g.runs[r.cmd.Process.Pid] = r
		answer = map[string]int{"pid": r.cmd.Process.Pid}
	case "guest-exec-status":
		r := g.runs[a.PID]
		select {
		case <-r.done:
			w := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
			st := status{Exited: true, Out: base64.StdEncoding.EncodeToString(r.out.Bytes()),
				Err: base64.StdEncoding.EncodeToString(r.err.Bytes())}
			if st.ExitCode = w.ExitStatus(); w.Signaled() {
				st.ExitCode, st.Signal = 0, int(w.Signal())
			}
			answer = st
		default:
			answer = status{}
		}
	case "guest-file-open":
		flags := os.O_RDONLY
		if a.Mode == "w+" {
			flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
		}
		f, err := os.OpenFile(a.Path, flags, 0o666)
		if err != nil {
			return err
		}
		g.next++
		g.files[g.next], answer = f, g.next
	case "guest-file-read":
		buf := make([]byte, a.Count)
		n, err := io.ReadFull(g.files[a.Handle], buf)
		answer = map[string]any{"buf-b64": base64.StdEncoding.EncodeToString(buf[:n]), "eof": err != nil}
	case "guest-file-close":
		err := g.files[a.Handle].Close()
		delete(g.files, a.Handle)
		return err
	}
	if b, err = json.Marshal(answer); err == nil && result != nil {
		err = json.Unmarshal(b, result)
	}
	return err
}

// shells has busybox as in a built-in node, and dash as in a Debian node.
func shells(t *testing.T) map[string]*shellAgent {
	all := map[string]*shellAgent{"sh": newShellAgent(), "sh in a group": newShellAgent()}
	all["sh in a group"].leader = true
	if path, err := exec.LookPath("busybox"); err == nil {
		bin := t.TempDir()
		for _, p := range strings.Fields("sh cat dd mkfifo rm setsid sleep yes") {
			if err := os.Symlink(path, filepath.Join(bin, p)); err != nil {
				t.Fatal(err)
			}
		}
		g := newShellAgent()
		g.shell, g.env = path, []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
		all["busybox"] = g
	}
	return all
}

func TestStream(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcde\n", 5<<16) // 5 MiB: two files
	for name, test := range map[string]struct {
		argv           []string
		stdin          string
		stdout, stderr string
		exit           int
		err            error
	}{
		"both streams and a status": {argv: []string{"sh", "-c", "echo a; echo b >&2; exit 3"}, stdout: "a\n",
			stderr: "b\n", exit: 3},
		"no output":             {argv: []string{"true"}},
		"input and much output": {argv: []string{"cat"}, stdin: large, stdout: large},
		"many short writes": {argv: []string{"sh", "-c", "for i in $(seq 600); do echo $i; done"},
			stdout: seq(600)},
		"a signal":                        {argv: []string{"sh", "-c", "kill -TERM $$"}, exit: 128 + 15},
		"no such program":                 {argv: []string{"no-such-program"}, exit: 127, err: ErrNoProgram},
		"a program with a word of a mark": {argv: []string{"printf", `\000a\000\000`}, stdout: "\x00a\x00\x00"},
		"the end of a command that leaves a process behind": {argv: []string{"sh", "-c", "echo a; sleep 10 & echo b"},
			stdout: "a\nb\n"},
		"much output, and a process that is left behind": {argv: []string{"sh", "-c", "sleep 10 & cat; echo >&2"},
			stdin: large, stdout: large, stderr: "\n"},
		"a home":           {argv: []string{"sh", "-c", "echo $HOME"}, stdout: "/root\n"},
		"no last line end": {argv: []string{"printf", "a"}, stdout: "a"},
	} {
		for shell, g := range shells(t) {
			t.Run(name+" with "+shell, func(t *testing.T) {
				t.Parallel()
				a := NewAgent(g)
				a.Dir = t.TempDir()
				var stdout, stderr bytes.Buffer
				c := Command{Argv: test.argv, Stdin: []byte(test.stdin)}
				exit, err := a.Stream(t.Context(), c, &stdout, &stderr)
				if !errors.Is(err, test.err) || exit != test.exit {
					t.Errorf("exit status %d, error %v", exit, err)
				}
				if stdout.String() != test.stdout || stderr.String() != test.stderr {
					t.Errorf("output is %.80q (%d bytes) and %.80q", stdout.String(), stdout.Len(), stderr.String())
				}
				leavesNothing(t, a.Dir)
			})
		}
	}
}

func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

func leavesNothing(t *testing.T, dir string) {
	t.Helper()
	eventually(t, func() string {
		left, err := filepath.Glob(dir + "/*")
		if err == nil && len(left) == 0 {
			return ""
		}
		return fmt.Sprintf("files are left: %v, %v", left, err)
	})
}

func eventually(t *testing.T, wrong func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		why := wrong()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(why)
		}
	}
}

// An endless program is ended with its process group, also if its shell is gone or its output is not taken.
func TestStreamOfAnEndlessProgram(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	const much = 5 << 20 // more than a file
	for name, test := range map[string]struct {
		script string
		full   func(cancel func()) error
		want   error
	}{
		"by ctx": {"yes %s; true", func(cancel func()) error { cancel(); return nil }, context.Canceled},
		"by ctx, and its shell is gone": {"(yes %s &); sleep 600", func(cancel func()) error { cancel(); return nil },
			context.Canceled},
		"by ctx while nobody reads": {"yes %s; true", func(cancel func()) error { cancel(); select {} },
			context.Canceled},
		"by the end of the output": {"yes %s; true", func(func()) error { return broken }, broken},
	} {
		for shell, g := range shells(t) {
			t.Run(name+" with "+shell, func(t *testing.T) {
				t.Parallel()
				a := NewAgent(g)
				a.Dir = t.TempDir()
				ctx, cancel := context.WithCancel(t.Context())
				n := 0
				w := writer(func(b []byte) (int, error) {
					if n += len(b); n < much {
						return len(b), nil
					}
					return len(b), test.full(cancel)
				})
				argv := []string{"sh", "-c", fmt.Sprintf(test.script, a.Dir)}
				exit, err := a.Stream(ctx, Command{Argv: argv}, w, io.Discard)
				if !errors.Is(err, test.want) || exit != 0 {
					t.Errorf("exit status %d, error %v", exit, err)
				}
				eventually(t, func() string {
					if left, _ := exec.Command("pgrep", "-f", "^yes "+a.Dir).Output(); len(left) > 0 {
						return "it still runs: " + string(left)
					}
					return ""
				})
				leavesNothing(t, a.Dir)
			})
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files []string
		want  string
		err   string
	}{
		"one file":   {[]string{"a\x00MARK."}, "a", ""},
		"nothing":    {[]string{"\x00MARK."}, "", ""},
		"more files": {[]string{"a\x00MARK+", "b\x00MARK+", "\x00MARK."}, "ab", ""},
		"output that begins like a mark": {[]string{"\x00\x00MAR\x00MARK+", "X\x00M\x00MARK."},
			"\x00\x00MARX\x00M", ""},
		"an end in two files":           {[]string{"a\x00MA\x00MARK+", "RK.b"}, "a", ""},
		"a file that cannot be written": {[]string{"a\x00MARK!"}, "a", "pass on the output: the guest cannot keep"},
	} {
		for size := 1; size < 20; size++ {
			var out bytes.Buffer
			s := &stream{mark: "\x00MARK", to: &out}
			var err error
			for _, file := range test.files {
				for more := false; file != "" && !more && err == nil && !s.ended; {
					n := min(size, len(file))
					more, err = s.take(t.Context(), []byte(file[:n]))
					file = file[n:]
				}
			}
			if out.String() != test.want || (err == nil) != (test.err == "") || err == nil && !s.ended ||
				err != nil && !strings.HasPrefix(err.Error(), test.err) {
				t.Errorf("%s, %d bytes at once: output %q, ended %v, error %v", name, size, out.String(), s.ended, err)
			}
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestStreamIsBoundedInTheGuest(t *testing.T) {
	t.Parallel()
	for shell, g := range shells(t) {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			a := NewAgent(g)
			a.Dir = t.TempDir()
			largest := 0
			w := writer(func(b []byte) (int, error) {
				files, err := filepath.Glob(a.Dir + "/*")
				if err != nil {
					return 0, err
				}
				kept := 0
				for _, f := range files {
					if fi, err := os.Stat(f); err == nil { // it may be gone
						kept += int(fi.Size())
					}
				}
				largest = max(largest, kept)
				return len(b), nil
			})
			argv := []string{"dd", "if=/dev/zero", "bs=64k", "count=192"} // 12 MiB
			if exit, err := a.Stream(t.Context(), Command{Argv: argv}, w, io.Discard); exit != 0 || err != nil {
				t.Errorf("exit status %d, error %v", exit, err)
			}
			if most := 4<<20 + 1<<10; largest > most || largest == 0 {
				t.Errorf("the files held up to %d bytes, want at most %d", largest, most)
			}
		})
	}
}

// A stopped guest does not hold its caller for the limit of each call.
func TestStreamOfAStoppedGuest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := NewAgent(stopped{}).Stream(ctx, Command{Argv: []string{"sleep", "600"}}, io.Discard, io.Discard)
		if took := time.Since(began); err == nil || took > answerLimit+2*killLimit {
			t.Errorf("without the end of ctx: %v, after %v", err, took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began = time.Now()
		_, err = NewAgent(stopped{}).Stream(ctx, Command{Argv: []string{"sleep", "600"}}, io.Discard, io.Discard)
		if took := time.Since(began) - 10*time.Second; !errors.Is(err, context.DeadlineExceeded) || took > 3*killLimit {
			t.Errorf("%v, %v after the end of ctx", err, took)
		}
	})
}

type stopped struct{}

func (stopped) Call(ctx context.Context, command string, args, result any) error {
	switch {
	case command == "guest-file-open":
		return json.Unmarshal([]byte("1"), result)
	case command == "guest-exec" && result != nil:
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (stopped) Done() <-chan struct{} { return nil }
func (stopped) Close() error          { return nil }

type endless struct{}

func (endless) Call(_ context.Context, command string, _, result any) error {
	switch command {
	case "guest-file-open":
		return json.Unmarshal([]byte("1"), result)
	case "guest-file-read":
		b := fmt.Appendf(nil, `{"buf-b64": %q}`, base64.StdEncoding.EncodeToString(make([]byte, 100)))
		return json.Unmarshal(b, result)
	}
	return nil
}

func (endless) Done() <-chan struct{} { return nil }
func (endless) Close() error          { return nil }

func TestReadFileOfAnEndlessFile(t *testing.T) {
	t.Parallel()
	if b, err := NewAgent(endless{}).ReadFile(t.Context(), "/sys/x"); err == nil ||
		err.Error() != "read /sys/x: more than 1 MiB" || len(b) > maxFile+readCount {
		t.Errorf("%d bytes, error %v", len(b), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewAgent(endless{}).ReadFile(ctx, "/sys/x"); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// The script refuses init, and processes that it descends from.
func TestKillScriptSparesItsAncestors(t *testing.T) {
	for _, pid := range []int{0, 1, os.Getpid(), os.Getppid()} {
		out, err := exec.Command("sh", "-c", killScript, strconv.Itoa(pid)).CombinedOutput()
		if len(out) > 0 {
			t.Errorf("process %d: %v %s", pid, err, out)
		}
	}
	c := exec.Command("sleep", "100")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-c", killScript, strconv.Itoa(c.Process.Pid)).CombinedOutput(); len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
	if err := c.Wait(); err == nil {
		t.Error("a process that should be killed has ended by itself")
	}
}
