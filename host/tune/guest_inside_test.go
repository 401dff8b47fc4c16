package tune

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
)

type guestReport struct{ s *change.System }

func (g *guestReport) errorf(format string, args ...any) {
	fmt.Printf("FAIL %q\n", fmt.Sprintf(format, args...))
}

const guestLab = "name: guest\nworkload: rdma-latency\nhugepages: 2MiB\nhost:\n  reserve: {cores: 4, memory: 1GiB, " +
	"numa_nodes: {0: {cores: 2}, 1: {cores: 2}}}\n" +
	"nodes:\n  vm: {count: 2, cpus: 2, memory: 512MiB, nics: 0}\n"

func (g *guestReport) run() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	g.s = &change.System{Root: "/"}
	if err := os.Chmod("/", 0o755); err != nil {
		// anybody may write to a root in memory
		g.errorf("%v", err)
	}
	g.loadVirtio()
	h, err := inspect.Read(ctx, inspect.Live())
	if err != nil {
		g.errorf("inspect: %v", err)
		return
	}
	p, err := solve(ctx, h, guestLab)
	if err != nil {
		g.errorf("plan: %v", err)
		return
	}
	steps, err := Steps(p.plan, p.lab, p.host, Options{NoReboot: true})
	if err != nil {
		g.errorf("steps: %v", err)
		return
	}
	steps = append(steps, BootUnit("/tune.test")...)
	// The machine's default is 2 MiB.
	steps = append(steps, change.Step{Op: &Mount{Path: "/dev/hugepages1G", PageBytes: gib},
		What: "mount pages of 1 GiB"})
	before := g.snapshot()
	irqbalance, virtqemud := g.pid(ctx, "irqbalance.service"), g.pid(ctx, "virtqemud.service")
	g.make(ctx, steps)
	g.look(ctx, p)
	if now := g.pid(ctx, "irqbalance.service"); now == irqbalance || now == "0" {
		g.errorf("irqbalance was process %s and is %s: not restarted", irqbalance, now)
	}
	if now := g.pid(ctx, "virtqemud.service"); now == virtqemud || now == "0" {
		g.errorf("virtqemud was process %s and is %s: not restarted", virtqemud, now)
	}
	// systemd may reload at any time, and must not undo the partition.
	if _, err := g.s.Program(ctx, "systemctl", "daemon-reload"); err != nil {
		g.errorf("%v", err)
	}
	survey, err := change.Survey(ctx, g.s, steps)
	if err != nil {
		g.errorf("survey: %v", err)
	}
	for _, r := range survey {
		if r.Status != change.InPlace {
			g.errorf("after systemd read its configuration again: %s is %s", r.What, r.Status)
		}
	}
	g.lookAtPages(ctx, p)
	g.rollback(ctx)
	if diff := cmp.Diff(before, g.snapshot()); diff != "" {
		g.errorf("rollback leaves a difference (-before +after):\n%s", diff)
	}
	g.short(ctx)
	fmt.Println("done")
}

func (g *guestReport) loadVirtio() {
	for name := range strings.FieldsSeq(g.value("/lib/modules/load")) {
		if strings.Contains(name, "virtio") {
			exec.Command("/bin/busybox", "insmod", "/lib/modules/"+strings.TrimPrefix(name, "-")+".ko").Run()
		}
	}
}

func (g *guestReport) journal(f func(j *change.Journal) error) {
	j, err := change.Open("/root/journal", allKinds())
	if err == nil {
		err = errors.Join(f(j), j.Close())
	}
	if err != nil {
		g.errorf("%v", err)
	}
}

func (g *guestReport) make(ctx context.Context, steps []change.Step) {
	g.journal(func(j *change.Journal) error {
		results, err := change.Make(ctx, g.s, j, steps, nil)
		for _, r := range results {
			fmt.Printf("%s: %s %s\n", r.Status, r.Kind, r.Subject)
			if r.Status != change.Made && r.Status != change.InPlace {
				g.errorf("%s: %s", r.What, r.Status)
			}
		}
		return err
	})
}

func (g *guestReport) rollback(ctx context.Context) {
	g.journal(func(j *change.Journal) error {
		_, err := change.Rollback(ctx, g.s, j, nil)
		return err
	})
}

func (g *guestReport) pid(ctx context.Context, service string) string {
	pid, err := mainPID(ctx, g.s, service)
	if err != nil {
		g.errorf("%v", err)
	}
	return pid
}

func (g *guestReport) unitState(ctx context.Context, unit string) string {
	out, err := g.s.Query(ctx, "systemctl", "show", "--property=LoadState,UnitFileState,ActiveState", "--", unit)
	if err != nil {
		return err.Error()
	}
	values := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	return values["LoadState"] + " " + values["UnitFileState"] + " " + values["ActiveState"]
}

func (g *guestReport) value(path string) string {
	text, err := g.s.Value(path)
	if err != nil {
		return err.Error()
	}
	return text
}

func (g *guestReport) allowed(pid string) string {
	for line := range strings.Lines(g.value("/proc/" + pid + "/status")) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return strings.TrimSpace(list)
		}
	}
	return "process " + pid + " does not tell"
}

func (g *guestReport) look(ctx context.Context, p *problem) {
	var guests topology.CPUSet
	for _, n := range p.plan.Nodes {
		guests = guests.Union(topology.CPUs(n.VCPUs...)).Union(n.EmulatorCPUs).Union(n.IOThreadCPUs)
	}
	host := h8.Difference(guests)
	keep := p.plan.Housekeeping.CPUs
	got := map[string]string{
		"the host's processes":       g.allowed(g.pid(ctx, "irqbalance.service")),
		"systemd":                    g.allowed("1"),
		"this process":               g.allowed("self"),
		"the guests' processes":      g.allowed(g.pid(ctx, "guest.service")),
		"the root cgroup":            g.value("/sys/fs/cgroup/cpuset.cpus.effective"),
		"the partition":              g.value("/sys/fs/cgroup/machine.slice/cpuset.cpus.partition"),
		"numa_balancing":             g.value("/proc/sys/kernel/numa_balancing"),
		"stat_interval":              g.value("/proc/sys/vm/stat_interval"),
		"new interrupts":             g.value("/proc/irq/default_smp_affinity"),
		"work queues":                g.value("/sys/devices/virtual/workqueue/cpumask"),
		"the environment":            "?",
		"the unit of the boot":       g.unitState(ctx, bootUnitName),
		"the unit of the mount":      g.unitState(ctx, "dev-hugepages1G.mount"),
		"mounts of pages of 1 GiB":   g.mounts(),
		"interrupts elsewhere":       "",
		"interrupts of virtio moved": "",
	}
	want := map[string]string{
		"the host's processes": host.String(), "systemd": host.String(), "this process": host.String(),
		"the guests' processes": guests.String(),
		"the root cgroup":       host.String(), "the partition": "root", "numa_balancing": "0", "stat_interval": "10",
		"new interrupts": keep.Mask(), "work queues": keep.Mask(),
		"the unit of the boot": "loaded enabled inactive", "the unit of the mount": "loaded  active",
		"the environment":          "IRQBALANCE_BANNED_CPULIST=" + h8.Difference(keep).String(),
		"mounts of pages of 1 GiB": "/dev/hugepages1G", "interrupts elsewhere": "",
		"interrupts of virtio moved": "some",
	}
	for name := range strings.SplitSeq(g.value("/proc/"+g.pid(ctx, "irqbalance.service")+"/environ"), "\x00") {
		if strings.HasPrefix(name, bannedCPUs) {
			got["the environment"] = name
		}
	}
	memory, err := readIRQMemory(g.s)
	if err != nil || memory == nil {
		g.errorf("the memory of interrupts: %v, %v", memory, err)
		return
	}
	for _, m := range memory.Moved {
		if strings.HasPrefix(m.Name, "virtio") {
			got["interrupts of virtio moved"] = "some"
		}
		fmt.Printf("interrupt %d (%s) from %s to %s, effective %s\n", m.IRQ, m.Name, m.From,
			g.value(affinityFile(m.IRQ)), g.value(irqDir+strconv.Itoa(m.IRQ)+"/effective_affinity_list"))
	}
	for _, f := range memory.Fixed {
		fmt.Printf("interrupt %d (%s) stays on %s: %s\n", f.IRQ, f.Name, f.CPUs, f.Why)
	}
	astray, err := (&IRQs{CPUs: keep}).astray(g.s)
	if err != nil {
		g.errorf("%v", err)
	}
	for irq, cpus := range astray {
		if !slices.ContainsFunc(memory.Fixed, func(f FixedIRQ) bool { return f.IRQ == irq }) {
			got["interrupts elsewhere"] += fmt.Sprintf(" %d on %s", irq, cpus)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		g.errorf("the machine is not as the plan wants it (-want +got):\n%s", diff)
	}
}

var h8 = topology.CPURange(0, 7)

func (g *guestReport) lookAtPages(ctx context.Context, p *problem) {
	for _, h := range p.plan.Hugepages {
		pool := &Pool{NUMANode: h.NUMANode, PageBytes: h.PageBytes}
		if got := g.value(pool.dir() + "/free_hugepages"); got != strconv.FormatInt(h.Count, 10) {
			g.errorf("NUMA node %d has %s free pages, want %d", h.NUMANode, got, h.Count)
		}
	}
	pool := &Pool{NUMANode: p.plan.Hugepages[0].NUMANode, PageBytes: p.plan.Hugepages[0].PageBytes,
		Pages: 1 << 20} // with fewer pages than this, the pages are still rackless's own
	user := exec.Command("/usr/bin/numactl", "--membind="+strconv.Itoa(pool.NUMANode), "/tune.test")
	user.Env = []string{inGuest + "=1", holdPage + "=1"}
	in, err := user.StdinPipe()
	if err != nil {
		g.errorf("%v", err)
		return
	}
	out, err := user.StdoutPipe()
	if err == nil {
		err = user.Start()
	}
	if err != nil {
		g.errorf("%v", err)
		return
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "held\n" {
		g.errorf("a page cannot be had: %q", line)
	}
	if err := pool.Restore(ctx, g.s, "0"); err == nil || !strings.Contains(err.Error(), "1 are in use") {
		g.errorf("pages in use are taken back: %v", err)
	}
	in.Close()
	user.Wait()
}

const holdPage = "RACKLESS_TUNE_HOLD"

func hold() {
	page, err := syscall.Mmap(-1, 0, 2<<20, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS|syscall.MAP_HUGETLB)
	if err != nil {
		fmt.Println(err)
		return
	}
	page[0] = 1
	fmt.Println("held")
	io.Copy(io.Discard, os.Stdin)
}

func (g *guestReport) short(ctx context.Context) {
	pool := &Pool{NUMANode: 1, PageBytes: gib, Pages: 3, Boot: true}
	before, err := pool.Read(ctx, g.s)
	if err != nil {
		g.errorf("%v", err)
	}
	if ok, err := pool.ready(ctx, g.s); ok || err != nil {
		g.errorf("3 GiB on a node of 1.5 GiB can be had now: %v, %v", ok, err)
	}
	var missing *MissingError
	compacted := 0
	g.s.Fault = func(what string) {
		if strings.Contains(what, "node1/compact") {
			compacted++
		}
	}
	defer func() { g.s.Fault = nil }()
	if err := pool.Do(ctx, g.s); !errors.As(err, &missing) || missing.Want != 3 || missing.Have > 1 {
		g.errorf("too few pages of 1 GiB: %v", err)
	} else {
		fmt.Println(err)
	}
	if compacted != poolTries-1 {
		g.errorf("the node was compacted %d times, want %d: between two tries", compacted, poolTries-1)
	}
	if err := pool.Restore(ctx, g.s, before); err != nil {
		g.errorf("%v", err)
	}
	if now, err := pool.Read(ctx, g.s); now != before || err != nil {
		g.errorf("%s pages before, %s now, %v", before, now, err)
	}
}

func (g *guestReport) snapshot() map[string]string {
	all := map[string]string{}
	for _, dir := range []string{"/etc", "/run/systemd/system", "/run/systemd/system.control", "/run/systemd/transient",
		"/run/rackless-prepare"} {
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil {
				info, _ := d.Info()
				all[path] = info.Mode().String()
				if d.Type().IsRegular() {
					b, err := os.ReadFile(path)
					all[path] += fmt.Sprintf(" %q %v", b, err)
				}
			}
			return nil
		})
	}
	for _, pattern := range []string{
		"/sys/devices/system/node/node*/hugepages/*/nr_hugepages",
		"/sys/devices/system/node/node*/hugepages/*/surplus_hugepages", "/proc/irq/default_smp_affinity",
		"/proc/irq/*/smp_affinity_list", "/proc/sys/kernel/numa_balancing", "/proc/sys/vm/stat_interval",
		"/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/enabled",
		"/sys/devices/virtual/workqueue/cpumask", "/sys/fs/cgroup/cpuset.cpus.effective",
		"/sys/fs/cgroup/*.slice/cpuset.*", "/sys/fs/cgroup/init.scope/cpuset.*",
		"/sys/fs/cgroup/cgroup.subtree_control",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			g.errorf("%v", err)
		}
		for _, f := range files {
			all[f] = g.value(f)
		}
	}
	all["mounts"] = g.mounts()
	_, err := os.Stat("/dev/hugepages1G")
	all["/dev/hugepages1G"] = fmt.Sprint(err)
	for _, service := range []string{"irqbalance.service", "virtqemud.service", "guest.service"} {
		pid := g.pid(context.Background(), service)
		environ := strings.Split(g.value("/proc/"+pid+"/environ"), "\x00")
		environ = slices.DeleteFunc(environ, func(e string) bool { return !strings.HasPrefix(e, bannedCPUs) })
		b, _ := json.Marshal(environ)
		all[service] = g.allowed(pid) + " " + string(b)
	}
	all["systemd"] = g.allowed("1")
	return all
}

func (g *guestReport) mounts() string {
	at, err := hugeMounts(g.s, gib)
	if err != nil {
		return err.Error()
	}
	return strings.Join(at, " ")
}
