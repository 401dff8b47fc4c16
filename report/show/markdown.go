package show

import (
	"fmt"
	"strings"
	"text/template"
	"unicode"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
)

// Markdown makes text mean itself in Markdown, on one line. An underscore inside a word marks
// nothing and stays readable.
func Markdown(s string) string {
	var b strings.Builder
	runes := []rune(strings.Join(strings.Fields(s), " "))
	word := func(i int) bool {
		return i >= 0 && i < len(runes) && (unicode.IsLetter(runes[i]) || unicode.IsDigit(runes[i]))
	}
	for i, r := range runes {
		switch {
		case r == '<':
			b.WriteString("&lt;")
		case r == '&':
			b.WriteString("&amp;")
		case strings.ContainsRune("\\`*[]|#>~$", r), r == '_' && (!word(i-1) || !word(i+1)),
			i == 0 && strings.ContainsRune("-+=", r) && !word(1):
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// MarkdownTemplate makes a template of a page of a repository, with further functions. In it, md makes a text mean
// itself, list and code write lists and blocks of code of plain texts.
func MarkdownTemplate(text string, more template.FuncMap) *template.Template {
	own := template.FuncMap{"md": func(v any) string { return Markdown(fmt.Sprint(v)) }, "list": markdownList,
		"code": markdownCode}
	return template.Must(template.New("Markdown").Funcs(own).Funcs(more).Parse(text))
}

func markdownList(items []string) string {
	return strings.Join(lists.Map(items, func(s string) string { return "- " + Markdown(s) + "\n" }), "")
}

// A MarkdownTable is a table of plain texts. The heads are as Columns takes them.
type MarkdownTable struct {
	Heads []string
	Rows  [][]string
}

// String writes the table as Markdown.
func (t MarkdownTable) String() string {
	var names, rules []string
	for _, c := range Columns(t.Heads...) {
		names, rules = append(names, Markdown(c.Name)), append(rules, words.Either(c.Right, "---:", "---"))
	}
	rows := [][]string{names, rules}
	for _, r := range t.Rows {
		rows = append(rows, lists.Map(r, Markdown))
	}
	return strings.Join(lists.Map(rows, func(r []string) string { return "| " + strings.Join(r, " | ") + " |\n" }), "")
}

// markdownCode is a block of code; its fence is longer than any in the text.
func markdownCode(lines ...string) string {
	s, fence := strings.Join(lines, "\n"), "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	return fence + "\n" + s + "\n" + fence + "\n"
}
