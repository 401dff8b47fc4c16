package show

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
)

func TestATerminalFoldsAndColours(t *testing.T) {
	var b strings.Builder
	w := NewTerminal(&b, 20, 80, true) // less than the minimum of 60
	w.Alarm = "FAILED"
	w.Title("head")
	w.Wrap("- ", "  ", strings.Repeat("word ", 20), text.FgGreen)
	w.Wrap("", "", "it FAILED")
	w.Line("trailing  ")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	green := func(s string) string { return "\x1b[32m" + s + "\x1b[0m" }
	want := "\n\x1b[1mhead\x1b[0m\n" +
		"- " + green(strings.TrimSpace(strings.Repeat("word ", 11))) + "\n" +
		"  " + green(strings.TrimSpace(strings.Repeat("word ", 9))) + "\n" +
		"it \x1b[31mFAILED\x1b[0m\ntrailing\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	if got := NewTerminal(&b, 0, 80, false); got.Width != 80 || got.Colored("x", text.Bold) != "x" {
		t.Errorf("got %d columns, and colours", got.Width)
	}
}

func TestMarkdownIsEscapedEverywhere(t *testing.T) {
	var b strings.Builder
	page := MarkdownTemplate("\n## {{md .Title}}\n\n{{list .Items}}{{.Table}}{{code .Code}}", nil)
	err := page.Execute(&b, struct {
		Title, Code string
		Items       []string
		Table       MarkdownTable
	}{"a|b", "```", []string{"*x*"}, MarkdownTable{[]string{"name", "n>"}, [][]string{{"a|b", "1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	want := "\n## a\\|b\n\n- \\*x\\*\n| name | n |\n| --- | ---: |\n| a\\|b | 1 |\n````\n```\n````\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestAHeadNamesWhatIsInIt(t *testing.T) {
	h := NewHead("", "")
	const empty = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" // hash of an empty text
	if h.StyleHash != empty || h.ScriptHash != empty {
		t.Errorf("got %+v", h)
	}
	if got := DataURL(CSV, "a,b"); got != "data:text/csv;charset=utf-8;base64,YSxi" {
		t.Errorf("got %q", got)
	}
}
