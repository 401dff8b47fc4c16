// Command labbench measures how long labs take to come up and go down: whole processes, the cases
// in turn so that the machine's moods fall on all of them, medians with the lowest and highest.
// "make bench" runs it; docs/performance.md says what the figures mean.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/rackless/rackless/rack"
)

func main() {
	n := flag.Int("n", 5, "runs of each case")
	bin := flag.String("rackless", "bin/rackless", "the program to measure")
	only := flag.String("only", "", "comma-separated cases; default all")
	kernel := flag.String("vng-kernel", "", "kernel for the comparison with virtme-ng: a vmlinuz unpacked from "+
		"Debian's package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bin, *n, *only, *kernel); err != nil {
		fmt.Fprintln(os.Stderr, "labbench:", err)
		os.Exit(1)
	}
}

// A benchCase is one thing that is timed again and again.
type benchCase struct {
	name   string
	what   string
	target time.Duration // 0: none
	run    func(ctx context.Context) (time.Duration, error)
	peer   bool // another's program: it may fail here without spoiling the rest

	took []time.Duration
}

func run(ctx context.Context, bin string, n int, only, kernel string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dirs, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp("/tmp", "rb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	b := &bench{bin: bin, tmp: tmp, run: filepath.Join(tmp, "r"), cache: dirs.Cache}
	cases := b.cases(kernel)
	if only != "" {
		cases = slices.DeleteFunc(cases, func(c *benchCase) bool {
			return !slices.Contains(strings.Split(only, ","), c.name)
		})
	}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return err
	}
	fmt.Printf("# %s; %d CPUs; load %s; medians of %d, cases in turn\n", cpuModel(proc), runtime.NumCPU(), load(proc),
		n)
	// Image and templates are made before anything is timed.
	for _, f := range []string{"pair", "sixteen"} {
		if _, err := b.up(ctx, f, b.cache); err != nil {
			return err
		}
		if _, err := b.down(ctx, f); err != nil {
			return err
		}
	}
	// Cases in turn, and not one after the other: a busy minute falls on all of them.
	for i := range n {
		for _, c := range cases {
			took, err := c.run(ctx)
			if err != nil && c.peer {
				fmt.Printf("# %s failed and is left out of this round: %v\n", c.name, err)
				continue
			}
			if err != nil {
				_, downErr := b.rackless(context.WithoutCancel(ctx), b.cache, "down", "--all")
				return errors.Join(fmt.Errorf("%s: %w", c.name, err), downErr)
			}
			c.took = append(c.took, took)
			fmt.Fprintf(os.Stderr, "run %d/%d %-16s %6.2f s\n", i+1, n, c.name, took.Seconds())
		}
	}
	report(cases, b)
	return nil
}

// report prints the table and the ratios.
func report(cases []*benchCase, b *bench) {
	fmt.Printf("\n| case | what | median s | lowest | highest | to reach s |\n| --- | --- | --- | --- | --- | --- |\n")
	medians := make(map[string]float64)
	for _, c := range cases {
		if len(c.took) == 0 {
			continue
		}
		slices.Sort(c.took)
		m := median(c.took)
		medians[c.name] = m
		target := ""
		if c.target > 0 {
			target = fmt.Sprintf("%.1f", c.target.Seconds())
		}
		fmt.Printf("| %s | %s | %.2f | %.2f | %.2f | %s |\n", c.name, c.what, m, c.took[0].Seconds(),
			c.took[len(c.took)-1].Seconds(), target)
	}
	fmt.Println()
	ratio := func(what, a, b string) {
		if medians[a] > 0 && medians[b] > 0 {
			fmt.Printf("%s: %.2f\n", what, medians[a]/medians[b])
		}
	}
	ratio("two nodes RDMA-ready / the same two clones resumed, no checks", "pair", "floor-2")
	ratio("16 nodes RDMA-ready / the same 16 clones resumed, no checks", "sixteen", "floor-16")
	ratio("16 nodes RDMA-ready / the same 16 clones resumed and configured at their setup ports, no checks", "sixteen",
		"floor-16-rdma")
	ratio("one node of virtme-ng / two nodes RDMA-ready", "vng", "pair")
	for _, name := range []string{"sixteen", "sixtyfour"} {
		if v := b.memory[name]; len(v) > 0 {
			slices.Sort(v)
			fmt.Printf("host memory a node, %s, right after up (Pss of its QEMU): %.1f MiB median, %.1f highest\n",
				name, v[len(v)/2], v[len(v)-1])
		}
	}
}

func median(sorted []time.Duration) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]).Seconds() / 2
}

func load(proc procfs.FS) string {
	l, err := proc.LoadAvg()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f %.2f %.2f", l.Load1, l.Load5, l.Load15)
}

func cpuModel(proc procfs.FS) string {
	cpus, err := proc.CPUInfo()
	if err != nil || len(cpus) == 0 {
		return "unknown CPU"
	}
	return cpus[0].ModelName
}

// rackless runs the program with its directories below the temporary one and returns how long it took.
func (b *bench) rackless(ctx context.Context, cache string, args ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, b.bin, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "RACKLESS_RUN="+b.run, "RACKLESS_CACHE="+cache,
		"RACKLESS_DATA="+filepath.Join(b.tmp, "data"))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("rackless %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return took, nil
}
