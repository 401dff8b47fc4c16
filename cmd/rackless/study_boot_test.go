package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/rig"
)

// Scripts get a status.
func TestAStudyThatTakesAnotherBootSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	spec := &study.Spec{Name: "iso", Lab: "lab.yaml"}
	for _, tt := range []struct {
		name string
		o    studyRunOptions
		err  error
		want string
		code int
	}{
		{"isolated", studyRunOptions{}, &rig.BootError{Isolated: true, CPUs: topology.CPUs(2, 3)},
			"the next run takes this host booted with CPUs 2-3 isolated (isolcpus)\nprepare the host for it with: " +
				"rackless down a/lab.yaml; rackless rollback; rackless prepare a/lab.yaml; reboot\n", exitReboot},
		{"not isolated", studyRunOptions{}, &rig.BootError{CPUs: topology.CPUs(2, 3)},
			"; rackless prepare a/lab.yaml --no-reboot; reboot\n", exitReboot},
		{"something else", studyRunOptions{}, errors.New("no room"), "", exitFailed},
		{"not root", studyRunOptions{reboot: true}, nil, "", exitUsage},
	} {
		var stderr bytes.Buffer
		a := &app{out: &stderr, err: &stderr, uid: 1000, env: func(string) string { return "" }}
		err := a.studyWithBoots(t.Context(), tt.o, spec, "a/study.yaml", func(studyRunOptions) (bool, error) {
			return true, tt.err
		})
		if code, _ := exitCodeOf(err); code != tt.code || !strings.Contains(stderr.String(), tt.want) {
			t.Errorf("%s: status %d, %v, and said %q", tt.name, code, err, stderr.String())
		}
	}
}

// TestAStudyGoesOnOverBoots needs two kinds of boot of an emulated host. The study switches to the other and back by
// itself, makes all runs on the same CPUs, and leaves nothing. It belongs to make test-faults: it boots a host and a
// machine in it three times each.
func TestAStudyGoesOnOverBoots(t *testing.T) {
	h := newStudyHost(t, "boots", "host.yaml", "boots-lab.yaml", "boots-study.yaml")
	start := h.state(t)
	h.mustHost(t, "rackless prepare lab.yaml --no-reboot --yes")
	if out, status := h.host(t, "rackless study run boots-study.yaml"); status != exitReboot {
		t.Fatalf("without --reboot: status %d\n%s", status, out)
	}
	h.host(t, "rackless study run boots-study.yaml --reboot") // the boot interrupts it
	for deadline := time.Now().Add(commandLimit); ; time.Sleep(2 * time.Second) {
		if out, status := h.host(t, "test ! -e /etc/systemd/system/rackless-study-boots.service && rackless study "+
			"ls -o json"); status == 0 && strings.Contains(out, `"name": "boots"`) {
			break
		}
		if time.Now().After(deadline) {
			out, _ := h.host(t, "journalctl --no-pager -u rackless-study-boots")
			t.Fatalf("the study does not come to its end:\n%s", out)
		}
	}
	// A run is given up after three disturbed attempts, as happens beside other emulated hosts.
	out := h.mustHost(t, `rackless study query "SELECT DISTINCT place, `+
		`json_extract(cell, '$.isolation') AS isolation, json_extract(before, '$.placed') AS placed, `+
		`min(json_extract(before, '$.boot_id')) AS boot FROM run `+
		`WHERE status <> 'failed' GROUP BY place ORDER BY place"`)
	t.Logf("runs:\n%s", out)
	var got []string
	boots := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 5 {
			got = append(got, f[1]+" "+f[2]+" "+f[3])
			if have, ok := boots[f[4]]; ok && have != f[1] {
				t.Errorf("levels %s and %s were measured in one boot", have, f[1])
			}
			boots[f[4]] = f[1]
		}
	}
	if len(got) != 8 || len(boots) != 3 {
		t.Errorf("%d runs in %d boots, want 8 in 3: %q", len(got), len(boots), got)
	}
	h.mustHost(t, "rackless down boots && rackless rollback --yes")
	if diff := diffLines(start, h.state(t)); diff != "" {
		t.Errorf("the host is not as it was (-wanted +is):\n%s", diff)
	}
}
