package report

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
)

func TestJUnit(t *testing.T) {
	all := []finding.Finding{
		{ID: "governor", Code: "RL209", Subject: "host", Title: "governor", Status: finding.OK, Have: "performance"},
		{ID: "link-mtu", Code: "RL402", Subject: `vm00 "eth0"`, Title: "a < b & c", Status: finding.Failed,
			Have: "1500\x1b[2J ]]>", Want: "4200", Evidence: "/sys", Fix: "in the node: x > y"},
		{ID: "reach", Code: "RL408", Subject: "vm00", Title: "reach", Status: finding.Unknown, Have: "no answer",
			Fix: "f"},
	}
	var b bytes.Buffer
	if err := JUnit(&b, all); err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, &b)
	}
	if got.Tests != 3 || got.Failures != 1 || got.Errors != 1 || len(got.Suites) != 2 || got.Suites[0].Name != "host" ||
		got.Suites[1].Name != "nodes" {
		t.Errorf("got %+v", got)
	}
	first, failed, unread := got.Suites[0].Cases[0], got.Suites[1].Cases[0], got.Suites[1].Cases[1]
	if first.Failure != nil || first.Error != nil || first.Out != "performance" || first.Class != "RL209.governor" {
		t.Errorf("what holds: %+v", first)
	}
	if f := failed.Failure; f == nil || failed.Name != `vm00 "eth0": a < b & c` || f.Message != "1500\uFFFD[2J ]]>" ||
		!strings.Contains(f.Text, "fix: in the node: x > y\n") {
		t.Errorf("what failed: %+v %+v", failed, f)
	}
	if unread.Error == nil || unread.Failure != nil || unread.Error.Message != "no answer" {
		t.Errorf("what could not be read: %+v", unread)
	}
	b.Reset()
	if err := JUnit(&b, nil); err != nil || !strings.Contains(b.String(),
		`<testsuites name="rackless verify" tests="0" failures="0" errors="0">`) {
		t.Errorf("nothing: %v\n%s", err, &b)
	}
}
