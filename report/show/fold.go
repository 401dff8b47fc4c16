package show

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Fold breaks the lines of a text that are wider than width columns, between words. What follows stands below the text
// of its line: below its last column, if it has columns, else a little to the right of its beginning. Where width is 0
// the text does not go to a terminal, and stays as it is: programs search it by lines.
func Fold(s string, width int) string {
	if width <= 0 {
		return s
	}
	var out strings.Builder
	for line := range strings.Lines(s) {
		line, end := strings.CutSuffix(line, "\n")
		if text.StringWidthWithoutEscSequences(line) > width {
			line = Hang(line, max(width, leastWidth), hanging(line, width))
		}
		out.WriteString(line)
		if end {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

// Hang breaks one line between words, never within one: it may be an address to copy. Its further lines begin at column
// indent.
func Hang(line string, width, indent int) string {
	words := strings.SplitAfter(line, " ")
	at := 0
	var out strings.Builder
	for i, w := range words {
		n := text.StringWidthWithoutEscSequences(strings.TrimRight(w, " "))
		if at > indent && at+n > width && i > 0 && n > 0 {
			out.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		}
		out.WriteString(w)
		at += text.StringWidthWithoutEscSequences(w)
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// hanging returns the column below which a line goes on.
func hanging(line string, width int) int {
	begin := len(line) - len(strings.TrimLeft(line, " "))
	at := begin + 2
	// The last column counts that leaves room for some words.
	for i := begin; ; {
		n := strings.Index(line[i:], "  ")
		if n < 0 {
			return min(at, width*3/5)
		}
		i += n
		i += len(line[i:]) - len(strings.TrimLeft(line[i:], " "))
		if column := text.StringWidthWithoutEscSequences(line[:i]); column <= width*3/5 {
			at = column
		}
	}
}

// continues reports whether a line goes on with the last column of the row above it, as where a description has two.
func continues(row, line string) bool {
	at := len(line) - len(strings.TrimLeft(line, " "))
	const least = 12 // less is a list below a list
	return at >= least && at < len(line) && at < len(row) && row[at-2:at] == "  " && row[at] != ' '
}

// Reflow is Fold for prose whose lines were broken for another width: those of a paragraph are joined first, and those
// of a description in columns. Other lines that are indented stay lines.
func Reflow(s string, width int) string {
	if width <= 0 {
		return s
	}
	var out []string
	prose := false
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		is := line != "" && line[0] != ' '
		if prose && is || !is && len(out) > 0 && continues(out[len(out)-1], line) {
			out[len(out)-1] += " " + strings.TrimLeft(line, " ")
		} else {
			out = append(out, line)
		}
		prose = is
	}
	for i, line := range out {
		if strings.HasPrefix(line, " ") {
			out[i] = Fold(line, width)
		} else {
			out[i] = Hang(line, max(width, leastWidth), 0)
		}
	}
	return strings.Join(out, "\n")
}
