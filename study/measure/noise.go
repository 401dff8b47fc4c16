package measure

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
	"golang.org/x/sys/unix"
)

// A noise is the CPU use of other programs while the lab is idle.
type noise struct {
	proc  fs.FS // of the host
	lab   []int // processes of the lab
	own   func() float64
	watch func(ctx context.Context) error
}

// noiseTime is long compared with the kernel's ticks (10 ms), and short for a person.
const noiseTime = 500 * time.Millisecond

// noiseOf returns nil if the nodes run on another machine.
func noiseOf(s *rack.State) *noise {
	if s.Driver == string(lab.DriverVSphere) || s.URI != "" && !strings.Contains(s.URI, ":///") {
		return nil
	}
	n := &noise{proc: os.DirFS("/proc"), own: ownTime,
		watch: func(ctx context.Context) error { return wait.For(ctx, noiseTime) }}
	if s.Daemon != nil {
		n.lab = append(n.lab, s.Daemon.PID)
	}
	for _, node := range s.Nodes {
		if node.Process.PID > 0 {
			n.lab = append(n.lab, node.Process.PID)
		}
		if node.Adapters != nil {
			n.lab = append(n.lab, node.Adapters.PID)
		}
	}
	return n
}

// ownTime is in seconds.
func ownTime() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// floor returns nil if it cannot be read or is not of this machine.
func (n *noise) floor(ctx context.Context) *record.NoiseFloor {
	if n == nil {
		return nil
	}
	began := time.Now()
	before, lab, ok := n.times()
	if !ok || n.watch(ctx) != nil {
		return nil
	}
	after, labAfter, ok := n.times()
	seconds := time.Since(began).Seconds()
	if !ok || seconds <= 0 {
		return nil
	}
	f := record.NoiseFloor{Others: max(0, after.Busy-before.Busy-(labAfter-lab)) / seconds,
		Steal: max(0, after.Steal-before.Steal) / seconds, CPUs: n.cpus()}
	if load, _, ok := strings.Cut(n.text("loadavg"), " "); ok {
		f.Load, _ = strconv.ParseFloat(load, 64) // left out if no number
	}
	return &f
}

func (n *noise) text(name string) string {
	b, err := fs.ReadFile(n.proc, name)
	if err != nil {
		return ""
	}
	return string(b)
}

// times counts this process to the lab.
func (n *noise) times() (all facts.CPUTime, lab float64, ok bool) {
	all, err := facts.ParseCPUTime(n.text("stat"))
	if err != nil {
		return all, 0, false
	}
	lab = n.own()
	for _, pid := range n.lab {
		if t, err := facts.ParseProcessTime(n.text(fmt.Sprintf("%d/stat", pid))); err == nil { // it may have ended
			lab += t
		}
	}
	return all, lab, true
}

func (n *noise) cpus() int { return max(1, strings.Count(n.text("stat"), "\ncpu")) }

// maxOthers is the share of CPUs for others, if above study.MaxForeign.
const maxOthers = 0.05

func disturbed(before, after *record.NoiseFloor) string {
	var parts []string
	for _, x := range []struct {
		when string
		f    *record.NoiseFloor
	}{{"before", before}, {"after", after}} {
		if x.f == nil {
			continue
		}
		cpus := float64(x.f.CPUs)
		if x.f.Others > max(study.MaxForeign, maxOthers*cpus) {
			parts = append(parts, fmt.Sprintf("%s it other programs used %.2g of %g CPUs (load %.3g)", x.when,
				x.f.Others,
				cpus, x.f.Load))
		}
		if x.f.Steal > study.MaxSteal*cpus {
			parts = append(parts, fmt.Sprintf("%s it a hypervisor took %.2g of %g CPUs", x.when, x.f.Steal, cpus))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "disturbed: the machine was busy with something else: " + strings.Join(parts, ", ") +
		"; an idle machine gives other figures"
}
