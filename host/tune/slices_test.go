package tune

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

func TestASliceThatIsNotLimitedIsAnError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	op := &Unit{Slice: "system.slice", CPUs: topology.CPUs(3, 7)}
	for _, tt := range []struct {
		name, want string
		set        func(*machine)
	}{
		{"limited", "", func(m *machine) { m.write("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "3,7\n") }},
		{"limited to fewer, since others are offline", "", func(m *machine) {
			m.write("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "3\n")
		}},
		{"not there", "", func(m *machine) { m.remove("sys/fs/cgroup/system.slice") }},
		{"not limited", "system.slice may still use CPUs 0-7, wanted 3,7: see systemctl cat system.slice for what " +
			"else sets AllowedCPUs=", func(*machine) {}},
		{"a systemd that does not know the setting",
			"systemd does not limit system.slice to CPUs 3,7 (it has to be 244 or later)",
			func(m *machine) { m.remove("sys/fs/cgroup/system.slice/cpuset.cpus.effective") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.set(m)
			err := op.checkSlice(ctx, m.system())
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

// The kernel rejects an empty list for a slice with processes.
func TestASliceThatNobodyLimitsGetsAllCPUsBack(t *testing.T) {
	t.Parallel()
	const file = "sys/fs/cgroup/system.slice/cpuset.cpus"
	op := &Unit{Slice: "system.slice", CPUs: topology.CPUs(3, 7)}
	for _, tt := range []struct{ name, limit, asked, want string }{
		{"the limit stayed", "3,7\n", "\n", "0-7"},
		{"the limit went", "\n", "\n", "\n"},
		{"it has all CPUs", "0-7\n", "\n", "0-7\n"},
		{"somebody else limits it", "2-3\n", "2-3\n", "2-3\n"},
		{"no controller", "", "\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			m.write("sys/devices/system/cpu/possible", "0-7\n")
			if tt.limit != "" {
				m.write(file, tt.limit)
			}
			s := m.system()
			s.Run = func(_ context.Context, argv []string) ([]byte, error) {
				if want := "systemctl show --property=AllowedCPUs --value -- system.slice"; strings.Join(argv,
					" ") != want {
					t.Errorf("%q was run, want %s", argv, want)
				}
				return []byte(tt.asked), nil
			}
			if err := op.releaseSlice(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(m.root, file))
			if string(got) != tt.want || (err != nil) != (tt.limit == "") {
				t.Errorf("cpuset.cpus is %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestWhereThereAreNoCgroupsOfVersion2TheRestIsMade(t *testing.T) {
	t.Parallel()
	steps := pair(t, pairLab).steps(t, Options{NoReboot: true})
	waiting := func(m *machine) []string {
		t.Helper()
		results, err := m.prepare(steps)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, s := range statuses(results) {
			if rest, ok := strings.CutPrefix(s, "waiting "); ok {
				all = append(all, rest)
			}
		}
		return all
	}
	m := newMachine(t)
	m.remove("sys/fs/cgroup/cgroup.controllers")
	want := []string{
		"unit /etc/systemd/system/system.slice.d/99-rackless.conf",
		"unit /etc/systemd/system/user.slice.d/99-rackless.conf",
		"unit /etc/systemd/system/init.scope.d/99-rackless.conf",
		"unit /etc/systemd/system/machine.slice.d/99-rackless.conf", "partition /sys/fs/cgroup/machine.slice",
	}
	if diff := cmp.Diff(want, waiting(m)); diff != "" {
		t.Errorf("version 1 (-want +got):\n%s", diff)
	}
	m = newMachine(t)
	m.write("sys/fs/cgroup/system.slice/cpuset.cpus", "")
	m.remove("sys/fs/cgroup/system.slice/cpuset.cpus.partition")
	if diff := cmp.Diff(want[4:], waiting(m)); diff != "" {
		t.Errorf("no partitions (-want +got):\n%s", diff)
	}
}

func TestThereIsNoPartitionWhereItWouldTakeWhatOthersNeed(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*problem){
		"other machines":         func(p *problem) { p.host.Tenants = []topology.Tenant{{Name: "web"}} },
		"CPUs of other machines": func(p *problem) { p.plan.Housekeeping.TenantCPUs = topology.CPUs(7) },
		"no core beside QEMU's threads": func(p *problem) {
			for i := range p.plan.Nodes {
				p.plan.Nodes[i].EmulatorCPUs = p.plan.Housekeeping.CPUs
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := pair(t, pairLab)
			set(p)
			steps := p.steps(t, Options{NoReboot: true})
			if slices.ContainsFunc(steps, func(s change.Step) bool { return s.Op.Kind() == kindPartition }) {
				t.Error("there is one")
			}
			unit := find(t, steps, "/etc/systemd/system/system.slice.d/99-rackless.conf").Op.(*Unit)
			if !unit.CPUs.Equal(p.plan.Housekeeping.CPUs) {
				t.Errorf("system.slice has CPUs %s, the host %s", unit.CPUs, p.plan.Housekeeping.CPUs)
			}
		})
	}
}

func TestAPartitionThatTheKernelRefusesIsGivenUpWithItsReason(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	file := filepath.Join(m.root, "sys/fs/cgroup/machine.slice/cpuset.cpus.partition")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", file); err != nil {
		t.Fatal(err)
	}
	var wrote []string
	s := m.system()
	s.Fault = func(what string) { wrote = append(wrote, what) }
	err := (&Partition{Slice: machineSlice}).Do(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), `machine.slice does not become a partition, the kernel says ""`) {
		t.Errorf("got %v", err)
	}
	want := []string{`write "root" to /sys/fs/cgroup/machine.slice/cpuset.cpus.partition`,
		`write "member" to /sys/fs/cgroup/machine.slice/cpuset.cpus.partition`}
	if diff := cmp.Diff(want, wrote); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAPartitionGoesBackToWhatItWas(t *testing.T) {
	t.Parallel()
	for before, want := range map[change.State]string{"member": "member", "isolated": "isolated",
		"root invalid (Cpu list in cpuset.cpus not exclusive)": "root"} {
		m := newMachine(t)
		m.write("sys/fs/cgroup/machine.slice/cpuset.cpus.partition", "root\n")
		if strings.HasPrefix(string(before), "root") {
			m.write("sys/fs/cgroup/machine.slice/cpuset.cpus.partition", "member\n")
		}
		if err := (&Partition{Slice: machineSlice}).Restore(t.Context(), m.system(), before); err != nil {
			t.Error(err)
		}
		if got := m.read("sys/fs/cgroup/machine.slice/cpuset.cpus.partition"); got != want {
			t.Errorf("it was %s and is %s", before, got)
		}
	}
}

// Dissolve acts only on a partition, and only then does the caller make it again.
func TestAPartitionIsDissolvedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for state, was := range map[string]bool{"root": true, "member": false,
		"root invalid (Cpu list in cpuset.cpus not exclusive)": false, "": false} {
		s := &change.System{Root: t.TempDir()}
		file := filepath.Join(s.Root, cgroupRoot, machineSlice, "cpuset.cpus.partition")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		want := state
		if state != "" {
			if err := os.WriteFile(file, []byte(state+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if was {
			want = "member"
		}
		got, err := MachinePartition().Dissolve(t.Context(), s)
		now, _ := os.ReadFile(file)
		if err != nil || got != was || strings.TrimSpace(string(now)) != want {
			t.Errorf("%q: dissolved %v, %v, and it is %q now", state, got, err, now)
		}
		if !was {
			continue
		}
		if err := MachinePartition().Do(t.Context(), s); err != nil {
			t.Error(err)
		}
		if now, _ := os.ReadFile(file); strings.TrimSpace(string(now)) != "root" {
			t.Errorf("it is %q at the end", now)
		}
	}
}
