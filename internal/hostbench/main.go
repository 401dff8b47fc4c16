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
	"io"
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

// A pair is two ways to do the same thing.
type pair struct {
	what         string
	rounds       int
	ours, theirs func(ctx context.Context) error
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
	const snapshots = 1000
	dir := filepath.Join(tmp, "snapshots")
	if err := writeSnapshots(ctx, dir, trees, snapshots); err != nil {
		return err
	}
	lstopoOn := func(root string) func(context.Context) error {
		return func(ctx context.Context) error {
			return quiet(ctx, []string{"HWLOC_FSROOT=" + root, "HWLOC_THISSYSTEM=0"}, lstopo, "--of", "xml")
		}
	}
	pairs := []pair{
		{"this machine, live", n, func(ctx context.Context) error {
			return quiet(ctx, nil, bin, "inspect", "-o", "json")
		},
			func(ctx context.Context) error { return quiet(ctx, nil, lstopo, "--of", "xml") }},
		{fmt.Sprintf("largest dump, %s, %d entries, as a directory", largest.name, largest.entries), n,
			func(ctx context.Context) error {
				return quiet(ctx, nil, bin, "inspect", "--root", largest.root, "-o", "json")
			},
			lstopoOn(largest.root)},
		{fmt.Sprintf("%d snapshots of %d dumps / as many lstopo calls on the unpacked dumps, one after the other",
			snapshots, len(trees)), many,
			func(ctx context.Context) error {
				return quiet(ctx, nil, bin, "inspect", "--snapshot", dir, "-o", "json")
			},
			func(ctx context.Context) error {
				for i := range snapshots {
					if err := lstopoOn(trees[i%len(trees)].root)(ctx); err != nil {
						return err
					}
				}
				return nil
			}},
	}
	fmt.Printf("# %d CPUs, %s; medians, whole processes, output to /dev/null\n\n", runtime.GOMAXPROCS(0),
		version(ctx, lstopo))
	fmt.Printf("| what | rounds | rackless inspect -o json, ms | lstopo --of xml, ms | lstopo / rackless, median of " +
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
	var ours, theirs, ratios []float64
	for i := range p.rounds + 1 {
		var a, b float64
		var errA, errB error
		if i%2 == 0 {
			a, errA = timed(ctx, p.ours)
			b, errB = timed(ctx, p.theirs)
		} else {
			b, errB = timed(ctx, p.theirs)
			a, errA = timed(ctx, p.ours)
		}
		if err := errors.Join(errA, errB); err != nil {
			return err
		}
		if i == 0 {
			continue // the first round fills the page cache
		}
		ours, theirs, ratios = append(ours, a), append(theirs, b), append(ratios, b/a)
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	slices.Sort(ratios)
	fmt.Printf("| %s | %d | %.1f | %.1f | %.2f (%.2f to %.2f) |\n", p.what, p.rounds,
		median(ours), median(theirs), median(ratios), ratios[0], ratios[len(ratios)-1])
	return nil
}

// timed returns how many milliseconds f takes.
func timed(ctx context.Context, f func(context.Context) error) (float64, error) {
	start := time.Now()
	err := f(ctx)
	return float64(time.Since(start).Nanoseconds()) / 1e6, err
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// quiet runs a program with its output thrown away.
func quiet(ctx context.Context, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var errText strings.Builder
	cmd.Stderr = &errText
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, errText.String())
	}
	return nil
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
	return fs.WalkDir(mem, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		d.entries++
		target := filepath.Join(d.root, filepath.FromSlash(p))
		switch {
		case e.IsDir():
			return os.MkdirAll(target, 0o755)
		case e.Type()&fs.ModeSymlink != 0:
			link, err := mem.ReadLink(p)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		default:
			b, err := fs.ReadFile(mem, p)
			if err != nil {
				return err
			}
			return os.WriteFile(target, b, 0o644)
		}
	})
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
	var w io.Writer = f
	err = inspect.WriteSnapshot(ctx, w, inspect.Source{Name: d.name, FS: root},
		inspect.SnapshotOptions{Tool: "hostbench"})
	return errors.Join(err, f.Close())
}
