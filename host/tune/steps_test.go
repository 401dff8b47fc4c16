package tune

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/golden"
)

func text(steps []change.Step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "%s\n  why: %s\n  risk: %s\n  %s %s\n", s.What, s.Why, s.Risk, s.Op.Kind(), s.Op.Subject())
		var data []byte
		switch op := s.Op.(type) {
		case *Unit:
			data = op.Data
		case *change.File:
			data = op.Data
		case *change.Value:
			data = []byte(op.Want)
		}
		for line := range strings.Lines(string(data)) {
			fmt.Fprintf(&b, "    %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return b.String()
}

func TestTheStepsOfAPlan(t *testing.T) {
	t.Parallel()
	p := pair(t, pairLab)
	golden.Check(t, "testdata/steps.txt", text(p.steps(t, Options{})))
	golden.Check(t, "testdata/steps-no-reboot.txt", text(p.steps(t, Options{NoReboot: true})))
}

func TestStepsAreTheSameWhenTheyAreMadeAgain(t *testing.T) {
	t.Parallel()
	p := pair(t, pairLab)
	if diff := cmp.Diff(text(p.steps(t, Options{NoReboot: true})),
		text(p.steps(t, Options{NoReboot: true}))); diff != "" {
		t.Errorf("(-first +second):\n%s", diff)
	}
}

func TestAHostThatLacksSomethingIsNotAskedForIt(t *testing.T) {
	t.Parallel()
	p := pair(t, "name: pair\nhugepages: off\nnodes:\n  vm: {count: 2, cpus: 2, memory: 4GiB, nics: 0}\n")
	p.host.Memory.KSM, p.host.Memory.THP, p.host.Memory.NUMABalancing = "", "", ""
	for i := range p.host.Cores {
		p.host.Cores[i].Governor = ""
	}
	var got []string
	for _, s := range p.steps(t, Options{}) {
		got = append(got, s.Op.Kind()+" "+s.Op.Subject())
	}
	want := []string{
		"value /proc/sys/vm/stat_interval", "file /etc/sysctl.d/90-rackless.conf",
		"cpumask /proc/irq/default_smp_affinity", "unit /etc/systemd/system/irqbalance.service.d/rackless-pair.conf",
		"irqs /proc/irq/",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTransparentHugepagesAreLeftAloneWhereTheyMayHelp(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		strings.Replace(pairLab, "rdma-latency", "rdma-bandwidth", 1),
		strings.Replace(pairLab, "1GiB", "off", 1),
	} {
		for _, s := range pair(t, file).steps(t, Options{}) {
			if strings.Contains(s.Op.Subject(), "transparent") {
				t.Errorf("with %q there is a step: %s", file, s.What)
			}
		}
	}
}

func TestMemoryTieringIsKept(t *testing.T) {
	t.Parallel()
	for have, want := range map[string]string{"0": "0", "1": "0", "2": "2", "3": "2"} {
		p := pair(t, pairLab)
		p.host.Memory.NUMABalancing = have
		op := find(t, p.steps(t, Options{}), "/proc/sys/kernel/numa_balancing").Op.(*change.Value)
		if op.Want != want {
			t.Errorf("numa_balancing %s becomes %s, want %s", have, op.Want, want)
		}
	}
}

// The power may be cut at any change, too.
func TestAProcessThatDiesAnywhereLeavesAMachineThatCanGoBothWays(t *testing.T) {
	t.Parallel()
	steps := pair(t, pairLab).steps(t, Options{NoReboot: true})
	prepare := func(s *change.System, j *change.Journal) error {
		_, err := change.Make(context.Background(), s, j, steps, nil)
		return err
	}
	rollback := func(s *change.System, j *change.Journal) error {
		_, err := change.Rollback(context.Background(), s, j, nil)
		return err
	}
	run := func(m *machine, point int, f func(*change.System, *change.Journal) error) (int, bool) {
		n, killed, err := m.do(point, f)
		if err != nil {
			t.Fatalf("point %d: %v", point, err)
		}
		return n, killed
	}
	first := newMachine(t)
	before := first.snapshot()
	there, _ := run(first, -1, prepare)
	after := first.snapshot()
	back, _ := run(first, -1, rollback)
	if diff := cmp.Diff(before, first.snapshot()); diff != "" {
		t.Fatalf("rollback leaves a difference (-before +after):\n%s", diff)
	}
	if there < 85 || back < 75 {
		t.Errorf("%d changes there and %d back: too few for all steps", there, back)
	}
	check := func(m *machine, at, what string, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, m.snapshot()); diff != "" {
			t.Errorf("%s, then %s (-want +got):\n%s", at, what, diff)
		}
	}
	end := func(m *machine, at string, point int) {
		t.Helper()
		if point%2 == 1 {
			m.boot()
			at += ", a boot"
		}
		if point%4 < 2 {
			run(m, -1, prepare)
			check(m, at, "prepare", after)
		}
		run(m, -1, rollback)
		check(m, at, "rollback", before)
	}
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for point := 0; point < there; point += stride {
		m := newMachine(t)
		if _, killed := run(m, point, prepare); !killed {
			t.Fatalf("point %d of %d was not reached", point, there)
		}
		end(m, fmt.Sprintf("died at point %d of prepare", point), point)
	}
	for point := 0; point < back; point += stride {
		m := newMachine(t)
		run(m, -1, prepare)
		if _, killed := run(m, point, rollback); !killed {
			t.Fatalf("point %d of %d was not reached", point, back)
		}
		end(m, fmt.Sprintf("died at point %d of rollback", point), point)
	}
}

func TestWhatIsInPlaceIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	steps := pair(t, pairLab).steps(t, Options{NoReboot: true})
	if _, err := m.prepare(steps); err != nil {
		t.Fatal(err)
	}
	m.ran = nil
	results, err := m.prepare(steps)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Status != change.InPlace {
			t.Errorf("%s: %s", r.What, r.Status)
		}
	}
	if len(m.ran) > 0 {
		t.Errorf("ran %q", m.ran)
	}
}

// A boot resets the kernel's values, and empties /run.
func TestABootIsMadeGoodAndRollbackKnowsWhatWasBefore(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	before := m.snapshot()
	steps := pair(t, pairLab).steps(t, Options{NoReboot: true})
	if _, err := m.prepare(steps); err != nil {
		t.Fatal(err)
	}
	after := m.snapshot()
	m.boot()
	m.write("proc/irq/24/smp_affinity_list", "1-6")
	if _, err := m.prepare(steps); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(after, m.snapshot()); diff == "" || !strings.Contains(diff, "irqs.json") ||
		strings.Count(diff, "\n+") > 1 {
		t.Errorf("after a boot and prepare something other than the memory of interrupts differs (-first +now):\n%s",
			diff)
	}
	m.boot()
	if err := m.rollback(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, m.snapshot()); diff != "" {
		t.Errorf("rollback in another boot (-before +after):\n%s", diff)
	}
}
