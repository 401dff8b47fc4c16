// Command planbench times the planner: whole processes for the cases of the guides, the machines of
// the test data and a large one in this process, and a fleet of large ones against first-fit by
// Nova's rules. "make bench" runs it; docs/performance.md says what the figures mean.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// allParts are in the order in which they run.
const allParts = "cases,machines,large,growth,fleet"

func main() {
	var b bench
	flag.IntVar(&b.rounds, "n", 21, "rounds of the cases that are whole processes")
	flag.StringVar(&b.bin, "rackless", "bin/rackless", "the program to measure")
	flag.StringVar(&b.machines, "machines", "inspect/testdata", "directory with dumps of machines")
	flag.IntVar(&b.hosts, "hosts", 1000, "hosts of the fleet")
	flag.IntVar(&b.requests, "requests", 10_000, "requests to the fleet")
	only := flag.String("only", allParts, "the parts to run, with commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "planbench:", err)
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	rounds          int
	bin, machines   string
	hosts, requests int
	tmp             string
}

func (b *bench) run(ctx context.Context, only []string) error {
	var err error
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.tmp, err = os.MkdirTemp("", "planbench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.tmp)
	parts := map[string]func(context.Context) error{
		"cases": b.cases, "machines": b.everyMachine, "large": b.large, "growth": b.growth, "fleet": b.fleet,
	}
	for _, name := range only {
		if parts[name] == nil {
			return fmt.Errorf("-only: no part %q", name)
		}
	}
	for _, name := range strings.Split(allParts, ",") {
		if slices.Contains(only, name) {
			if err := parts[name](ctx); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// spread says where times lie: median (lowest to highest).
func spread(times []time.Duration) string {
	slices.Sort(times)
	ms := func(d time.Duration) string { return fmt.Sprintf("%.3g", float64(d.Microseconds())/1000) }
	return fmt.Sprintf("%s ms (%s to %s)", ms(times[len(times)/2]), ms(times[0]), ms(times[len(times)-1]))
}
