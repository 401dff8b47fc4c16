package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rackless/rackless/internal/statedir"
	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/emulated"
	"github.com/rackless/rackless/study/lock"
	"github.com/rackless/rackless/vm/daemon"
	"github.com/rackless/rackless/vm/emulate"
)

// For files that this test does not replace by an endless one.
const (
	onlyWritten   = "only written"
	asStudyReport = "opened by the same function as for study report" // by a server or beside a lab
)

// readsFiles tells how to pass an endless file (/dev/zero, a link to it, or a FIFO without a writer) to each command
// and flag. "-" first passes it as standard input.
var readsFiles = map[string]string{
	"host adopt --host":               "host adopt vm.xml --dry-run --host /dev/zero",
	"bench baseline check":            "bench baseline check endless",
	"bench baseline check --baseline": "bench baseline check measured --baseline /dev/zero",
	"bench baseline save":             "bench baseline save endless",
	"bench baseline save --out":       onlyWritten,
	"bench":                           "bench /dev/zero",
	"link capture":                    "link capture /dev/zero",
	"link capture --out":              onlyWritten,
	"host check --host":               "host check vm.xml --host /dev/zero",
	"bundle --out":                    onlyWritten,
	"down":                            "down /dev/zero",
	"emulate":                         "emulate /dev/zero",
	"emulate cp":                      "emulate cp /dev/zero try:/root",
	"export":                          "export ansible /dev/zero",
	"export --host":                   "export nova lab.yaml --host /dev/zero",
	"export --out":                    "export nova placed.yaml --host host.ttar --out written",
	"link show":                       "link show /dev/zero",
	"link set":                        "link set /dev/zero --delay 1ms",
	"simulate":                        "simulate /dev/zero",
	"simulate --out":                  onlyWritten,
	"host gpudirect":                  "- host gpudirect -",
	"host gpudirect --host":           "host gpudirect --host /dev/zero",
	"image build --kernel":            "image build --kernel /dev/zero",
	"image export":                    onlyWritten,
	"image export --key":              "image export written --key /dev/zero",
	"image import":                    "image import /dev/zero --digest sha256:00",
	"image import --key":              "image import lab.yaml --key /dev/zero",
	"inspect":                         "- inspect -",
	"inspect --host":                  "inspect --host endless",
	"inspect --save":                  "inspect --host endless --save written",
	"init":                            onlyWritten,
	"lab check":                       "lab check /dev/zero",
	"lab defaults":                    "lab defaults /dev/zero",
	"lab diff":                        "lab diff /dev/zero",
	"mpirun --hostfile":               "mpirun pair --hostfile /dev/zero -- true",
	"nic serve":                       onlyWritten,
	"nic serve --socket":              onlyWritten,
	"run":                             "run /dev/zero -- true",
	"run --copy":                      "run lab.yaml --copy /dev/zero -- true",
	"run --junit":                     onlyWritten,
	"run --out":                       onlyWritten,
	"run --take":                      onlyWritten,
	"puzzle check":                    "puzzle check /dev/zero",
	"puzzle reveal":                   "puzzle reveal /dev/zero",
	"puzzle start":                    onlyWritten,
	"plan":                            "plan /dev/zero",
	"plan --db":                       "plan lab.yaml --host host.ttar --explain --db /dev/zero",
	"plan --model-out":                onlyWritten,
	"plan --against":                  "plan lab.yaml --host host.ttar --against /dev/zero",
	"plan --host":                     "plan lab.yaml --host /dev/zero",
	"plan --model":                    "plan lab.yaml --host host.ttar --model /dev/zero",
	"plan --out":                      "plan lab.yaml --host host.ttar --out written",
	"prepare":                         "prepare /dev/zero",
	"prepare --model":                 "prepare lab.yaml --model /dev/zero",
	"bench show":                      "bench show endless",
	"bench show --out":                onlyWritten,
	"bench check":                     "bench check /dev/zero",
	"bench check --host":              "bench check lab.yaml --host /dev/zero",
	"study import":                    "- study import -",
	"study import --db":               "study import lab.yaml --db /dev/zero",
	"study query --db":                "study query --db /dev/zero SELECT",
	"study raw --db":                  "study raw --db /dev/zero 1",
	"host links --host":               "host links --host /dev/zero",
	"host snapshot":                   onlyWritten,
	"host snapshot --out":             onlyWritten,
	"study ls --db":                   "study ls --db /dev/zero",
	"study report":                    "study report endless.yaml",
	"study report --db":               "study report x --db /dev/zero",
	"study report --out":              onlyWritten,
	"study rm --db":                   "study rm x --db /dev/zero",
	"study run":                       "study run /dev/zero",
	"study merge":                     "study merge /dev/zero parts",
	"study merge --db":                asStudyReport,
	"study run --db":                  asStudyReport,
	"study run --slurm":               onlyWritten,
	"top":                             "top /dev/zero",
	"ui --db":                         asStudyReport,
	"ui --token-file":                 onlyWritten,
	"up":                              "up /dev/zero",
	"up --host":                       "up placed.yaml --host /dev/zero",
	"up --kernel":                     "up virtio.yaml --kernel /dev/zero",
	"verify":                          "verify /dev/zero",
	"verify --plan":                   "verify --plan /dev/zero",
	"verify --host":                   "verify --plan plan.json --host /dev/zero",
}

// Arguments and values of flags in usage lines, and words in the texts of flags.
var (
	namesFile = regexp.MustCompile(`\b(FILE|DIR|DIRECTORY|PATH|HOST|RESULT)\b|\w\.yaml\b`)
	saysFile  = regexp.MustCompile(`\bthis file\b|^file to\b|\bimage to use\b`)
)

// TestEveryVerbReadsAFileWithoutEnd passes /dev/zero with little memory, and a FIFO with a signal. New commands and
// flags that take a file must be in the table.
func TestEveryVerbReadsAFileWithoutEnd(t *testing.T) {
	a, _, _ := testApp(t)
	takes := map[string]bool{}
	walk(newRootCmd(a), func(c *cobra.Command) {
		path := strings.TrimPrefix(c.CommandPath(), "rackless ")
		if _, args, ok := strings.Cut(c.Use, " "); ok && namesFile.MatchString(args) {
			takes[path] = true
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, text := pflag.UnquoteUsage(f)
			switch f.Value.Type() {
			case "string", "stringArray", "stringSlice":
				if namesFile.MatchString(name) || saysFile.MatchString(text) {
					takes[path+" --"+f.Name] = true
				}
			}
		})
	})
	for what := range takes {
		if readsFiles[what] == "" {
			t.Errorf("%s takes a file: say in readsFiles how it gets one without end", what)
		}
	}
	ways := slices.Sorted(maps.Keys(readsFiles))
	run := ways
	if testing.Short() {
		run = storey.Some(storey.Rand(t), ways, len(ways)/6)
	}
	for _, what := range ways {
		line := readsFiles[what]
		if !takes[what] {
			t.Errorf("%s takes no file, and stands in readsFiles", what)
		}
		if line != onlyWritten && line != asStudyReport && slices.Contains(run, what) {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				runInLittleMemory(t, filesWithoutEnd(t, "/dev/zero"), strings.Fields(line))
			})
			t.Run(what+" of a FIFO", func(t *testing.T) {
				t.Parallel()
				endInFIFO(t, line)
			})
		}
	}
}

// filesWithoutEnd links to an endless file, with good files beside.
func filesWithoutEnd(t *testing.T, endless string) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"endless/sys", "endless/proc", "written", "measured"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"endless/report.json": endless, "endless/proc/cpuinfo": endless, "endless.yaml": endless,
		"written/plan.json": endless,
		"lab.yaml":          filepath.Join(examples, "pair.yaml"),
		"host.ttar":         filepath.Join(examples, "hosts/epyc-7551p.ttar"),
		"placed.yaml":       filepath.Join(examples, "epyc-pair.yaml"),
		"incast.yaml":       filepath.Join(examples, "simulations/incast.yaml"),
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, filepath.Join(dir, "measured", "report.json"), `{"lab": "pair"}`)
	// With ConnectX, up would first download QEMU.
	mustWrite(t, filepath.Join(dir, "virtio.yaml"), "name: pair\nnodes: {vm: {count: 2, nic: virtio}}\n")
	mustWrite(t, filepath.Join(dir, "vm.xml"), "<domain><name>vm</name><vcpu>1</vcpu></domain>")
	mustWrite(t, filepath.Join(dir, "plan.json"), fmt.Sprintf(`{"schema": %q}`, plan.Schema))
	return dir
}

// inDirectory uses the garbage collection of users, not of make test.
func inDirectory(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOMEMLIMIT=800MiB", "GOGC=", "RACKLESS_RUN="+filepath.Join(dir, "run"),
		"RACKLESS_DATA="+filepath.Join(dir, "data"), "RACKLESS_CACHE="+filepath.Join(dir, "cache"),
		"RACKLESS_STATE="+filepath.Join(dir, "state"), lock.Variable+"="+filepath.Base(dir))
}

// endInFIFO expects a refusal, or a clean end on a signal.
func endInFIFO(t *testing.T, line string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	args := strings.Fields(strings.ReplaceAll(line, "/dev/zero", fifo))
	input := os.DevNull
	if args[0] == "-" {
		input, args = fifo, args[1:]
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", `exec rackless "$@" <"$0"`, input}, args...)...)
	inDirectory(cmd, filesWithoutEnd(t, fifo))
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	begun, opened, refused := make(chan struct{}), make(chan *os.File, 1), false
	go func() {
		f, err := os.OpenFile(fifo, os.O_WRONLY, 0) // blocks until there is a reader
		if err != nil {
			t.Error(err)
		}
		close(begun)
		// More than the buffer of a pipe.
		_, err = f.Write(bytes.Repeat([]byte("\n"), 1<<17))
		if refused = errors.Is(err, syscall.EPIPE); err != nil && !refused {
			t.Error(err)
		}
		opened <- f
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	select {
	case f := <-opened:
		defer f.Close()
		if !refused { // the process may not handle the signal
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Log(err)
			}
		}
		err = <-ended
	case err = <-ended:
		r, openErr := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if openErr != nil {
			t.Fatal(openErr)
		}
		<-begun // or the writer would wait for a reader
		r.Close()
		(<-opened).Close()
	}
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() < 1 || e.ExitCode() > exitFaults {
		t.Errorf("rackless %s: %v\n%.2000s", strings.Join(args, " "), err, out.String())
	}
	t.Log(out.String())
}

// runInLittleMemory expects a call of rackless to fail soon, but not by running out of memory.
func runInLittleMemory(t *testing.T, dir string, args []string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	input := os.DevNull
	if args[0] == "-" {
		input, args = "/dev/zero", args[1:]
	}
	// The Go runtime reserves address space that it never touches.
	script := `ulimit -v 6000000; exec rackless "$@" <"$0"`
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", script, input}, args...)...)
	inDirectory(cmd, dir)
	out, err := cmd.CombinedOutput()
	if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() < 1 || e.ExitCode() > exitFaults {
		t.Errorf("rackless %s: %v\n%.2000s", strings.Join(args, " "), err, out)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if usage.Maxrss > 1<<20 { // KiB
		t.Errorf("rackless %s took %d MiB of memory", strings.Join(args, " "), usage.Maxrss>>10)
	}
	t.Logf("%d MiB: %s", usage.Maxrss>>10, out)
}

// A daemon's files are for its owner alone, regardless of the umask at its start.
func TestDaemonsHaveAUmask(t *testing.T) {
	for _, args := range [][]string{{emulated.DaemonCommand}, {"emulate", emulate.DaemonCommand}} {
		dir := t.TempDir()
		l, err := lab.Parse("x.yaml", []byte("name: x\nnodes: {a: {}}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if err := statedir.Write(dir, &rack.State{Version: 1, Lab: l, Driver: "qemu"}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `umask 0; exec rackless "$@"`, "sh"},
			append(args, dir)...)...)
		inDirectory(cmd, dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil || line != daemon.Ready+"\n" {
			t.Errorf("%s says %q, %v", args, line, err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		if err != nil || !strings.Contains(string(status), "\nUmask:\t0077\n") {
			t.Errorf("%s: %v, status:\n%s", args, err, status)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}
