package main

import (
	"testing"

	"github.com/rackless/rackless/doctor"
	"github.com/rackless/rackless/finding"
)

func TestDoctorPrintsTheFixBelowWhatIsLacking(t *testing.T) {
	a, _, _ := testApp(t)
	got := a.doctorText(doctor.Report{Checks: []finding.Finding{
		{ID: "a", Status: finding.OK, Title: "good", Evidence: "there"},
		{ID: "b", Status: finding.Warn, Title: "not so good", Evidence: "slow", Fix: "wait"},
		{ID: "c", Status: finding.Lack, Title: "bad", Evidence: "missing", Fix: "get it"},
	}})
	want := "ok    good         there\n" +
		"warn  not so good  slow\n      fix: wait\n" +
		"lack  bad          missing\n      fix: get it\n" +
		"\nlacking: 1 thing, with 1 warning: rackless up will not work before that is there\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
