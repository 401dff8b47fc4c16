package show

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode"

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

// A MarkdownWriter writes a page of a repository. Its methods take plain text. Errors of writing stay in the
// bufio.Writer until Flush.
type MarkdownWriter struct{ *bufio.Writer }

// NewMarkdownWriter returns a writer of pages to w.
func NewMarkdownWriter(w io.Writer) MarkdownWriter { return MarkdownWriter{bufio.NewWriter(w)} }

// Title writes the heading of a section.
func (m MarkdownWriter) Title(s string) { fmt.Fprintf(m, "\n## %s\n\n", Markdown(s)) }

// List writes a list.
func (m MarkdownWriter) List(items []string) {
	for _, s := range items {
		fmt.Fprintf(m, "- %s\n", Markdown(s))
	}
}

// Table writes a table. The heads are as Columns takes them.
func (m MarkdownWriter) Table(heads []string, rows [][]string) {
	var names, rules []string
	for _, c := range Columns(heads...) {
		rule := words.Either(c.Right, "---:", "---")
		names, rules = append(names, Markdown(c.Name)), append(rules, rule)
	}
	line := func(cells []string) { fmt.Fprintf(m, "| %s |\n", strings.Join(cells, " | ")) }
	line(names)
	line(rules)
	for _, r := range rows {
		cells := make([]string, len(r))
		for i, c := range r {
			cells[i] = Markdown(c)
		}
		line(cells)
	}
}

// Code writes a block of code; its fence is longer than any in the text.
func (m MarkdownWriter) Code(s string) {
	fence := "```"
	for strings.Contains(s, fence) {
		fence += "`"
	}
	fmt.Fprintf(m, "%s\n%s\n%[1]s\n", fence, s)
}
