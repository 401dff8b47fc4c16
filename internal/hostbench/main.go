// Command hostbench times "rackless inspect" against hwloc's lstopo on the same machines, as whole
// processes: a round runs both, one after the other, and the ratio is taken inside the round, so
// that the machine's moods fall on both. "make bench" runs it; docs/performance.md says what the
// figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/inspect/tree"
)

func main() {
	n := flag.Int("n", 21, "rounds of the cases with one host")
	many := flag.Int("many", 5, "rounds of the case with 1,000 snapshots")
	bin := flag.String("rackless", "bin/rackless", "the program to measure")
	dumps := flag.String("dumps", "inspect/testdata/hwloc/linux", "directory with hwloc-gather-topology tarballs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *dumps, *n, *many); err != nil {
		fmt.Fprintln(os.Stderr, "hostbench:", err)
		os.Exit(1)
	}
}

// A command is a program to be run, with what its environment has besides this one's.
type command struct{ env, argv []string }

// A pair is two ways to do the same thing, each some commands in turn.
type pair struct {
	what         string
	rounds       int
	ours, theirs []command
}

func run(ctx context.Context, bin, dumps string, n, many int) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	lstopo, err := exec.LookPath("lstopo-no-graphics")
	if err != nil {
		fmt.Println("# no comparison with lstopo: it is not installed (apt-get install hwloc-nox)")
		return nil
	}
	tmp, err := os.MkdirTemp("", "hostbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	trees, err := unpack(dumps, filepath.Join(tmp, "trees"))
	if err != nil {
		return err
	}
	if len(trees) == 0 {
		return fmt.Errorf("%s: no tarball of a machine", dumps)
	}
	largest := slices.MaxFunc(trees, func(a, b dump) int { return a.entries - b.entries })
	// As many as a large collection has: the start of a process then hardly counts.
	const snapshots = 1000
	dir := filepath.Join(tmp, "snapshots")
	if err := writeSnapshots(ctx, dir, trees, snapshots); err != nil {
		return err
	}
	inspectOf := func(args ...string) []command {
		return []command{{argv: append([]string{bin, "inspect", "-o", "json"}, args...)}}
	}
	lstopoOf := func(roots ...string) (all []command) {
		for _, root := range roots {
			all = append(all, command{[]string{"HWLOC_FSROOT=" + root, "HWLOC_THISSYSTEM=0"},
				[]string{lstopo, "--of", "xml"}})
		}
		return all
	}
	roots := make([]string, snapshots)
	for i := range roots {
		roots[i] = trees[i%len(trees)].root
	}
	pairs := []pair{
		{"this machine, live", n, inspectOf(), []command{{argv: []string{lstopo, "--of", "xml"}}}},
		{fmt.Sprintf("largest dump, %s, %d entries, as a directory", largest.name, largest.entries), n,
			inspectOf("--root", largest.root), lstopoOf(largest.root)},
		{fmt.Sprintf("%d snapshots of %d dumps / as many lstopo calls on the unpacked dumps, one after the other",
			snapshots, len(trees)), many, inspectOf("--snapshot", dir), lstopoOf(roots...)},
	}
	fmt.Printf("# %d CPUs, %s; medians, whole processes, output to /dev/null\n\n", runtime.GOMAXPROCS(0),
		version(ctx, lstopo))
	fmt.Print("| what | rounds | rackless inspect -o json, ms | lstopo --of xml, ms | lstopo / rackless, median of " +
		"rounds (lowest to highest) |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range pairs {
		if err := p.measure(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.what, err)
		}
	}
	return nil
}

// measure runs both ways in turn, the order changing from round to round, and prints a line of the table.
func (p *pair) measure(ctx context.Context) error {
	var times [2][]float64 // of ours and theirs
	var ratios []float64
	ways := [2][]command{p.ours, p.theirs}
	for i := range p.rounds + 1 {
		var took [2]float64
		for k := range ways {
			w := (i + k) % 2
			var err error
			if took[w], err = timed(ctx, ways[w]); err != nil {
				return err
			}
		}
		if i == 0 {
			continue // the first round fills the page cache
		}
		times[0], times[1] = append(times[0], took[0]), append(times[1], took[1])
		ratios = append(ratios, took[1]/took[0])
	}
	fmt.Printf("| %s | %d | %.1f | %.1f | %.2f (%.2f to %.2f) |\n", p.what, p.rounds, median(times[0]),
		median(times[1]), median(ratios), slices.Min(ratios), slices.Max(ratios))
	return nil
}

// timed returns how many milliseconds the commands take. What they print is thrown away.
func timed(ctx context.Context, all []command) (float64, error) {
	start := time.Now()
	for _, c := range all {
		cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
		cmd.Env = append(os.Environ(), c.env...)
		var errText strings.Builder
		cmd.Stderr = &errText
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w\n%s", strings.Join(c.argv, " "), err, errText.String())
		}
	}
	return float64(time.Since(start).Nanoseconds()) / 1e6, nil
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// version returns what lstopo calls itself.
func version(ctx context.Context, lstopo string) string {
	out, err := exec.CommandContext(ctx, lstopo, "--version").Output()
	if err != nil {
		return "lstopo of an unknown version"
	}
	return strings.TrimSpace(string(out))
}

// A dump is an unpacked machine.
type dump struct {
	name, root string
	entries    int
}

// unpack unpacks every tarball in dir that holds a machine's /sys below out.
func unpack(dir, out string) ([]dump, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.tar.*"))
	if err != nil {
		return nil, err
	}
	var all []dump
	for _, f := range files {
		name, _, _ := strings.Cut(filepath.Base(f), ".tar.")
		d := dump{name: name, root: filepath.Join(out, name)}
		if err := unpackOne(f, &d); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// unpackOne writes the machine in an archive to a directory.
func unpackOne(file string, d *dump) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	archive, err := tree.ReadArchive(f, tree.Limits{})
	if err != nil {
		return err
	}
	mem, err := archive.Machine()
	if err != nil {
		return err
	}
	if err := fs.WalkDir(mem, ".", func(_ string, _ fs.DirEntry, err error) error {
		d.entries++
		return err
	}); err != nil {
		return err
	}
	return os.CopyFS(d.root, mem)
}

// writeSnapshots writes n snapshots of the dumps in turn.
func writeSnapshots(ctx context.Context, dir string, trees []dump, n int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("%04d.tar.zst", i))
		if i >= len(trees) {
			// The same bytes under another name: what is measured reads each file whole.
			first, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%04d.tar.zst", i%len(trees))))
			if err != nil {
				return err
			}
			if err := os.WriteFile(name, first, 0o644); err != nil {
				return err
			}
			continue
		}
		if err := writeSnapshot(ctx, name, trees[i]); err != nil {
			return fmt.Errorf("%s: %w", trees[i].name, err)
		}
	}
	return nil
}

func writeSnapshot(ctx context.Context, name string, d dump) error {
	root, err := tree.Dir(d.root)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = inspect.WriteSnapshot(ctx, f, inspect.Source{Name: d.name, FS: root},
		inspect.SnapshotOptions{Tool: "hostbench"})
	return errors.Join(err, f.Close())
}
