package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/storey"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack/verify/checks"
)

// tenantScript prints all state in which a tenant could notice a change: its process, its definition, the affinity of
// its threads, and threads of other virtual machines on its CPU, 1. The last line is how long its threads ran and
// waited for a CPU, in nanoseconds: the guest sees the waiting as stolen time.
const tenantScript = `
pid=$(cat /run/libvirt/qemu/tenant.pid)
echo "process $pid $(cut -d' ' -f22 /proc/$pid/stat)"
virsh 'domstate tenant; dumpxml tenant'
for t in /proc/$pid/task/*; do
	case "$(cat $t/comm)" in
	CPU*|qemu-system*)
		echo "$(cat $t/comm) $(grep -E 'Cpus_allowed_list|Mems_allowed_list' $t/status | tr '\n\t' '  ')" ;;
	esac
done
cat /proc/$pid/cgroup
for p in /run/libvirt/qemu/*.pid; do
	case $p in */driver.pid | */tenant.pid) continue ;; esac
	for t in /proc/$(cat $p)/task/*; do
		mask=$(awk '/^Cpus_allowed:/ {print $2}' $t/status 2>/dev/null)
		[ -z "$mask" ] || [ $((0x${mask##*,} & 2)) = 0 ] || echo "on the tenant's CPU: $(cat $t/comm) of $p"
	done
done
for t in /proc/$pid/task/*; do cat $t/schedstat; done |
	awk '{ran += $1; waited += $2} END {printf "ran %.0f waited %.0f\n", ran, waited}'
`

type tenant struct {
	h           *small
	notices     string
	ran, waited time.Duration // since the tenant's start
}

// For a tenant that is gone when the host boots, and one that libvirt starts at each boot.
const (
	untilBoot = "virsh create tenant.xml"
	atBoots   = "virsh define tenant.xml && virsh autostart tenant && virsh start tenant"
)

func (h *small) newTenant(t *testing.T, command string) *tenant {
	t.Helper()
	h.putFile(t, "/root/tenant.xml", "testdata/faults/tenant.xml")
	h.putText(t, "/root/tenant.sh", tenantScript)
	h.mustHost(t, command)
	now := &tenant{h: h}
	now.look(t)
	return now
}

func (n *tenant) look(t *testing.T) {
	t.Helper()
	out := strings.TrimSpace(n.h.mustHost(t, "sh tenant.sh"))
	i := strings.LastIndex(out, "\n")
	n.notices = out[:i]
	if _, err := fmt.Sscanf(out[i+1:], "ran %d waited %d", &n.ran, &n.waited); err != nil {
		t.Fatalf("%q: %v", out[i+1:], err)
	}
}

// mostStolen limits the share of its runnable time in which the tenant may wait for its CPU. The host uses it too; a
// virtual CPU of the lab there would take half.
const mostStolen = 0.4

func (n *tenant) undisturbed(t *testing.T, since string) {
	t.Helper()
	before := *n
	n.look(t)
	if diff := diffLines(before.notices, n.notices); diff != "" {
		t.Fatalf("after %s the tenant is not as it was (-before +after):\n%s", since, diff)
	}
	t.Logf("%s: the tenant ran for %v and waited for %v", since, n.ran-before.ran, n.waited-before.waited)
}

// hadItsCPU looks at the total wait. A check after each command would be unreliable: a tenant that runs for half a
// second waits as long if other tests get the emulated host's CPU once.
func (n *tenant) hadItsCPU(t *testing.T) {
	t.Helper()
	stolen := n.waited.Seconds() / (n.ran + n.waited).Seconds()
	t.Logf("the tenant ran for %v and waited for %v in all: %.1f %% were stolen", n.ran, n.waited, 100*stolen)
	if !(stolen <= mostStolen) {
		t.Errorf("%.0f %% of the tenant's time were stolen", 100*stolen)
	}
}

// byReboot are the checks that fail on a host that is prepared without a reboot.
var byReboot = []string{checks.IDKernelArgs, checks.IDThreads, checks.IDInterrupts}

// verified fails the test if verify found faults by checks that are not allowed to fail.
func (h *small) verified(t *testing.T, out string, status int, allowed ...string) {
	t.Helper()
	out, _, _ = strings.Cut(out, "\n]")
	var findings []finding.Finding
	if err := json.Unmarshal([]byte(out+"\n]"), &findings); err != nil {
		t.Fatalf("verify: status %d, %v\n%s", status, err, out)
	}
	for _, f := range findings {
		if f.Status == finding.OK {
			continue
		}
		t.Logf("verify: %s %s: %s", f.Code, f.Subject, f.Have)
		if !slices.Contains(allowed, f.ID) {
			t.Errorf("verify: %+v", f)
		}
	}
	if len(findings) < 50 {
		t.Errorf("verify: %d checks, there are more", len(findings))
	}
}

// pinScript moves a virtual CPU to the other node's CPU and back, with a check by up. A check takes seconds on emulated
// CPUs; the pauses give up a CPU in between.
const pinScript = `
pin() { virsh vcpupin "$1" | awk '$1 == "0" {print $2}'; }
await() {
	for i in $(seq 120); do ! grep -q "$1" watched || return 0; sleep 1; done
	echo "$1 never came"; cat watched; exit 1
}
of=$(pin parts.vm00) to=$(pin parts.vm01)
rackless verify parts --only RL302 --watch --interval 10s >watched 2>&1 & watch=$!
await 'watching every 10s'
virsh vcpupin parts.vm00 0 "$to" --live --config
await 'FAILED .*vm00'
rackless up lab.yaml; echo "up: status $?"
virsh vcpupin parts.vm00 0 "$of" --live --config
await 'ok again .*vm00'
kill $watch; wait $watch; echo "watch: status $?"
cat watched
rackless up lab.yaml
`

// foreignScript starts another user's process on the lab's CPUs for verify.
const foreignScript = `
cd /sys/fs/cgroup/machine.slice && mkdir foreign
cp /bin/sleep /root/intruder
sh -c 'echo $$ >foreign/cgroup.procs; exec taskset -c 2-3 /root/intruder 600' & pid=$!
sleep 2
rackless verify parts --only RL206; echo "verify: status $?"
kill $pid; wait; rmdir foreign; rm /root/intruder
`

func (h *small) whatDriftsIsSeen(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		what, script string
		want         []string
	}{
		{"a pin that is moved", pinScript, []string{
			"domain parts.vm00 runs and has changed; to apply it the domain has to be ended:\n",
			"\n  - <vcpupin vcpu='0' cpuset='", "\n  + <vcpupin vcpu='0' cpuset='", "up: status 3",
			"FAILED ", "ok again ", "watch: status 0", "lab parts is up: 2 nodes on kvm, ",
		}},
		{"a foreign process", foreignScript, []string{"FAILED ", "intruder (may use 2-3", "verify: status 3"}},
	} {
		h.putText(t, "/root/drift.sh", c.script)
		out, status := h.host(t, "bash drift.sh 2>&1")
		t.Logf("%s\n%s", c.what, out)
		if status != 0 {
			t.Errorf("%s: status %d", c.what, status)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %q is not said", c.what, want)
			}
		}
	}
}

// TestE2EVirtualFunctionsBesideATenant has two nodes with a virtual function each of one NIC, without a reboot, beside
// somebody else's domain. What drifts from the plan is seen.
func TestE2EVirtualFunctionsBesideATenant(t *testing.T) {
	storey.E2E(t)
	t.Parallel()
	h := newSmall(t, "vfs", smallProfile)
	h.putFile(t, "/root/lab.yaml", "testdata/faults/vfs.yaml")
	tenant := h.newTenant(t, untilBoot)
	before := h.state(t)
	for _, command := range []string{
		"rackless prepare lab.yaml --yes --no-reboot",
		"rackless up lab.yaml",
		"rackless verify parts -o json",
		"rackless bench parts --tests ib_write_bw --quick",
		"rackless down parts",
		"rackless rollback --yes",
	} {
		out, status := h.host(t, command)
		switch {
		case strings.Contains(command, "verify"):
			h.verified(t, out, status, byReboot...)
		case status != 0:
			t.Errorf("%s: status %d\n%s", command, status, out)
		default:
			t.Logf("%s\n%s", command, out)
		}
		if strings.Contains(command, "verify") {
			h.whatDriftsIsSeen(t)
		}
		tenant.undisturbed(t, command)
	}
	tenant.hadItsCPU(t)
	if diff := diffLines(before, h.state(t)); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
}
