package rig

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
)

type machine struct{ root fs.FS }

// text returns "" for an unreadable file.
func (m machine) text(name string) string {
	b, err := fs.ReadFile(m.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m machine) state() (*study.HostState, error) {
	s := &study.HostState{At: time.Now().UTC(), BootID: m.text("proc/sys/kernel/random/boot_id"),
		Kernel: m.text("proc/sys/kernel/osrelease")}
	up, _, _ := strings.Cut(m.text("proc/uptime"), " ")
	if v, err := strconv.ParseFloat(up, 64); err == nil {
		s.Uptime = v
	}
	b, err := fs.ReadFile(m.root, "proc/stat")
	if err != nil {
		return nil, err
	}
	times, err := facts.ParseCPUTime(string(b))
	if err != nil {
		return nil, err
	}
	// Both count since boot; only differences matter.
	s.Busy, s.Steal = times.Busy, times.Steal
	if online, err := topology.ParseCPUSet(m.text("sys/devices/system/cpu/online")); err == nil {
		s.CPUs = online.Len()
	}
	dirs, err := fs.Glob(m.root, "sys/devices/system/cpu/cpu[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if g := m.text(dir + "/cpufreq/scaling_governor"); g != "" && !slices.Contains(s.Governors, g) {
			s.Governors = append(s.Governors, g)
		}
		if khz, err := strconv.ParseFloat(m.text(dir+"/cpufreq/scaling_max_freq"), 64); err == nil {
			s.MaxMHz = max(s.MaxMHz, khz/1000)
			if s.MinMHz == 0 || khz/1000 < s.MinMHz {
				s.MinMHz = khz / 1000
			}
		}
		if n, err := strconv.ParseUint(m.text(dir+"/thermal_throttle/core_throttle_count"), 10, 64); err == nil {
			s.Throttles += n
		}
	}
	slices.Sort(s.Governors)
	s.Turbo = m.turbo(dirs)
	return s, nil
}

// turbo returns "" if the kernel does not tell.
//
// Sources: Documentation/admin-guide/pm/intel_pstate.rst (no_turbo) and cpufreq.rst ("The boost File in sysfs");
// amd-pstate.rst: each CPU has its own file.
func (m machine) turbo(cpus []string) string {
	const cpu = "sys/devices/system/cpu/"
	said := map[string]string{"0": "off", "1": "on"}
	not := map[string]string{"0": "on", "1": "off"}
	// intel_pstate's file is the opposite of cpufreq's.
	if all := cmp.Or(not[m.text(cpu+"intel_pstate/no_turbo")], said[m.text(cpu+"cpufreq/boost")]); all != "" {
		return all
	}
	turbo := ""
	for _, dir := range cpus {
		switch one := said[m.text(dir+"/cpufreq/boost")]; {
		case one == "" || one == turbo:
		case turbo == "":
			turbo = one
		default:
			return "on some CPUs"
		}
	}
	return turbo
}

// processTime is in seconds, 0 if the process is gone.
func (m machine) processTime(pid int) float64 {
	t, err := facts.ParseProcessTime(m.text(fmt.Sprintf("proc/%d/stat", pid)))
	if err != nil {
		return 0
	}
	return t
}

// State reads the state of the host. loop is the result of Loop, or 0.
func (r *Rig) State(loop float64) (*study.HostState, error) {
	s, err := r.machine.state()
	if err != nil {
		return nil, err
	}
	s.Loop = loop
	s.Own = r.own()
	r.site.describe(s)
	if r.rack != nil {
		s.QEMU, s.NodeKernel = r.rack.State.QEMU, r.rack.State.Kernel
	}
	return s, nil
}

// Environment describes the measured lab and machine.
func (r *Rig) Environment() []study.Fact {
	s := r.rack.State
	all := []study.Fact{{Name: "lab", Value: r.lab.Name + ", " + r.file}}
	add := func(name, value string) {
		if value != "" {
			all = append(all, study.Fact{Name: name, Value: value})
		}
	}
	_, model, _ := strings.Cut(r.machine.text("proc/cpuinfo"), "model name")
	model, _, _ = strings.Cut(model, "\n")
	add("host CPU", strings.Trim(model, "\t :"))
	add("host CPUs", r.all.String())
	all = append(all, r.site.environment()...)
	add(study.FactKernel, r.machine.text("proc/sys/kernel/osrelease"))
	how := s.Accel
	if r.rack.Emulated() {
		how += " (emulated: not figures of hardware)"
	}
	add("accelerator", how)
	add(record.FactModelled, r.lab.ModelledRates())
	add(study.FactQEMU, s.QEMU)
	add(study.FactNodeKernel, s.Kernel)
	for _, n := range r.lab.Nodes {
		add("node "+n.Name, fmt.Sprintf("%d CPU, %s", n.CPUs, n.Memory))
	}
	return all
}

// libvirtDaemons' work for others is counted as well: it cannot be separated.
var libvirtDaemons = []string{"libvirtd", "virtqemud", "virtlogd"}

func (m machine) helpers() []int {
	return m.pids(func(pid int) bool {
		// comm is "" after the end.
		return slices.Contains(libvirtDaemons, m.text(fmt.Sprintf("proc/%d/comm", pid)))
	})
}

// pids returns nil if processes cannot be listed.
func (m machine) pids(meant func(pid int) bool) []int {
	dirs, _ := fs.Glob(m.root, "proc/[0-9]*") // the pattern is valid
	var all []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(path.Base(dir)); err == nil && meant(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// own is the CPU seconds of nodes, switch, load, helpers and this process.
func (r *Rig) own() float64 {
	// Ended processes count: nodes may have been restarted during a run.
	r.remember()
	sum := r.spent
	for _, t := range r.seen {
		sum += t
	}
	if r.load != nil {
		sum += r.load.time(r.machine)
	}
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) == nil {
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	return sum
}

// remember keeps the CPU times of processes that end.
func (r *Rig) remember() {
	for _, pid := range r.processes() {
		r.seen[pid] = max(r.seen[pid], r.machine.processTime(pid))
	}
}

func (r *Rig) processes() []int {
	if r.rack == nil {
		return nil
	}
	all := r.site.helpers()
	if d := r.rack.State.Daemon; d != nil {
		all = append(all, d.PID)
	}
	all = append(all, lists.Map(r.rack.State.Nodes, func(n *rack.Node) int { return n.Process.PID })...)
	return all
}

// Loop measures the noise floor: the median time of fixed arithmetic, in milliseconds. No factor should move it.
func (r *Rig) Loop(ctx context.Context) (float64, error) {
	// Odd: the median is a value, and one interrupt does not move it.
	const times = 9
	var all []float64
	buf := make([]byte, 256<<10)
	for range times {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		began := time.Now()
		// 2 MiB: a few milliseconds, long for the clock and short for a time slice.
		for range 8 {
			sum := sha256.Sum256(buf)
			copy(buf, sum[:])
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(all)
	return all[times/2], nil
}
