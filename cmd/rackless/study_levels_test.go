package main

import (
	"regexp"
	"strings"
	"testing"
)

// newStudyHost takes files from testdata/faults. The test belongs to make test-faults because it takes minutes.
func newStudyHost(t *testing.T, name, host, lab string, files ...string) *small {
	t.Helper()
	if !*everyStep {
		t.Skip("it takes minutes: make test-faults")
	}
	t.Parallel()
	h := newSmall(t, name, "testdata/faults/"+host)
	h.cpu = "" // CPU 0 is for QEMU alone there
	h.putFile(t, "/root/lab.yaml", "testdata/faults/"+lab)
	for _, file := range files {
		h.putFile(t, "/root/"+file, "testdata/faults/"+file)
	}
	return h
}

// TestAStudyOfEveryPlacement runs all placement levels and hugepages, in an emulated host with two NUMA nodes and two
// threads per core, while it reads affinity and memory of the node's threads from the kernel. It belongs to make
// test-faults: each level starts a nested machine.
func TestAStudyOfEveryPlacement(t *testing.T) {
	h := newStudyHost(t, "levels", "levels-host.yaml", "levels-lab.yaml", "levels-study.yaml", "pages-study.yaml",
		"watch.sh")
	start := h.state(t)
	h.mustHost(t, "rackless prepare lab.yaml --no-reboot --yes")
	for _, tt := range []struct {
		study string
		want  []string // by the kernel, in any order, except while nodes start
	}{
		{"levels-study.yaml", []string{
			"CPU 0: 0-7 policy default pages 4 ", // default, on either NUMA node
			"CPU 0: 2 policy default pages 4 ",   // pin
			"CPU 0: 2 policy bind:0 pages 4 on N0",
			"CPU 0: 2 CPU 1: 3 policy bind:0 pages 4 on N0",
			"CPU 0: 4 policy bind:1 pages 4 on N1", // wrong-numa
		}},
		{"pages-study.yaml", []string{"CPU 0: 2 policy bind:0 pages 4 on N0",
			"CPU 0: 2 policy bind:0 pages 2048 on N0"}},
	} {
		h.mustHost(t, "systemd-run --quiet --unit=watch --property=StandardOutput=truncate:/root/seen bash "+
			"/root/watch.sh")
		h.mustHost(t, "rackless study run "+tt.study)
		h.mustHost(t, "systemctl stop watch")
		name := strings.TrimSuffix(tt.study, "-study.yaml")
		done := h.mustHost(t, `rackless study query "SELECT cell, status, count(*) AS runs FROM run `+
			`JOIN study ON study.id = run.study WHERE study.name = '`+name+`' GROUP BY cell, status"`)
		seen := h.mustHost(t, "sort -u /root/seen")
		t.Logf("%s: the kernel said\n%s\nruns:\n%s", tt.study, seen, done)
		for _, w := range tt.want {
			if !strings.Contains("\n"+seen, "\n"+w) {
				t.Errorf("%s: the kernel never said %q", tt.study, w)
			}
		}
	}
	h.mustHost(t, "rackless down levels && rackless rollback --yes")
	if diff := diffLines(start, h.state(t)); diff != "" {
		t.Errorf("the host is not as it was (-wanted +is):\n%s", diff)
	}
}

// TestAStudyWhoseClockIsSet sets the host's clock back. The affected runs are repeated.
func TestAStudyWhoseClockIsSet(t *testing.T) {
	h := newStudyHost(t, "clock", "host.yaml", "boots-lab.yaml", "clock-study.yaml", "clock.sh")
	h.mustHost(t, "rackless prepare lab.yaml --no-reboot --yes && rackless up lab.yaml")
	h.mustHost(t, "systemd-run --quiet --unit=clock --setenv=HOME=/root sh /root/clock.sh")
	h.mustHost(t, "rackless study run clock-study.yaml")
	runs := h.mustHost(t, `rackless study query "SELECT run.status, count(*), max(error) FROM run `+
		`JOIN study ON study.id = run.study WHERE study.name = 'clock' GROUP BY run.status ORDER BY run.status"`)
	t.Logf("runs:\n%s", runs)
	if !regexp.MustCompile(`(?m)^\s*disturbed +[12] +.*the clock went backwards`).MatchString(runs) ||
		!regexp.MustCompile(`(?m)^\s*done +4 `).MatchString(runs) {
		t.Errorf("want a run or two that were disturbed by the clock, and four that count:\n%s", runs)
	}
}
