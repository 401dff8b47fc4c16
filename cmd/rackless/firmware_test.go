package main

import (
	"regexp"
	"strings"
	"testing"
)

// cardScript prints default, current and next settings of the first card's firmware, and its functions.
const cardScript = `mstconfig -d 0000:21:00.0 -e query NUM_OF_VFS && ls -d /sys/bus/pci/devices/0000:21:*`

// TestPrepareSetsTheFirmwareOfAConnectX is for virtual functions that nodes use, with a rollback. The card starts with
// one function less than its maximum, as if set by hand. The test belongs to make test-faults because it boots the
// host.
func TestPrepareSetsTheFirmwareOfAConnectX(t *testing.T) {
	h := newStudyHost(t, "cards", "cards-host.yaml", "cards-lab.yaml")
	card := func(when, firmware string, functions int) {
		t.Helper()
		out := h.mustHost(t, cardScript)
		row := regexp.MustCompile(`(?m)^\W*NUM_OF_VFS +(\d+) +(\d+) +(\d+) *$`).FindStringSubmatch(out)
		if row == nil || strings.Join(row[1:], " ") != firmware ||
			strings.Count(out, "/sys/bus/pci/devices/0000:21:00.") != functions {
			t.Errorf("%s, want NUM_OF_VFS %s and %d functions:\n%s", when, firmware, functions, out)
		}
	}
	card("as delivered", "2 2 2", 3)
	const reset = "nic=0000:21:00\n" + resetCard + "\nudevadm settle"
	h.mustHost(t, "mstconfig -d 0000:21:00.0 --yes set NUM_OF_VFS=1\n"+reset)
	card("set by hand", "2 1 1", 2)
	before := h.state(t)

	out, status := h.host(t, "rackless prepare lab.yaml --firmware --yes")
	const step = "set NUM_OF_VFS=2 in the firmware of NIC 0000:21:00.0"
	if status != exitReboot || !strings.Contains(out, step) || strings.Contains(out, "SRIOV_EN") {
		t.Fatalf("prepare: status %d\n%s", status, out)
	}
	card("prepared", "2 1 2", 2)
	h.reboot(t)
	if out, status = h.host(t, "rackless prepare"); status != 0 || !strings.Contains(out, "this host is prepared for") {
		t.Fatalf("prepare after the boot: status %d\n%s", status, out)
	}
	card("prepared and booted", "2 2 2", 3)
	h.nodesDriveTheirFunctions(t)

	if out := h.mustHost(t, "rackless rollback --yes"); !strings.Contains(out, step) {
		t.Errorf("rollback:\n%s", out)
	}
	card("rolled back", "2 2 1", 3)
	h.mustHost(t, reset)
	card("rolled back and reset", "2 1 1", 2)
	if diff := diffLines(groupsByDevice(before), groupsByDevice(h.state(t))); diff != "" {
		t.Errorf("the host is not as it was (-before +after):\n%s", diff)
	}
}

func (h *small) nodesDriveTheirFunctions(t *testing.T) {
	t.Helper()
	h.mustHost(t, "rackless up lab.yaml && rackless verify virtual")
	for _, node := range []string{"near", "far"} {
		out := h.mustHost(t, "rackless exec "+node+" -- ibv_devinfo")
		if !regexp.MustCompile(`(?s)hca_id:\s+mlx5_0\n.*vendor_part_id:\s+4118\n.*PORT_ACTIVE`).MatchString(out) {
			t.Errorf("node %s does not drive a virtual function of a ConnectX-4 Lx:\n%s", node, out)
		}
	}
	out := h.mustHost(t, "rackless bench virtual --tests ib_write_lat -o json")
	if !strings.Contains(out, `"ib_write_lat"`) {
		t.Errorf("bench:\n%s", out)
	}
	h.mustHost(t, "rackless down virtual")
}
