package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/check"
)

// tenantScript prints all that a tenant would notice a change of: its process, its definition, and where each of its threads may run. The last line is how long its
// threads ran and waited for a CPU, in nanoseconds: what waits is what its guest is told as stolen.
const tenantScript = `
pid=$(cat /run/libvirt/qemu/tenant.pid)
virsh domstate tenant
echo "process $pid $(cut -d' ' -f22 /proc/$pid/stat)"
virsh dumpxml tenant
for t in /proc/$pid/task/*; do
	case "$(cat $t/comm)" in
	CPU*|qemu-system*) echo "$(cat $t/comm) $(grep -E 'Cpus_allowed_list|Mems_allowed_list' $t/status | tr '\n\t' '  ')" ;;
	esac
done
cat /proc/$pid/cgroup
for t in /proc/$pid/task/*; do cat $t/schedstat; done | awk '{ran += $1; waited += $2} END {printf "ran %.0f waited %.0f\n", ran, waited}'
`

// tenant returns what the tenant notices, and its times.
func (e *emulated) tenant(t *testing.T) (notices, times string) {
	t.Helper()
	out := strings.TrimSpace(e.mustHost(t, "sh tenant.sh"))
	i := strings.LastIndex(out, "\n")
	return out[:i], out[i+1:]
}

// onlyRebootMissing fails the test where verify found more at fault than what kernel arguments do, which a host that is prepared without a reboot does not have.
func (h *small) onlyRebootMissing(t *testing.T, out string, status int) {
	t.Helper()
	out, _, _ = strings.Cut(out, "\n]") // what follows is for people
	var findings []check.Finding
	if err := json.Unmarshal([]byte(out+"\n]"), &findings); err != nil {
		t.Fatalf("verify: status %d, %v\n%s", status, err, out)
	}
	for _, f := range findings {
		if f.Status == check.OK {
			continue
		}
		t.Logf("verify: %s %s: %s", f.Code, f.Subject, f.Have)
		if !slices.Contains([]string{check.IDKernelArgs, check.IDThreads, check.IDInterrupts}, f.ID) {
			t.Errorf("verify: %+v", f)
		}
	}
	if len(findings) < 50 {
		t.Errorf("verify: %d checks, there are more", len(findings))
	}
}

// TestVirtualFunctionsBesideATenant brings up two nodes with a virtual function each of one NIC, verifies and measures them, and takes all of it back, without a reboot,
// while a domain of somebody else's runs.
func TestVirtualFunctionsBesideATenant(t *testing.T) {
	t.Parallel()
	h := newSmall(t, "vfs", "testdata/faults/host.yaml")
	h.putFile(t, "/root/lab.yaml", "testdata/faults/vfs.yaml")
	h.putFile(t, "/root/tenant.xml", "testdata/faults/tenant.xml")
	h.putText(t, "/root/tenant.sh", tenantScript)
	h.mustHost(t, "virsh create tenant.xml")
	before := h.state(t)
	notices, times := h.tenant(t)
	t.Logf("the tenant at the start: %s", times)
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
			h.onlyRebootMissing(t, out, status)
		case status != 0:
			t.Errorf("%s: status %d\n%s", command, status, out)
		default:
			t.Logf("%s\n%s", command, out)
		}
		now, times := h.tenant(t)
		if diff := diffLines(notices, now); diff != "" {
			t.Fatalf("after %s the tenant is not as it was (-before +after):\n%s", command, diff)
		}
		t.Logf("the tenant: %s", times)
	}
	if diff := diffLines(before, h.state(t)); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
}
