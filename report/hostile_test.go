package report

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study/record"
)

// hostile tries to break out of HTML text, attributes, styles, comments, SVG, and terminal output.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)><style>*{display:none}</style>` +
	`</title></svg></style><!--` + "`" + `{{.}}javascript:alert(1)` + "\x1b[2J\x1b]0;owned\x07\u202e\x00\xff"

// hostImage has base64, so that no part of it can be taken for a part of the page.
var hostImage = regexp.MustCompile(`<img src="data:image/svg&#43;xml;base64,[A-Za-z0-9/=&#;]+" alt="[^"<>]+">`)

func hostileData() record.Record {
	d := synthetic(2, [][2]int{{1, 0}}, []int64{2, 64, 65536})
	d.Samples = append(d.Samples, bench.Sample{Error: "x", Server: "vm00"}, bench.Sample{Metric: "unheard of", Value: 3,
		Unit: "parsecs"})
	d.Findings = append(d.Findings, finding.Finding{Status: finding.Failed}, finding.Finding{Status: "odd"})
	poison(reflect.ValueOf(&d).Elem())
	return d
}

// poison leaves alone strings that classify a value.
func poison(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() {
			v.SetString(v.String() + hostile)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; {
			case !v.Type().Field(i).IsExported(), name == "Metric", name == "Unit": // makes a figure a failure
			case name == "Error" && v.Field(i).String() == "": // a figure would become a failure
			case name == "Status" && v.Field(i).String() != "odd":
			default:
				poison(v.Field(i))
			}
		}
	}
}

func withoutOurs(t *testing.T, page string) string {
	t.Helper()
	script := "<script>" + show.SortScript + pageScript + "</script>"
	if strings.Count(page, script) != 1 {
		t.Error("the page does not have our script once")
	}
	return hostImage.ReplaceAllString(strings.Replace(page, script, "", 1), "")
}

func TestHostileTextStaysTextInThePage(t *testing.T) {
	var out bytes.Buffer
	if err := Page(&out, hostileData()); err != nil {
		t.Fatal(err)
	}
	page := withoutOurs(t, out.String())
	for _, bad := range []string{"<script", "<img", "<style>*", "<!--", "onerror=alert(1)>"} {
		if strings.Contains(page, bad) {
			t.Errorf("page contains %q from a field", bad)
		}
	}
	if n := strings.Count(page, "<style>"); n != 1 {
		t.Errorf("page has %d style sheets, want 1", n)
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 20 {
		t.Errorf("hostile text is shown as text %d times, want it in most places", n)
	}
}

func TestHostileTextCannotControlATerminal(t *testing.T) {
	for _, pairs := range [][][2]int{{{1, 0}}, fullMesh(3)} {
		d := synthetic(3, pairs, []int64{65536})
		d.Samples = append(d.Samples, bench.Sample{Error: "x"})
		d.Findings = append(d.Findings, finding.Finding{Status: "odd", Fix: "x"})
		poison(reflect.ValueOf(&d).Elem())
		var out bytes.Buffer
		if err := Terminal(&out, d, TerminalOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Fatalf("output has the control character %U", r)
			}
		}
		if !strings.Contains(out.String(), `\x1b[2J`) {
			t.Error("the escape sequence is not shown as text")
		}
	}
}

// A missed field would reach a terminal or a page unchanged.
func TestCleanReachesEveryField(t *testing.T) {
	d := hostileData()
	before := fmt.Sprintf("%+v", d)
	texts := 0
	var look func(path string, v reflect.Value)
	look = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			texts++
			if strings.ContainsAny(v.String(), "\x1b\x07\u202e") {
				t.Errorf("%s is not cleaned: %q", path, v)
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.IsExported() {
					look(path+"."+f.Name, v.Field(i))
				}
			}
		}
	}
	look("Data", reflect.ValueOf(show.Clean(d, words.Printable)))
	if texts < 100 {
		t.Errorf("looked at %d texts only", texts)
	}
	if fmt.Sprintf("%+v", d) != before {
		t.Error("cleaning changed the caller's data")
	}
}

func TestPageNamesNothingToLoad(t *testing.T) {
	for _, name := range fixtures {
		var out bytes.Buffer
		if err := Page(&out, loadFixture(t, name)); err != nil {
			t.Fatal(err)
		}
		page := withoutOurs(t, out.String())
		for _, bad := range []string{"<script", "<link", "<img", "<iframe", "<object", "<base", "@import", "url(",
			"src=", "http://", "https://", "style=", " on="} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: page contains %q", name, bad)
			}
		}
		if want := fmt.Sprintf("content=\"default-src 'none'; style-src '%s'; script-src '%s'",
			newPage(record.Record{}).StyleHash, newPage(record.Record{}).ScriptHash); !strings.Contains(page,
			strings.ReplaceAll(want, "+", "&#43;")) {
			t.Errorf("%s: page has no policy %q", name, want)
		}
	}
}
