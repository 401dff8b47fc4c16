// Package labbench measures how long labs and emulated hosts take to start and stop, as a user runs them. "make bench"
// runs it round by round, so that a busy minute affects all cases; see docs/performance.md.
package labbench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/image"
	"github.com/rackless/rackless/vm/qapi"
	"github.com/rackless/rackless/vm/qemu"
)

var (
	program = flag.String("rackless", "../../bin/rackless", "the program to measure")
	kernel  = flag.String("vng-kernel", "", "kernel for the comparison with virtme-ng: a vmlinuz unpacked from "+
		"Debian's package")
)

type machine struct {
	ctx                  context.Context
	bin, tmp, run, cache string
}

// BenchmarkLab has a case for each operation that users wait for.
func BenchmarkLab(b *testing.B) {
	m := newMachine(b)
	// Before anything is timed.
	for _, lab := range []string{"pair", "sixteen"} {
		m.up(b, lab, m.cache)
		m.down(b, lab)
	}
	for _, c := range []struct {
		name   string
		target time.Duration // 0 means no target
		run    func(b *testing.B)
	}{
		{"pair", 1500 * time.Millisecond, m.upDown("pair")},
		{"sixteen", 6 * time.Second, m.upDown("sixteen")},
		{"sixtyfour", 45 * time.Second, m.upDown("sixtyfour")},
		{"pair-cold", 8 * time.Second, m.cold},
		{"down-16", time.Second, m.downOnly("sixteen")},
		{"host", 0, m.host("epyc-7551p")},
		{"host-small", 0, m.host("desktop")},
		{"host-cold", 0, m.host("epyc-7551p", "--cold")},
		{"host-small-cold", 0, m.host("desktop", "--cold")},
		{"floor-2", 0, m.floor(2, false)},
		{"floor-16", 0, m.floor(16, false)},
		{"floor-16-rdma", 0, m.floor(16, true)},
		{"vng", 0, m.vng},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.run(b)
			if c.target > 0 { // the loop's start resets metrics
				b.ReportMetric(c.target.Seconds(), "s-to-reach")
			}
		})
	}
}

func newMachine(b *testing.B) *machine {
	b.Helper()
	bin, err := filepath.Abs(*program)
	check(b, err)
	dirs, err := rack.DefaultDirs(os.Getenv, os.Getuid())
	check(b, err)
	tmp, err := os.MkdirTemp("/tmp", "rb") // short, for sockets
	check(b, err)
	// An interrupt would leave labs.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	m := &machine{ctx: ctx, bin: bin, tmp: tmp, run: filepath.Join(tmp, "r"), cache: dirs.Cache}
	b.Cleanup(func() {
		stop()
		m.ctx = context.Background()
		m.rackless(b, m.cache, "down", "--all")
		check(b, os.RemoveAll(tmp))
	})
	return m
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (m *machine) rackless(b *testing.B, cache string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(m.ctx, m.bin, args...)
	cmd.Dir = "../.."
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "RACKLESS_RUN="+m.run, "RACKLESS_CACHE="+cache,
		"RACKLESS_DATA="+filepath.Join(m.tmp, "data"))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("rackless %s: %v: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
}

func (m *machine) up(b *testing.B, lab, cache string) {
	b.Helper()
	m.rackless(b, cache, "up", "examples/"+lab+".yaml")
}

func (m *machine) down(b *testing.B, lab string) {
	b.Helper()
	m.rackless(b, m.cache, "down", lab)
}

func (m *machine) upDown(lab string) func(b *testing.B) {
	return func(b *testing.B) {
		for b.Loop() {
			m.up(b, lab, m.cache)
			b.StopTimer()
			m.weigh(b, lab)
			m.down(b, lab)
			b.StartTimer()
		}
	}
}

func (m *machine) downOnly(lab string) func(b *testing.B) {
	return func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			m.up(b, lab, m.cache)
			b.StartTimer()
			m.down(b, lab)
		}
	}
}

func (m *machine) host(profile string, flags ...string) func(b *testing.B) {
	return func(b *testing.B) {
		args := slices.Concat([]string{"emulate", profile, "--scale", "4", "-n"}, flags, []string{"--", "true"})
		for b.Loop() {
			m.rackless(b, m.cache, args...)
		}
	}
}

func (m *machine) cold(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		cache, err := os.MkdirTemp(m.tmp, "cold")
		check(b, err)
		for _, shared := range []string{"images", "kvm-probe.json"} { // once per boot of the host
			if target := filepath.Join(m.cache, shared); exists(target) {
				check(b, os.Symlink(target, filepath.Join(cache, shared)))
			}
		}
		b.StartTimer()
		m.up(b, "pair", cache)
		b.StopTimer()
		m.down(b, "pair")
		check(b, os.RemoveAll(cache))
		b.StartTimer()
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// weigh reports the nodes' median memory, with shared pages divided among their users.
func (m *machine) weigh(b *testing.B, lab string) {
	b.Helper()
	procs, err := vm.ProcessesUsing("qemu-system", filepath.Join(m.run, lab)+"/")
	check(b, err)
	var all []float64
	for _, p := range procs {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID))
		check(b, err)
		sc := bufio.NewScanner(bytes.NewReader(data))
		for sc.Scan() {
			if v, ok := strings.CutPrefix(sc.Text(), "Pss:"); ok {
				kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 64)
				check(b, err)
				all = append(all, kib/1024)
			}
		}
	}
	if len(all) == 0 {
		b.Fatalf("lab %s has no process of QEMU", lab)
	}
	slices.Sort(all)
	b.ReportMetric(all[len(all)/2], "MiB/node")
}

// floor resumes n clones of up's template at once, without switch, state and checks. With configure each is configured
// by its setup port; otherwise it ends when its agent answers.
func (m *machine) floor(n int, configure bool) func(b *testing.B) {
	return func(b *testing.B) {
		binary, version, err := vm.Find()
		check(b, err)
		img, err := image.Node.Ensure(m.ctx, image.Options{Cache: filepath.Join(m.cache, "images")})
		check(b, err)
		d := &qemu.Driver{Binary: binary, Version: version, Accel: "tcg", Image: img,
			Cache: filepath.Join(m.cache, "templates")}
		for b.Loop() {
			b.StopTimer()
			dir, err := os.MkdirTemp(m.tmp, "f")
			check(b, err)
			spec := func(i int) qemu.Spec {
				return qemu.Spec{Lab: "floor", Name: fmt.Sprintf("vm%02d", i),
					Dir: filepath.Join(dir, strconv.Itoa(i)), CPUs: 1, Memory: 256 << 20,
					NICs: []qemu.NIC{{MAC: fmt.Sprintf("52:54:00:00:00:%02x", i+1)}}}
			}
			check(b, d.Prepare(m.ctx, spec(0), func(string) {}))
			nodes, errs := make([]*qemu.Node, n), make([]error, n)
			var wg sync.WaitGroup
			b.StartTimer() // up prepares as well
			for i := range n {
				wg.Go(func() { nodes[i], errs[i] = resume(m.ctx, d, spec(i), i, configure) })
			}
			wg.Wait()
			b.StopTimer()
			for _, node := range nodes {
				if node != nil {
					errs = append(errs, node.Setup.Close(), node.Process.Kill(context.WithoutCancel(m.ctx)))
				}
			}
			check(b, errors.Join(append(errs, os.RemoveAll(dir))...))
			b.StartTimer()
		}
	}
}

func resume(ctx context.Context, d *qemu.Driver, s qemu.Spec, i int, configure bool) (*qemu.Node, error) {
	node, err := d.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	if configure {
		nic := guest.NIC{Device: "eth0", MAC: s.NICs[0].MAC,
			Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)}
		id := guest.Identity{Name: s.Name, MachineID: guest.NewMachineID(), MTU: 4200, NICs: []guest.NIC{nic}}
		_, err = guest.NewSetup(node.Setup).Configure(ctx, id)
		return node, err
	}
	agent, err := qapi.DialAgent(ctx, node.Agent)
	if err != nil {
		return node, err
	}
	return node, agent.Close()
}

// vng times a command in a node of virtme-ng without KVM. Failures of this external program do not affect other
// results.
func (m *machine) vng(b *testing.B) {
	if _, err := exec.LookPath("vng"); err != nil || *kernel == "" {
		b.Skip("no comparison with virtme-ng: pip install virtme-ng, and give -vng-kernel")
	}
	version := strings.TrimPrefix(filepath.Base(*kernel), "vmlinuz-")
	for b.Loop() {
		// Without a terminal it prints nothing unless --verbose is set, and its status is 255 although the command ran.
		out, err := exec.CommandContext(m.ctx, "vng", "--run", *kernel, "--disable-kvm", "--memory", "512M", "--cpus",
			"1", "--verbose", "--", "uname -r").CombinedOutput()
		if !slices.ContainsFunc(strings.Split(string(out), "\n"), func(line string) bool {
			return strings.TrimSpace(line) == version
		}) {
			b.Skipf("vng did not run the command: %v: ...%s", err, out[max(0, len(out)-300):])
		}
	}
}
