package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// valuesOf is the part of a fingerprint that the kernel answers: prepare keeps files of its own
// besides, such as its journal and its unit, which scripts do not have.
func valuesOf(t *testing.T, fingerprint string) string {
	t.Helper()
	_, values, ok := strings.Cut(fingerprint, "\n/sys/")
	if !ok {
		t.Fatalf("no values of the kernel in\n%s", fingerprint)
	}
	return values
}

// scriptsDoTheSame runs the scripts that plan --out writes for a lab on a host that is rolled back.
// They bring the host to the state that prepare brings it to, in the lines of a fingerprint that match
// about, and back.
func (h *small) scriptsDoTheSame(t *testing.T, before, prepared string, about *regexp.Regexp, scripts ...string) {
	t.Helper()
	h.mustHost(t, "rackless plan lab.yaml --out plan >/dev/null")
	run := func(verb string) string {
		return h.mustHost(t, "for s in "+strings.Join(scripts, " ")+"; do plan/libexec/$s.sh "+verb+
			" || { echo $s.sh "+verb+": status $?; exit 1; }; done 2>&1")
	}
	t.Logf("start:\n%s", run("start"))
	theirs := func(state string) string {
		return strings.Join(about.FindAllString(valuesOf(t, state), -1), "\n")
	}
	if want := theirs(prepared); want == "" {
		t.Errorf("no line is about %v in\n%s", about, prepared)
	} else if diff := diffLines(want, theirs(h.state(t))); diff != "" {
		t.Errorf("the scripts do not what prepare does (-prepare +scripts):\n%s", diff)
	}
	slices.Reverse(scripts)
	t.Logf("stop:\n%s", run("stop"))
	h.mustHost(t, "rm -r plan")
	if diff := diffLines(before, h.state(t)); diff != "" {
		t.Errorf("after the scripts the host is not as it was (-before +after):\n%s", diff)
	}
}
