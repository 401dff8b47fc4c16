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
)

// A machine is what the kernel shows of the host.
type machine struct{ root fs.FS }

// text reads a file without its newline; "" where it cannot be read.
func (m machine) text(name string) string {
	b, err := fs.ReadFile(m.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// state reads what may move a figure without any factor having a part in it.
func (m machine) state() (*study.HostState, error) {
	s := &study.HostState{At: time.Now().UTC(), BootID: m.text("proc/sys/kernel/random/boot_id"),
		Kernel: m.text("proc/sys/kernel/osrelease")}
	up, _, _ := strings.Cut(m.text("proc/uptime"), " ")
	if v, err := strconv.ParseFloat(up, 64); err == nil { // left out if it cannot be read
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
	// Both count from the boot: a run is judged by the difference of the states around it.
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

// turbo says whether CPUs may run faster than their nominal frequency; "" where the kernel does not.
//
// Sources: Documentation/admin-guide/pm/intel_pstate.rst (no_turbo) and cpufreq.rst ("The boost
// File in sysfs"); amd-pstate.rst: with it each CPU has a file of its own.
func (m machine) turbo(cpus []string) string {
	const cpu = "sys/devices/system/cpu/"
	said := map[string]string{"0": "off", "1": "on"}
	not := map[string]string{"0": "on", "1": "off"}
	// intel_pstate's file says the opposite of what cpufreq's says.
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

// processTime returns how long a process has used CPUs, in seconds; 0 where it is gone.
func (m machine) processTime(pid int) float64 {
	t, err := facts.ParseProcessTime(m.text(fmt.Sprintf("proc/%d/stat", pid)))
	if err != nil {
		return 0
	}
	return t
}

// State reads the state of the host. loop is what Loop gave, 0 where it was not asked.
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

// Environment says what is measured on.
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
	add(study.FactQEMU, s.QEMU)
	add(study.FactNodeKernel, s.Kernel)
	for _, n := range r.lab.Nodes {
		add("node "+n.Name, fmt.Sprintf("%d CPU, %s", n.CPUs, n.Memory))
	}
	return all
}

// libvirtDaemons answer what the study asks of a lab that is placed on this host. What they do for
// others meanwhile is not told apart.
var libvirtDaemons = []string{"libvirtd", "virtqemud", "virtlogd"}

// helpers are the processes of libvirt, which work for the study beside those that it measures.
func (m machine) helpers() []int {
	return m.pids(func(pid int) bool {
		// The name of the program; none where the process has ended.
		return slices.Contains(libvirtDaemons, m.text(fmt.Sprintf("proc/%d/comm", pid)))
	})
}

// pids are those of the processes that are meant; none where the processes cannot be listed.
func (m machine) pids(meant func(pid int) bool) []int {
	dirs, _ := fs.Glob(m.root, "proc/[0-9]*") // the pattern is a good one, and nothing else is an error
	var all []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(path.Base(dir)); err == nil && meant(pid) {
			all = append(all, pid)
		}
	}
	return all
}

// own returns the CPU time that the study itself has used: nodes, switch, load, this process and
// what works for it, in seconds.
func (r *Rig) own() float64 {
	// The total of all processes that ever were: a run is judged by a difference, and nodes may have been started again
	// in it.
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

// remember notes the CPU times of nodes, switch and helpers: what they have used counts when they are gone, too.
func (r *Rig) remember() {
	for _, pid := range r.processes() {
		r.seen[pid] = max(r.seen[pid], r.machine.processTime(pid))
	}
}

// processes are those of the nodes and of the switch, and what works for the study.
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

// Loop measures the noise floor: how long a fixed piece of arithmetic takes on this host, in
// milliseconds, the median of several. No factor can move it: nodes are idle and no load runs.
func (r *Rig) Loop(ctx context.Context) (float64, error) {
	// Odd, so that the median is one of them. A single interrupt moves one of nine, and not the median.
	const times = 9
	var all []float64
	buf := make([]byte, 256<<10)
	for range times {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		began := time.Now()
		// 2 MiB in all: a few milliseconds, long against the clock's grain and short against a scheduler's slice.
		for range 8 {
			sum := sha256.Sum256(buf)
			copy(buf, sum[:])
		}
		all = append(all, float64(time.Since(began).Microseconds())/1000)
	}
	slices.Sort(all)
	return all[times/2], nil
}
