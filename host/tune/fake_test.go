package tune

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/machinetest"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
	"github.com/rackless/rackless/plan/search"
)

type problem struct {
	plan *plan.Plan
	lab  *lab.Lab
	host *topology.Host
}

func solve(ctx context.Context, h *topology.Host, file string) (*problem, error) {
	l, err := lab.Parse("lab.yaml", []byte(file))
	if err != nil {
		return nil, err
	}
	p, err := build.Problem(h, l, build.Options{})
	if err != nil {
		return nil, err
	}
	r, err := search.Solve(ctx, p, search.Options{})
	if err != nil {
		return nil, err
	}
	return &problem{plan.Assemble(h, l, p, plan.Outcome{Placement: r.Placement, Bound: r.Bound, Optimal: r.Optimal,
		Stopped: r.Stopped}), l, h}, nil
}

const gib = 1 << 30

const pairLab = "name: pair\nworkload: rdma-latency\nhugepages: 1GiB\nhost:\n  reserve: {cores: 4, numa_nodes: {0: " +
	"{cores: 2}, 1: {cores: 2}}}\n" +
	"nodes:\n  vm: {count: 2, cpus: 2, memory: 4GiB, nics: 0}\n"

func fakeHost() *topology.Host {
	h := &topology.Host{System: topology.System{Arch: "x86_64"}}
	online := topology.CPURange(0, 7)
	h.CPUs = topology.CPUStates{Present: &online, Online: online}
	for n := range 2 {
		cpus := topology.CPURange(4*n, 4*n+3)
		h.Packages = append(h.Packages, topology.Package{ID: n, CPUs: cpus})
		h.NUMANodes = append(h.NUMANodes, topology.NUMANode{
			ID: n, CPUs: cpus, MemoryBytes: new(uint64(16 * gib)), Distances: [][]int{{10, 21}, {21, 10}}[n],
			Hugepages: []topology.HugepagePool{{SizeBytes: 2 << 20, Free: new(uint64(0))},
				{SizeBytes: gib, Free: new(uint64(0))}},
		})
		for c := range 4 {
			id := 4*n + c
			h.Cores = append(h.Cores, topology.Core{ID: id, Package: new(n), NUMANode: new(n), CPUs: topology.CPUs(id),
				Governor: "schedutil"})
		}
	}
	h.Memory = topology.Memory{TotalBytes: new(uint64(32 * gib)), DefaultHuge: new(uint64(2 << 20)), NUMABalancing: "1",
		THP: "always", KSM: "1"}
	return h
}

func pair(t testing.TB, file string) *problem {
	t.Helper()
	p, err := solve(t.Context(), fakeHost(), file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *problem) steps(t testing.TB, o Options) []change.Step {
	t.Helper()
	steps, err := Steps(p.plan, p.lab, p.host, o)
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

type machine struct {
	t       testing.TB
	root    string
	journal string
	ran     []string
	pids    map[string]int
	fail    func(argv []string) error
}

func newMachine(t testing.TB) *machine {
	t.Helper()
	dir := machinetest.MemoryDir(t)
	m := &machine{t: t, root: filepath.Join(dir, "root"), journal: filepath.Join(dir, "state", "journal"),
		pids: map[string]int{"irqbalance.service": 800, "libvirtd.service": 900}}
	for path, text := range map[string]string{
		"run/systemd/system/keep": "",
		"dev/null":                "",
		"etc/systemd/system/keep": "",
		"etc/default/irqbalance":  "# IRQBALANCE_BANNED_CPULIST=\nIRQBALANCE_ARGS=\n",
		"proc/self/mountinfo": "23 1 0:22 / /dev/hugepages rw,relatime shared:10 - " +
			"hugetlbfs hugetlbfs rw,pagesize=2M\n",
		"proc/800/environ":                              "LANG=C\x00",
		"proc/900/environ":                              "LANG=C\x00",
		"proc/sys/kernel/numa_balancing":                "1\n",
		"proc/sys/vm/stat_interval":                     "1\n",
		"proc/sys/vm/compact_memory":                    "",
		"proc/irq/default_smp_affinity":                 "ff\n",
		"proc/irq/0/smp_affinity_list":                  "0\n",
		"proc/irq/24/smp_affinity_list":                 "0-7\n",
		"proc/irq/24/node":                              "1\n",
		"proc/irq/25/smp_affinity_list":                 "4-7\n",
		"proc/irq/26/smp_affinity_list":                 "2\n",
		"proc/irq/26/node":                              "-1\n",
		"proc/irq/30/spurious":                          "count 0\n",
		"sys/kernel/irq/24/actions":                     "nvme0q0\n",
		"sys/kernel/mm/ksm/run":                         "1\n",
		"sys/kernel/mm/transparent_hugepage/enabled":    "always\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/x": "",
		"sys/devices/virtual/workqueue/cpumask":         "ff\n",
		"sys/fs/cgroup/cgroup.controllers":              "cpuset cpu io memory hugetlb pids\n",
		"sys/fs/cgroup/machine.slice/keep":              "",
	} {
		m.write(path, text)
	}
	for n := range 2 {
		m.write(fmt.Sprintf("sys/devices/system/node/node%d/meminfo", n), meminfoText(n, 16*gib, 15*gib))
		for _, kb := range []int{2048, 1048576} {
			m.pool(n, kb, 0, -1)
		}
	}
	for c := range 3 {
		m.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", c),
			[]string{"schedutil\n", "powersave\n"}[c%2])
		m.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_available_governors", c),
			"performance schedutil powersave\n")
		m.write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/energy_performance_preference", c),
			"balance_performance\n")
	}
	for _, unit := range append([]string{machineSlice}, hostSlices...) {
		m.write("sys/fs/cgroup/"+unit+"/cpuset.cpus.effective", "0-7\n")
		m.write("sys/fs/cgroup/"+unit+"/cpuset.cpus.partition", "member\n")
	}
	return m
}

func meminfoText(node int, total, free uint64) string {
	return fmt.Sprintf("Node %[1]d MemTotal:       %8[2]d kB\nNode %[1]d MemFree:        %8[3]d kB\nNode %[1]d "+
		"Active(file):          0 kB\n"+
		"Node %[1]d Inactive(file):       10 kB\nNode %[1]d SReclaimable:          6 kB\nNode %[1]d "+
		"HugePages_Total:     0\n", node, total>>10, free>>10)
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimRight(string(b), "\n")
}

func (m *machine) remove(path string) {
	m.t.Helper()
	if err := os.RemoveAll(filepath.Join(m.root, path)); err != nil {
		m.t.Fatal(err)
	}
}

// pool takes -1 for free: all are free, even if the pool grows.
func (m *machine) pool(node, kb, pages, free int) {
	m.t.Helper()
	dir := fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB/", node, kb)
	m.write(dir+"nr_hugepages", strconv.Itoa(pages)+"\n")
	m.remove(dir + "free_hugepages")
	if free >= 0 {
		m.write(dir+"free_hugepages", strconv.Itoa(free)+"\n")
	} else if err := os.Symlink("nr_hugepages", filepath.Join(m.root, dir, "free_hugepages")); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) system() *change.System { return &change.System{Root: m.root, Run: m.run} }

func (m *machine) run(_ context.Context, argv []string) ([]byte, error) {
	if m.fail != nil {
		if err := m.fail(argv); err != nil {
			return nil, err
		}
	}
	command := strings.Join(argv, " ")
	if service, ok := strings.CutPrefix(command, "systemctl show --property=MainPID --value -- "); ok {
		return fmt.Appendln(nil, m.pids[service]), nil
	}
	if services, ok := strings.CutPrefix(command, "systemctl show --property=ActiveState --value -- "); ok {
		return []byte(strings.Repeat("inactive\n\n", len(strings.Fields(services)))), nil
	}
	if strings.HasPrefix(command, "systemctl show ") {
		return []byte("\n"), nil
	}
	m.ran = append(m.ran, command)
	mounts := filepath.Join(m.root, "proc/self/mountinfo")
	switch {
	case command == "systemctl daemon-reload":
		return nil, m.reload()
	case strings.HasPrefix(command, "systemctl try-restart -- "):
		service := argv[3]
		if m.pids[service] == 0 {
			return nil, nil
		}
		old := m.pids[service]
		m.pids[service] = old + 1000
		m.remove(fmt.Sprintf("proc/%d", old))
		env := "LANG=C\x00"
		drop, err := filepath.Glob(filepath.Join(m.root, "etc/systemd/system", service+".d", "*.conf"))
		if err != nil {
			return nil, err
		}
		for _, d := range drop {
			b, err := os.ReadFile(d)
			if err != nil {
				return nil, err
			}
			for line := range strings.Lines(string(b)) {
				if value, ok := strings.CutPrefix(line, "Environment="); ok {
					env += strings.Trim(value, "\"\n") + "\x00"
				}
			}
		}
		m.write(fmt.Sprintf("proc/%d/environ", old+1000), env)
		return nil, nil
	case strings.HasPrefix(command, "mount -t hugetlbfs -o pagesize=1048576K,mode=0755 hugetlbfs "):
		b, err := os.ReadFile(mounts)
		if err != nil {
			return nil, err
		}
		line := "40 25 0:40 / " + argv[len(argv)-1] +
			" rw,relatime shared:20 - hugetlbfs hugetlbfs rw,mode=755,pagesize=1024M\n"
		return nil, os.WriteFile(mounts, append(b, line...), 0o644)
	case argv[0] == "umount":
		b, err := os.ReadFile(mounts)
		if err != nil {
			return nil, err
		}
		var kept []byte
		for line := range strings.Lines(string(b)) {
			if strings.Fields(line)[4] != argv[1] {
				kept = append(kept, line...)
			}
		}
		return nil, os.WriteFile(mounts, kept, 0o644)
	}
	return nil, fmt.Errorf("the test does not know %q", command)
}

func (m *machine) reload() error {
	for _, unit := range append([]string{machineSlice}, hostSlices...) {
		drops, err := filepath.Glob(filepath.Join(m.root, "etc/systemd/system", unit+".d", "*.conf"))
		if err != nil {
			return err
		}
		cpus := "0-7"
		for _, d := range drops {
			b, err := os.ReadFile(d)
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(b)) {
				if value, ok := strings.CutPrefix(line, "AllowedCPUs="); ok && strings.TrimSpace(value) != "" {
					cpus = strings.TrimSpace(value)
				}
			}
		}
		m.write("sys/fs/cgroup/"+unit+"/cpuset.cpus.effective", cpus+"\n")
	}
	return nil
}

func (m *machine) boot() {
	m.t.Helper()
	fresh := newMachine(m.t)
	for _, dir := range []string{"proc", "sys", "run", "dev"} {
		m.remove(dir)
		if err := os.Rename(filepath.Join(fresh.root, dir), filepath.Join(m.root, dir)); err != nil {
			m.t.Fatal(err)
		}
	}
	m.pids = fresh.pids
	for service := range m.pids {
		if _, err := m.run(m.t.Context(), []string{"systemctl", "try-restart", "--", service}); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.reload(); err != nil {
		m.t.Fatal(err)
	}
}

// snapshot omits process IDs, which change with a restart.
func (m *machine) snapshot() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, m.root)
		for service, pid := range m.pids {
			name = strings.Replace(name, fmt.Sprintf("/proc/%d", pid), "/proc/"+service, 1)
		}
		switch {
		case d.IsDir():
			all[name] = info.Mode().String()
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			all[name] = "-> " + to
		default:
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text := string(b)
			if strings.HasPrefix(name, "/sys/") || strings.HasPrefix(name, "/proc/") {
				text = strings.TrimRight(text, "\n")
			}
			all[name] = info.Mode().String() + " " + text
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	delete(all, "/proc/sys/vm/compact_memory")
	return all
}

func allKinds() change.Kinds {
	k := change.BasicKinds()
	maps.Copy(k, Kinds())
	return k
}

type died struct{ at string }

func (m *machine) do(point int, f func(s *change.System, j *change.Journal) error) (points int, killed bool,
	err error) {
	m.t.Helper()
	s := m.system()
	j, err := change.Open(m.journal, allKinds())
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(died); !ok {
				panic(r)
			}
			killed = true
		}
		err = errors.Join(err, j.Close()) // removes the journal only if it is empty
	}()
	s.Fault = func(what string) {
		if points == point {
			panic(died{what})
		}
		points++
	}
	return points, false, f(s, j)
}

func (m *machine) prepare(steps []change.Step) ([]change.Result, error) {
	m.t.Helper()
	var results []change.Result
	_, _, err := m.do(-1, func(s *change.System, j *change.Journal) (err error) {
		results, err = change.Make(m.t.Context(), s, j, steps, nil)
		return err
	})
	return results, err
}

func (m *machine) rollback() error {
	m.t.Helper()
	_, _, err := m.do(-1, func(s *change.System, j *change.Journal) error {
		_, err := change.Rollback(m.t.Context(), s, j, nil)
		return err
	})
	return err
}

func statuses(results []change.Result) []string {
	var all []string
	for _, r := range results {
		all = append(all, fmt.Sprintf("%s %s %s", r.Status, r.Kind, r.Subject))
	}
	return all
}

func find(t testing.TB, steps []change.Step, subject string) change.Step {
	t.Helper()
	i := slices.IndexFunc(steps, func(s change.Step) bool { return s.Op.Subject() == subject })
	if i < 0 {
		t.Fatalf("no step is about %s", subject)
	}
	return steps[i]
}
