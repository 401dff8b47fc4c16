package tune

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func irqs() *IRQs {
	return &IRQs{CPUs: topology.CPUs(0, 3, 6, 7), Nodes: map[int]topology.CPUSet{0: topology.CPUs(0, 3),
		1: topology.CPUs(6, 7)}}
}

func TestInterruptsMoveNearTheirDevicesAndBack(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	places := func() map[string]string {
		all := map[string]string{}
		for _, irq := range []string{"0", "24", "25", "26"} {
			all[irq] = m.read("proc/irq/" + irq + "/smp_affinity_list")
		}
		return all
	}
	q := irqs()
	before, err := q.Read(t.Context(), m.system())
	if err != nil {
		t.Fatal(err)
	}
	was := places()
	if err := q.Do(t.Context(), m.system()); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"0": "0", "24": "6-7", "25": "0,3,6-7", "26": "0,3,6-7"}
	if diff := cmp.Diff(want, places()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if state, err := q.Read(t.Context(), m.system()); err != nil || !q.Done(state) {
		t.Errorf("not done: %s, %v", state, err)
	}
	m.write("proc/irq/40/smp_affinity_list", "0-7\n")
	m.remove("proc/irq/25")
	m.write("sys/kernel/irq/24/actions", "eth0\n")
	if state, err := q.Read(t.Context(), m.system()); err != nil || q.Done(state) || !strings.Contains(string(state),
		`"40":"0-7"`) {
		t.Errorf("an interrupt came: %s, %v", state, err)
	}
	if err := q.Restore(t.Context(), m.system(), before); err != nil {
		t.Fatal(err)
	}
	m.write("proc/irq/25/smp_affinity_list", was["25"])
	was["24"] = "6-7"
	if diff := cmp.Diff(was, places()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if now, err := q.Read(t.Context(), m.system()); err != nil || now != before {
		t.Errorf("it was %s and is %s, %v", before, now, err)
	}
}

// lastCap is a kernel file with a small number that exists on every machine and is not writable.
func lastCap(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

// A managed interrupt is read-only.
func TestInterruptsThatCannotBeMovedAreNamed(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.remove("proc/irq/25/smp_affinity_list")
	if err := os.Symlink("/proc/sys/kernel/cap_last_cap",
		filepath.Join(m.root, "proc/irq/25/smp_affinity_list")); err != nil {
		t.Fatal(err)
	}
	m.write("sys/kernel/irq/25/actions", "nvme0q1\n")
	q := irqs()
	for range 2 {
		if err := q.Do(t.Context(), m.system()); err != nil {
			t.Fatal(err)
		}
	}
	if state, err := q.Read(t.Context(), m.system()); err != nil || !q.Done(state) {
		t.Errorf("not done: %s, %v", state, err)
	}
	memory, err := readIRQMemory(m.system())
	if err != nil || len(memory.Fixed) != 1 {
		t.Fatalf("%+v, %v", memory, err)
	}
	if diff := cmp.Diff(FixedIRQ{IRQ: 25, Name: "nvme0q1", CPUs: lastCap(t), Why: "permission denied"},
		memory.Fixed[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := q.Restore(t.Context(), m.system(), `{"moved":false}`); err != nil {
		t.Error(err)
	}
}

func TestADamagedMemoryOfInterruptsSaysWhatToDo(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write(irqFile, "{")
	for _, f := range []func() error{
		func() error { _, err := irqs().Read(t.Context(), m.system()); return err },
		func() error { return irqs().Do(t.Context(), m.system()) },
		func() error { return irqs().Restore(t.Context(), m.system(), `{"moved":false}`) },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(),
			irqFile+": unexpected end of JSON input; remove it") {
			t.Errorf("got %v", err)
		}
	}
}

func TestNothingMovedIsNothingToName(t *testing.T) {
	t.Parallel()
	if memory, err := readIRQMemory(newMachine(t).system()); err != nil || memory != nil {
		t.Errorf("%+v, %v", memory, err)
	}
}

func TestASettingOfIRQBalanceThatCountsMoreIsRefused(t *testing.T) {
	t.Parallel()
	for file, want := range map[string]string{
		"IRQBALANCE_BANNED_CPULIST=5\n": `/etc/default/irqbalance has "IRQBALANCE_BANNED_CPULIST=5", ` +
			`which counts more than what the plan needs: remove that line`,
		"export IRQBALANCE_BANNED_CPULIST='5'\n": "counts more",
		"IRQBALANCE_BANNED_CPULIST=\n":           "",
		"IRQBALANCE_BANNED_CPULIST=\"\"\n":       "",
		"#IRQBALANCE_BANNED_CPULIST=5\n":         "",
	} {
		m := newMachine(t)
		m.write("etc/default/irqbalance", file)
		err := guardIRQBalance(t.Context(), m.system())
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %s", file, err, want)
		}
	}
}

func TestIRQBalanceThatRunsWithOtherCPUsIsAnError(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	step := find(t, pair(t, pairLab).steps(t, Options{}), "/etc/systemd/system/irqbalance.service.d/rackless-pair.conf")
	m.fail = func(argv []string) error {
		if argv[1] == "try-restart" { // another configuration sets the variable
			m.write("proc/800/environ", "IRQBALANCE_BANNED_CPULIST=7\x00")
			return errors.New("not now")
		}
		return nil
	}
	if err := step.Op.Do(t.Context(), m.system()); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want := "irqbalance.service runs with IRQBALANCE_BANNED_CPULIST=7 in place of IRQBALANCE_BANNED_CPULIST=1-2,4-5: " +
		"see systemctl cat irqbalance.service"
	if err := step.Op.(*Unit).checkEnvironment(ctx, m.system()); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	m.write("proc/800/environ", "LANG=C\x00")
	if err := step.Op.(*Unit).checkEnvironment(ctx, m.system()); err == nil || !strings.Contains(err.Error(),
		"runs with no IRQBALANCE_BANNED_CPULIST") {
		t.Errorf("got %v", err)
	}
}

func TestAServiceThatDoesNotRunIsNotStarted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.pids = map[string]int{}
	if _, err := m.prepare(pair(t, pairLab).steps(t, Options{})); err != nil {
		t.Fatal(err)
	}
	for _, command := range m.ran {
		if strings.Contains(command, "restart") {
			t.Errorf("ran %q", command)
		}
	}
}

func TestWithoutSystemdOnlyFilesChange(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.remove("run/systemd")
	op := &Unit{Path: "/etc/systemd/system/x.service.d/y.conf", Data: []byte("[Service]\n"), Service: "x.service",
		Environment: "A=B"}
	before, err := op.Read(t.Context(), m.system())
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Do(t.Context(), m.system()); err != nil {
		t.Fatal(err)
	}
	if err := op.Restore(t.Context(), m.system(), before); err != nil {
		t.Fatal(err)
	}
	if len(m.ran) > 0 {
		t.Errorf("ran %q", m.ran)
	}
}
