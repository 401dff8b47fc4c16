package tune

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rackless/rackless/host/change"
)

func derived(path string) bool {
	return strings.HasPrefix(path, "/run/") || path == "/proc/self/mountinfo" || strings.HasSuffix(path, "/environ") ||
		strings.HasSuffix(path, "/cpuset.cpus.effective") || strings.HasSuffix(path, "/free_hugepages")
}

func (m *machine) byHand(p *problem, path, snapshot string) string {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	if strings.HasPrefix(snapshot, "-> ") {
		if err := os.Remove(full); err != nil {
			m.t.Fatal(err)
		}
		if err := os.Symlink("/dev/null", full); err != nil {
			m.t.Fatal(err)
		}
		return "-> /dev/null"
	}
	mode, text, _ := strings.Cut(snapshot, " ")
	switch name := filepath.Base(path); {
	case name == "nr_hugepages":
		text = "5000"
	case name == "scaling_governor":
		text = "userspace"
	case name == "energy_performance_preference":
		text = "power"
	case name == "cpuset.cpus.partition":
		text = "isolated"
	case name == "smp_affinity_list":
		text = p.plan.NodeCPUs().String()
	case name == "default_smp_affinity" || name == "cpumask":
		text = "80"
	case strings.HasPrefix(path, "/etc/"):
		text += "# by hand\n"
	default:
		text = "33"
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
	return mode + " " + text
}

func (m *machine) undo() (left []change.Changed) {
	m.t.Helper()
	_, _, err := m.do(-1, func(s *change.System, j *change.Journal) error {
		results, err := change.Rollback(m.t.Context(), s, j, nil)
		for _, r := range results {
			left = append(left, r.Changed...)
			if (r.Status == change.Kept) != (len(r.Changed) > 0) {
				m.t.Errorf("%s is %s, and left %v", r.What, r.Status, r.Changed)
			}
		}
		if n := len(j.Entries()); err == nil && n > 0 {
			m.t.Errorf("%d entries remain", n)
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return left
}

// Rollback leaves and reports values that were set by hand, even if the preparation died at any point.
func TestWhatIsSetByHandSurvivesARollback(t *testing.T) {
	t.Parallel()
	p := pair(t, pairLab)
	kinds := map[string]bool{}
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(t)
		steps := append(p.steps(t, Options{NoReboot: true}), BootUnit("/usr/local/bin/rackless")...)
		for i := range steps {
			if steps[i].Op.Subject() == unitDir+bootUnitName {
				steps[i].Guard = nil // the program does not exist
			}
		}
		for _, s := range steps {
			kinds[s.Op.Kind()] = true
		}
		want := m.snapshot()
		die := rapid.OneOf(rapid.Just(-1), rapid.IntRange(0, 150)).Draw(rt, "die")
		_, killed, err := m.do(die, func(s *change.System, j *change.Journal) error {
			_, err := change.Make(t.Context(), s, j, steps, nil)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		made := m.snapshot()
		var paths []string
		for _, path := range slices.Sorted(maps.Keys(made)) {
			if made[path] != want[path] && !derived(path) && !strings.HasPrefix(made[path], "d") &&
				!strings.HasSuffix(path, ".rackless-new") {
				paths = append(paths, path)
			}
		}
		if len(paths) < 20 && !killed {
			t.Fatalf("prepare changes %q only", paths)
		}
		chosen := paths
		if len(paths) > 0 {
			chosen = rapid.SliceOfDistinct(rapid.SampledFrom(paths), rapid.ID[string]).Draw(rt, "by hand")
		}
		for _, path := range chosen {
			want[path] = m.byHand(p, path, made[path])
			// Its directories stay.
			for dir := filepath.Dir(path); want[dir] == ""; dir = filepath.Dir(dir) {
				want[dir] = made[dir]
			}
		}
		left := m.undo()
		got := m.snapshot()
		for _, all := range []map[string]string{want, got} {
			maps.DeleteFunc(all, func(path, _ string) bool { return derived(path) })
		}
		if diff := cmp.Diff(want, got); diff != "" {
			rt.Errorf("by hand %q (-want +is):\n%s", chosen, diff)
		}
		for _, path := range chosen {
			if !slices.ContainsFunc(left, func(c change.Changed) bool { return tells(c, path) }) {
				rt.Errorf("nobody says that %s was left: %v", path, left)
			}
		}
		if len(left) != len(chosen) {
			rt.Errorf("by hand %q, left %v", chosen, left)
		}
	})
	for kind := range Kinds() {
		if !kinds[kind] {
			t.Errorf("no step has an op of kind %q", kind)
		}
	}
}

func tells(c change.Changed, path string) bool {
	if rest, ok := strings.CutPrefix(path, cpuDir+"cpu"); ok {
		cpu, file, _ := strings.Cut(rest, "/cpufreq/")
		what := map[string]string{"scaling_governor": "governor", "energy_performance_preference": "energy preference"}
		return c.What == what[file]+" of CPU "+cpu
	}
	return c.What == path
}

// There were 4 before, and the plan wants 16.
func TestPagesThatSomebodyHasSetStay(t *testing.T) {
	t.Parallel()
	const nr = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
	for _, c := range []struct {
		name  string
		found int
		cut   bool
		want  int
		left  bool
	}{
		{"as prepare has made them", 16, false, 4, false},
		{"given back by hand", 4, false, 4, false},
		{"more, for a database of theirs", 64, false, 64, true},
		{"fewer", 10, false, 10, true},
		{"none", 0, false, 0, true},
		{"as many as the kernel had found when prepare died", 10, true, 4, false},
		{"more, while prepare was dead", 64, true, 64, true},
		{"fewer than before, while prepare was dead", 2, true, 2, true},
	} {
		m := newMachine(t)
		m.pool(0, 2048, 4, -1)
		op := &Pool{NUMANode: 0, PageBytes: 2 << 20, Pages: 16}
		step := change.Step{Op: op, What: "pages"}
		if _, err := m.prepare([]change.Step{step}); err != nil {
			t.Fatal(err)
		}
		if c.cut {
			m.pool(0, 2048, 16, 2)
			if err := m.rollback(); err == nil {
				t.Error("pages in use were taken away")
			}
		}
		m.pool(0, 2048, c.found, -1)
		left := m.undo()
		if got := m.read(nr); got != strconv.Itoa(c.want) || c.left != (len(left) == 1) {
			t.Errorf("%s: %s pages, want %d; left %v", c.name, got, c.want, left)
		}
		if c.left && (left[0].Found != strconv.Itoa(c.found) || left[0].Set != "16") {
			t.Errorf("%s: %v", c.name, left)
		}
	}
}

// A boot may find fewer pages than its arguments ask for. That is not a change by others.
func TestPagesOfABootAreTakenBackHoweverManyItFound(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const boot = "proc/sys/kernel/random/boot_id"
	m.write(boot, "first\n")
	m.pool(0, 2048, 4, -1)
	if _, err := m.prepare([]change.Step{{Op: &Pool{NUMANode: 0, PageBytes: 2 << 20, Pages: 16}}}); err != nil {
		t.Fatal(err)
	}
	m.write(boot, "second\n")
	m.pool(0, 2048, 12, -1)
	if left := m.undo(); left != nil {
		t.Error(left)
	}
	if got := m.read("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"); got != "4" {
		t.Errorf("%s pages", got)
	}
}

// Once prepare has found all pages in place, fewer pages are a change by others.
func TestPagesThatSomebodyHasSetSinceTheBootStay(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const boot = "proc/sys/kernel/random/boot_id"
	steps := []change.Step{{Op: &Pool{NUMANode: 0, PageBytes: 2 << 20, Pages: 16}}}
	m.write(boot, "first\n")
	m.pool(0, 2048, 4, -1)
	if _, err := m.prepare(steps); err != nil {
		t.Fatal(err)
	}
	m.write(boot, "second\n")
	for _, most := range []int{300, 0} {
		before, err := os.ReadFile(m.journal)
		if err != nil {
			t.Fatal(err)
		}
		if results, err := m.prepare(steps); err != nil || results[0].Status != change.InPlace {
			t.Fatal(results, err)
		}
		after, err := os.ReadFile(m.journal)
		if err != nil || len(after) > len(before)+most {
			t.Errorf("the journal grew from %d to %d bytes, %v", len(before), len(after), err)
		}
	}
	m.pool(0, 2048, 12, -1)
	if left := m.undo(); len(left) != 1 || left[0].Found != "12" {
		t.Error(left)
	}
}

// irqbalance moves interrupts among the CPUs it may use, which is not a change by others.
func TestInterruptsThatIRQBalanceHasMovedGoBack(t *testing.T) {
	t.Parallel()
	for _, runs := range []bool{true, false} {
		m := newMachine(t)
		steps := pair(t, pairLab).steps(t, Options{NoReboot: true})
		if !runs {
			delete(m.pids, irqBalance)
		}
		before := m.read("proc/irq/24/smp_affinity_list")
		if _, err := m.prepare(steps); err != nil {
			t.Fatal(err)
		}
		m.write("proc/irq/24/smp_affinity_list", "0\n") // its affinity was several CPUs
		left := m.undo()
		want := map[bool]string{true: before, false: "0"}[runs]
		if got := m.read("proc/irq/24/smp_affinity_list"); got != want || (len(left) == 1) == runs {
			t.Errorf("irqbalance runs: %v: interrupt 24 is on CPUs %s, want %s; left %v", runs, got, want, left)
		}
	}
}

// A partition that has lost its CPUs still counts as made by prepare.
func TestAPartitionThatBecameInvalidIsUndone(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const file = "sys/fs/cgroup/machine.slice/cpuset.cpus.partition"
	if _, err := m.prepare([]change.Step{{Op: MachinePartition()}}); err != nil {
		t.Fatal(err)
	}
	m.write(file, "root invalid (Cpu list in cpuset.cpus not exclusive)\n")
	if left := m.undo(); left != nil || m.read(file) != noPartition {
		t.Errorf("left %v, and it is %s", left, m.read(file))
	}
}

// Others may mount pages of the size elsewhere.
func TestMountsOfOthersAreNoneOfARollback(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	if _, err := m.prepare([]change.Step{{Op: &Mount{Path: "/dev/hugepages1G", PageBytes: gib}}}); err != nil {
		t.Fatal(err)
	}
	const mounts = "proc/self/mountinfo"
	m.write(mounts, m.read(mounts)+"\n41 25 0:41 / /mnt rw - hugetlbfs hugetlbfs rw,mode=755,pagesize=1024M\n")
	if left := m.undo(); left != nil {
		t.Error(left)
	}
	if text := m.read(mounts); strings.Contains(text, "/dev/hugepages1G") || !strings.Contains(text, " /mnt ") {
		t.Errorf("mounts:\n%s", text)
	}
}
