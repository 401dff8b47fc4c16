package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/plan/planner"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study/lock"
	"github.com/rackless/rackless/vm"
)

// TestMain runs this test binary as the program if it is called as rackless, by scripts or as up's daemon.
//
// Unless -parallel is set, one more test than there are CPUs runs at a time: tests that start machines wait for them a
// third of the time.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", strconv.Itoa(runtime.GOMAXPROCS(0)+1)); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){"rackless": main})
}

// Scripts of testdata/lab start labs in make test, scripts of testdata/e2e in make test-e2e only; testdata/script needs
// none.
const (
	scripts    = "testdata/script/*.txtar"
	labScripts = "testdata/lab/*.txtar"
	e2eScripts = "testdata/e2e/*.txtar"
)

// cloudImage is for testdata/e2e/cloud.txtar; hack/cloud-image.sh makes it.
const cloudImage = "RACKLESS_CLOUD_IMAGE"

func TestScripts(t *testing.T) {
	runScripts(t, testscript.Run, scripts, nil)
}

// TestLabs runs all but the longest.
func TestLabs(t *testing.T) {
	runLabs(t, testscript.Run, labScripts, isLong)
}

// TestE2ELabs runs scripts that make test leaves out, but for the longest.
func TestE2ELabs(t *testing.T) {
	storey.E2E(t)
	runLabs(t, testscript.Run, e2eScripts, isLong)
}

// isLong is true for full nodes, which build an image first.
func isLong(name string) bool { return strings.HasPrefix(name, "full") }

func isShort(name string) bool { return !isLong(name) }

// inTurn runs scripts one by one. As parallel tests, they would wait behind all others.
type inTurn struct{ *testing.T }

func runInTurn(t *testing.T, p testscript.Params) { testscript.RunT(inTurn{t}, p) }

func (t inTurn) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(inTurn{t}) })
}

func (inTurn) Parallel()     {}
func (inTurn) Verbose() bool { return testing.Verbose() }

func runLabs(t *testing.T, run func(*testing.T, testscript.Params), pattern string, without func(name string) bool) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("labs are not started with -short")
	}
	if _, version, err := vm.Find(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("qemu-system-x86_64 %s: %v", version, err)
		}
		t.Skipf("qemu-system-x86_64 %s cannot be used: %v", version, err)
	}
	runScripts(t, run, pattern, without)
}

func runScripts(t *testing.T, run func(*testing.T, testscript.Params), pattern string, without func(string) bool) {
	t.Helper()
	all, err := filepath.Glob(pattern)
	if without != nil {
		all = slices.DeleteFunc(all, func(path string) bool { return without(filepath.Base(path)) })
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("no scripts %s: %v", pattern, err)
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	small, err := filepath.Abs(smallProfile)
	if err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Abs("../../rack/verify/checks")
	if err != nil {
		t.Fatal(err)
	}
	suites, err := filepath.Abs(filepath.Dir(suitesExpected))
	if err != nil {
		t.Fatal(err)
	}
	cache := os.Getenv("RACKLESS_CACHE")
	if cache == "" { // each machine builds the image once
		d, err := rack.DefaultDirs(os.Getenv, os.Getuid())
		if err != nil {
			t.Fatal(err)
		}
		cache = d.Cache
	}
	run(t, testscript.Params{
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"document": documentCommand,
			"follow": followCommand, "puzzles": puzzlesCommand, "suites": suitesCommand},
		Condition: func(cond string) (bool, error) {
			name, ok := strings.CutPrefix(cond, "env:")
			if !ok {
				return false, fmt.Errorf("no condition %s", cond)
			}
			return os.Getenv(name) != "", nil
		},
		Files: all,
		Setup: func(env *testscript.Env) error {
			// For paths of sockets; a script's own directory is too long.
			run, err := os.MkdirTemp("/tmp", "rl")
			if err != nil {
				return err
			}
			env.Defer(func() { nothingLeft(t, run) })
			env.Setenv("RACKLESS_RUN", run)
			// scripts run studies at the same time as each other
			env.Setenv(lock.Variable, filepath.Base(run))
			env.Setenv("RACKLESS_CACHE", cache)
			env.Setenv("RACKLESS_DATA", filepath.Join(env.WorkDir, "data"))
			env.Setenv("EXAMPLES", examples)
			env.Setenv("SMALL", small)
			env.Setenv("PROGRAMS", programs)
			env.Setenv("SUITES", suites)
			env.Setenv(cloudImage, os.Getenv(cloudImage))
			return nil
		},
	})
}

// nothingLeft fails if a lab or a host outlived its script, and ends it.
func nothingLeft(t *testing.T, run string) {
	left, err := vm.ProcessesUsing("", run)
	if err != nil {
		t.Error(err)
	}
	for _, p := range left {
		t.Errorf("process %d still runs with %s in its arguments", p.PID, run)
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if _, err := rack.DownAll(context.Background(), rack.Dirs{Run: run}); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(run); err != nil {
		t.Error(err)
	}
}

var apps atomic.Int64

func testApp(t *testing.T) (a *app, out, err *bytes.Buffer) {
	t.Helper()
	home := t.TempDir()
	in, openErr := os.Open(os.DevNull)
	if openErr != nil {
		t.Fatal(openErr)
	}
	t.Cleanup(func() { in.Close() })
	out, err = new(bytes.Buffer), new(bytes.Buffer)
	env := map[string]string{
		"HOME": home, "RACKLESS_RUN": filepath.Join(home, "run"), "RACKLESS_CACHE": filepath.Join(home, "cache"),
		lock.Variable: fmt.Sprintf("rackless-test-%d-%d", os.Getpid(), apps.Add(1)),
	}
	return &app{in: in, out: out, err: err, env: func(k string) string { return env[k] }, uid: os.Getuid()}, out, err
}

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			walk(c, f)
		}
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	a, _, _ := testApp(t)
	walk(newRootCmd(a), func(c *cobra.Command) {
		for what, text := range map[string]string{"Short": c.Short, "Long": c.Long, "Example": c.Example} {
			if text == "" {
				t.Errorf("%s has no %s", c.CommandPath(), what)
			}
		}
		if strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: Short ends with a full stop: %q", c.CommandPath(), c.Short)
		}
		if c.Name() == "help" || c.Parent() != nil && c.Parent().Name() == "completion" {
			return // cobra's own help
		}
		for line := range strings.Lines(c.Long) {
			if len(line) > 101 {
				t.Errorf("%s: line of %d characters in Long: %q", c.CommandPath(), len(line), line)
			}
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "rackless") {
				t.Errorf("%s: example %q: want two spaces and a call of rackless", c.CommandPath(), line)
			}
		}
	})
}

func TestEveryFileOfHelpHasItsCommand(t *testing.T) {
	a, _, _ := testApp(t)
	names := map[string]bool{"lab-daemon.md": true, "emulate-host-daemon.md": true} // hidden commands
	walk(newRootCmd(a), func(c *cobra.Command) { names[helpName(c)] = true })
	files, err := helpFiles.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !names[f.Name()] {
			t.Errorf("help/%s is of no command", f.Name())
		}
	}
}

func TestEveryVisibleCommandStandsInAGroup(t *testing.T) {
	a, _, _ := testApp(t)
	for _, c := range newRootCmd(a).Commands() {
		if !c.Hidden && c.GroupID == "" {
			t.Errorf("%s has no group", c.Name())
		}
	}
}

func TestWrongCommandLinesEndWithStatus2AndSayWhereToReadMore(t *testing.T) {
	tests := []struct{ args, want string }{
		{"puzle", `unknown command "puzle"; did you mean puzzle?`},
		{"deploy pair.yaml", `unknown command "deploy"; did you mean up?`},
		{"destroy", `unknown command "destroy"; did you mean down?`},
		{"status", `unknown command "status"; did you mean ls?`},
		{"attach vm00", `unknown command "attach"; did you mean exec?`},
		{"scp a vm00:", `unknown command "scp"; did you mean cp?`},
		{"ps", `unknown command "ps"; did you mean ls?`},
		{"image bild", `image: unknown command "bild"; did you mean build?`},
		{"lab nothing-like-it", `lab: unknown command "nothing-like-it"`},
		{"up", "up: there is no lab file in this directory"},
		{"up a.yaml b.yaml", "up: want one LAB.yaml, have 2 arguments"},
		{"up --overcomit a.yaml", "up: unknown flag: --overcomit; did you mean --overcommit?"},
		{"up --accel hvf a.yaml", `up: invalid argument "hvf" for "--accel" flag: want auto, kvm or tcg`},
		{"ls -o xml", `ls: invalid argument "xml" for "-o, --output" flag: want text, json or yaml`},
		{"ls a b", "ls: want at most one lab, have 2 arguments"},
		{"ls --json", "ls: unknown flag: --json; did you mean -o json?"},
		{"plan --whatif", "plan: unknown flag: --whatif, which has left: edit the lab file, and plan again"},
		{"up -f a.yaml", "up: unknown shorthand flag: 'f' in -f; files are given without a flag"},
		{"study query -o xml x", `study query: invalid argument "xml" for "-o, --output" flag: want table, csv`},
		{"ls -z", "ls: unknown shorthand flag: 'z' in -z"},
		{"down", "down: want names of labs, lab files, or --all"},
		{"down pair --all", "down: want names of labs, lab files, or --all"},
		{"exec", "exec: want a node and a command: rackless exec NODE -- COMMAND"},
		{"exec vm00 --", "exec: want a command after --, or nothing after the node for a shell"},
		{"exec", "exec: want a node and a command"},
		{"logs", "logs: want a node, or with --daemon a lab; have 0 arguments"},
		{"logs vm00 --qemu --daemon", "logs: --qemu and --daemon are two logs: say one of them"},
		{"logs vm00 --lines -1", "logs: --lines -1: want 0 (all) or more"},
		{"link show --interval 1ms", "link show: --interval 1ms: want 100ms or more"},
		{"gpu fault vm00", "gpu fault: want --kind or --clear"},
		{"gpu fault vm00 --kind lost --clear", "gpu fault: want --kind or --clear"},
		{"gpu fault vm00 --clear --for 5s", "gpu fault: --for 5s: it is a time after which a --kind ends"},
		{"nic fault vm00", "nic fault: want --kind or --clear"},
		{"nic fault vm00 --kind cable --clear", "nic fault: want --kind or --clear"},
		{"nic fault vm00 --clear --for 5s", "nic fault: --for 5s: it is a time after which a --kind ends"},
		{"capture --snaplen -1", "capture: --snaplen -1: want 0 (whole frames) or more"},
		{"capture --snaplen 8 --node vm00", "capture: --snaplen 8: --node goes by the addresses, which are the first " +
			"12 bytes"},
		{"capture --duration -1s", "capture: --duration -1s: want more than 0"},
		{"capture a b", "capture: want at most one lab, have 2 arguments"},
		{"doctor now", "doctor: want no argument, have 1 argument"},
		{"image rm", "image rm: want keys, which rackless image ls shows, or --all"},
		{"image rm --all 8c41225de07c4423", "image rm: want keys, which rackless image ls shows, or --all"},
		{"completion bash zsh", "completion bash: "},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), strings.Fields(tt.args)); code != exitUsage {
				t.Errorf("exit status %d, want %d", code, exitUsage)
			}
			if got := stderr.String(); !strings.HasPrefix(got, "rackless: "+tt.want) ||
				!strings.Contains(got, "\nsee: rackless") {
				t.Errorf("got %q, want %q and where to read more", got, "rackless: "+tt.want)
			}
			if out.Len() > 0 {
				t.Errorf("standard output: %q", out)
			}
		})
	}
}

func TestWithoutLabsVerbsSayHowToGetOne(t *testing.T) {
	const up = "bring one up with: rackless up LAB.yaml"
	tests := []struct {
		args    string
		code    int
		out     string
		wantErr string
	}{
		{"ls", 0, "no lab is running; " + up + "\n", ""},
		{"ls -o json", 0, "{\n  \"labs\": []\n}\n", ""},
		{"ls pair", exitFailed, "", "rackless: lab pair: no such lab is running; " + up + "\n"},
		{"link show", exitFailed, "", "rackless: no lab is running; " + up + "\n"},
		{"link capture", exitFailed, "", "rackless: no lab is running; " + up + "\n"},
		{"exec vm00 true", exitFailed, "", "rackless: node vm00: no lab is running; " + up + "\n"},
		{"exec vm00", exitFailed, "", "rackless: node vm00: no lab is running; " + up + "\n"},
		{"logs pair/vm00", exitFailed, "", "rackless: lab pair: no such lab is running; " + up + "\n"},
		{"down pair", exitFailed, "", "rackless: lab pair is not running, and no other lab is\n"},
		{"down pair other", exitFailed, "", "rackless: lab pair is not running, and no other lab is\n" +
			"lab other is not running, and no other lab is\n"},
		{"down --all", 0, "no lab was running\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			a, out, stderr := testApp(t)
			if code := a.run(t.Context(), strings.Fields(tt.args)); code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if out.String() != tt.out || stderr.String() != tt.wantErr {
				t.Errorf("got %q and %q, want %q and %q", out, stderr, tt.out, tt.wantErr)
			}
		})
	}
}

// The name of a lab becomes a directory that down deletes.
func TestNamesThatAreNoneNeverReachTheDisk(t *testing.T) {
	for _, name := range []string{"", "PAIR", "a b", "pair\n", "-", strings.Repeat("a", 21), "~", "*"} {
		t.Run(name, func(t *testing.T) {
			a, _, _ := testApp(t)
			want := exitUsage
			if name == "-" { // of valid letters, but no name
				want = exitFailed
			}
			if code := a.run(t.Context(), []string{"down", "--", name}); code != want {
				t.Errorf("exit status %d, want %d", code, want)
			}
		})
	}
	for _, path := range []string{"..", ".", "/", "../pair", "./"} {
		if _, err := planner.LabName(path); err == nil {
			t.Errorf("LabName(%q) took it for a name", path)
		}
	}
}

func TestInterruptedIsSaid(t *testing.T) {
	a, _, stderr := testApp(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := a.run(ctx, []string{"link", "show"}); code != exitFailed || !strings.HasPrefix(stderr.String(),
		"rackless: interrupted: ") {
		t.Errorf("got status %d, %q", code, stderr)
	}
}
