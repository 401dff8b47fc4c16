package hostview

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

func pageOf(t testing.TB, h *topology.Host, findings []finding.Finding) string {
	return string(written(t, func(b *bytes.Buffer) error { return NewDocument(h, findings).WritePage(b) }))
}

func TestThePageNeedsNothingElseAndMayLoadNothing(t *testing.T) {
	for _, c := range hostCases() {
		page := pageOf(t, c.host, c.findings)
		for _, bad := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", " style=", " on",
			"http://", "https://"} {
			at := strings.Index(page, bad)
			for bad == " on" && at >= 0 && !regexp.MustCompile(`^ on[a-z]+=`).MatchString(page[at:]) {
				next := strings.Index(page[at+1:], bad)
				if next < 0 {
					at = -1
					break
				}
				at += 1 + next
			}
			// Only the SVG namespace is allowed.
			if bad == "http://" && strings.Count(page, bad) == strings.Count(page,
				`xmlns="http://www.w3.org/2000/svg"`) {
				continue
			}
			if at >= 0 {
				t.Errorf("%s: %.80s", c.name, page[at:])
			}
		}
	}
}

func TestThePolicyAllowsTheStyleSheetThatIsInThePage(t *testing.T) {
	page := pageOf(t, epyc(), nil)
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	if !strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), want) {
		t.Errorf("no %s", want)
	}
}

func TestThePageSaysWhatTheOtherFormsSay(t *testing.T) {
	page := pageOf(t, epyc(), epycFindings())
	for _, want := range []string{
		"<title>Supermicro AS-1023US-TR4: ", "From a snapshot, epyc.tar.zst.",
		"Findings: 1 error, 1 warning, 1 note",
		"RL003: PCIe link below its maximum",
		"<dt>evidence</dt><dd><code>/sys/bus/pci/devices/0000:21:00.0: current_link_speed=2.5 GT/s",
		"<dt>impact</dt><dd>Copies to and from the GPU", "<dt>fix</dt><dd>Put load on the GPU",
		`<td class="phb">PHB</td>`, `<td class="self">X</td>`, "not a measurement of this machine",
		"<h2>NUMA nodes</h2>", "<h2>GPUs</h2>", "<h2>NICs</h2>", "<h2>Storage</h2>", "<h2>VMs</h2>",
		"Default route (ipv4): eno1", "permission denied",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
	if i, j := strings.Index(page, "RL040:"), strings.Index(page, "RL003:"); i > j {
		t.Error("the worst finding does not come first")
	}
}

func TestFindingsOfManySubjectsAreOneBoxWithAllThatWasRead(t *testing.T) {
	var findings []finding.Finding
	for i := range 30 {
		findings = append(findings, finding.Finding{ID: "RL007", Severity: finding.Warning,
			Subject: fmt.Sprintf("0000:%02x:00.0", i), Title: "x", Evidence: fmt.Sprintf("numa_node=-1 (%d)", i),
			Fix: "two\nlines"})
	}
	page := pageOf(t, nothing(), findings)
	if n := strings.Count(page, `<div class="finding `); n != 1 {
		t.Errorf("%d boxes", n)
	}
	for _, want := range []string{"where (30)", "and 23 more", "numa_node=-1 (29)", "two\nlines"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

func TestAPageOfNothingSaysSo(t *testing.T) {
	page := pageOf(t, nothing(), nil)
	for _, want := range []string{"A machine of unknown make",
		"Nothing was found to be wrong with what could be read."} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"<svg", "<table", "Not read", "Default routes"} {
		if strings.Contains(page, bad) {
			t.Errorf("there is %q", bad)
		}
	}
}

func TestEmulatedDevicesAreSaidToBe(t *testing.T) {
	h := epyc()
	h.Provenance.Emulated = true
	if !strings.Contains(pageOf(t, h, nil), `<p class="banner" role="note">Its devices are emulated`) {
		t.Error("no banner")
	}
	if !strings.Contains(string(written(t, func(b *bytes.Buffer) error {
		return NewDocument(h, nil).WriteSVG(b)
	})), "Its devices are emulated.") {
		t.Error("not in the picture")
	}
}

func TestExpectationsAreOnePerKindOfPath(t *testing.T) {
	got := newView(NewDocument(dgx(), nil)).expected()
	seen := map[string]bool{}
	pairs := 0
	for i, e := range got {
		key := e.Class + e.Link
		if seen[key] {
			t.Errorf("%s twice", key)
		}
		seen[key] = true
		pairs += e.Pairs
		if i > 0 && e.Class == "PIX" && got[i-1].Class != "PIX" {
			t.Errorf("the near ones do not come first: %v", got)
		}
	}
	if pairs != 80 || len(got) < 3 { // 8 GPUs and 10 NICs, besides NVLinks
		t.Errorf("%d pairs in %d rows", pairs, len(got))
	}
}

func TestAMatrixCellHasTheClassOfItsColour(t *testing.T) {
	for cell, want := range map[string]string{"": "dark ?", "X": "self X", "NV18": "nv NV18", "PIX": "pix PIX",
		"SYS": "sys SYS"} {
		if got := cellClass(cell) + " " + orUnknown(cell); got != want {
			t.Errorf("%q has class and text %q, want %q", cell, got, want)
		}
	}
	for _, c := range []string{"nv", "pix", "pxb", "phb", "node", "sys", "self", "dark"} {
		if !strings.Contains(pageCSS, "."+c+" {") {
			t.Errorf("the style sheet knows no .%s", c)
		}
	}
}
