package main

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/internal/storey"
)

// go test starts the first and the last parallel test first, by the names of files, and then goes back from the last.
// This file's tests take longest: they begin early by its name.

// TestAHostFromPrepareToRollback takes the tutorial's steps on a small emulated host, for two nodes with a virtual
// function each, beside somebody else's domain, which libvirt starts at each boot. The domain's share of its CPU, one
// of two of the whole host then, is not asked. At the end the host is file by file as at the start.
func TestAHostFromPrepareToRollback(t *testing.T) {
	t.Parallel()
	h := newSmall(t, "path", smallProfile)
	h.putFile(t, "/root/lab.yaml", "testdata/faults/vfs.yaml")
	tenant := h.newTenant(t, atBoots)
	before := h.state(t)
	step := func(command string, want int, lines ...string) string {
		t.Helper()
		out, status := h.host(t, command)
		if status != want {
			t.Fatalf("%s: status %d, want %d\n%s", command, status, want, out)
		}
		for _, line := range lines {
			if !regexp.MustCompile("(?m)^" + line).MatchString(out) {
				t.Errorf("%s prints no line %q:\n%s", command, line, out)
			}
		}
		return out
	}

	step("rackless inspect -o matrix", 0, `\s+GPU0 `, `GPU0 +X `, `NIC1 .* X `)
	step("rackless plan lab.yaml", 0, ` +reboot +needed, for `, ` +placement +proven best`,
		"The host is emulated", "vm00: 1 virtual CPU", "Host$")
	step("rackless prepare lab.yaml --dry-run", 0, ` +\d+ +pending `, ` .*needs a reboot`, ` +type +`)
	step("rackless prepare lab.yaml --check", 0, ` +\d+ +would do +give the kernel `,
		"prepare would go through, with a reboot; ")
	if diff := diffLines(before, h.state(t)); diff != "" {
		t.Fatalf("plan, --dry-run and --check have changed the host (-before +after):\n%s", diff)
	}
	step("rackless prepare lab.yaml --yes", exitReboot, "reboot +give the kernel ", "Reboot now: ")
	tenant.undisturbed(t, "prepare")

	h.offAtReset(t)
	h.reboot(t)
	h.bootedAsWritten(t, "prepared and booted")
	step("cat /sys/devices/system/cpu/isolated", 0, "[0-9]")
	tenant.startedAgain(t)

	// Devices that appear after rackless-prepare.service have interrupts to move: up refuses the host until prepare has
	// moved them. On a slow boot that happens more than once.
	for range 3 {
		step("rackless prepare --yes", 0, "this host is prepared for lab parts: (as it was|1 step )")
		out, status := h.host(t, "rackless up lab.yaml")
		if status == exitFaults && strings.Contains(out, "(move interrupts to CPUs ") {
			continue
		}
		if status != 0 || !strings.Contains(out, "lab parts is up: 2 nodes on kvm, ") {
			t.Fatalf("rackless up lab.yaml: status %d\n%s", status, out)
		}
		break
	}
	step("rackless ls", 0, "parts +vm00 +running")
	step("virsh list --name | grep . | sort", 0, "parts.vm00$", "parts.vm01$", "tenant$")
	step("rackless exec vm00 -- ibv_devinfo", 0, `hca_id:\s+\S+$`, `.*PORT_ACTIVE`)
	out, status := h.host(t, "rackless verify parts -o json")
	h.verified(t, out, status)
	tenant.undisturbed(t, "up and verify")
	step("rackless bench parts --tests ib_write_bw --quick", 0, ".*emulated", `\s*64 KiB +[0-9.]+`)
	step("rackless exec vm00 -- rdma statistic show", 0, `link \S+/1 .*[1-9]`)
	tenant.undisturbed(t, "bench")
	step("rackless down parts", 0, "lab parts is down")
	// rollback leaves interrupts that irqbalance has moved since.
	step("rackless rollback --yes", 0, `(this host is as it was: )?\d+ steps undone`, "The kernel still runs with ")
	tenant.undisturbed(t, "down and rollback")
	if diff := diffLines(before, h.state(t)); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
}

func (n *tenant) startedAgain(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(time.Second) {
		if out, _ := n.h.host(t, "virsh domstate tenant"); strings.HasPrefix(out, "running") {
			n.look(t)
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the tenant does not start at the boot")
		}
	}
}

func TestFullNodes(t *testing.T) {
	runLabs(t, runInTurn, labScripts, isShort)
}

func TestE2EFullNodes(t *testing.T) {
	storey.E2E(t)
	runLabs(t, runInTurn, e2eScripts, isShort)
}
