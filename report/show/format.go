package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/rackless/rackless/internal/words"
)

// Size formats a number of bytes in the largest binary unit that divides it: 65536 is "64 KiB", 65537 is "65537 B".
func Size(n int64) string { return words.ExactIn(n, "B", "KiB", "MiB", "GiB") }

// Figure formats a computed figure, such as a tick of an axis, with four significant digits, without an exponent and
// without trailing zeros, which would only be artifacts of rounding.
func Figure(v float64) string { return trimZeros(Number(v, 4, math.MaxInt)) }

// Short is like Figure, but with three digits.
func Short(v float64) string { return trimZeros(Number(v, 3, math.MaxInt)) }

// Number formats a figure with at most digits significant digits and decimals decimals, and never more than the
// figure has: perftest's "0.23" does not become "0.2300". Digits before the point are never replaced by zeros.
func Number(v float64, digits, decimals int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	// Use the exponent after rounding: 9.9996 with four digits is "10.00".
	_, e, _ := strings.Cut(strconv.FormatFloat(v, 'e', digits-1, 64), "e")
	exponent, err := strconv.Atoi(e)
	if err != nil {
		panic(fmt.Sprintf("exponent of %v: %v", v, err)) // cannot happen: FormatFloat always writes an exponent
	}
	decimals = max(0, min(decimals, Decimals(v), digits-1-exponent))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Decimals counts the decimals of a figure as printed by a tool, without trailing zeros, which a float64 loses.
func Decimals(v float64) int {
	_, decimals, _ := strings.Cut(Exact(v), ".")
	return len(decimals)
}

// Digits counts the significant digits of a figure, also without trailing zeros.
func Digits(v float64) int {
	return max(1, len(strings.Trim(strings.Replace(Exact(math.Abs(v)), ".", "", 1), "0")))
}

// Tick is like Figure, but groups the thousands of large numbers, because on a logarithmic axis numbers differ only
// in length.
func Tick(v float64) string {
	if v < 10000 {
		return Figure(v)
	}
	return Grouped(Figure(v))
}

// Grouped groups the thousands of a whole number with narrow no-break spaces.
func Grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// trimZeros removes trailing zeros of the decimals, and the point if no decimals are left.
func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// Exact formats a figure so that parsing it returns the same float64. It has no exponent, so that a search for a
// tool's output finds it.
func Exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Unit returns the unit for pages. Tools print "us" to stay within ASCII, but a page can show "µs".
func Unit(unit string) string {
	if unit == "us" {
		return "µs"
	}
	return unit
}

// Time formats a time in UTC. The zero time is "not recorded".
func Time(t time.Time) string {
	if t.IsZero() {
		return "not recorded"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Cut shortens text to at most letters characters, for fixed-width places such as a box in a picture.
func Cut(s string, letters int) string {
	r := []rune(s)
	if len(r) <= letters {
		return s
	}
	return strings.TrimRight(string(r[:max(letters-1, 0)]), " ") + "…"
}

// Fold wraps lines that are wider than width columns, between words. Continuation lines are indented to the line's
// last column, if it has columns, else by two spaces.
//
// If width is 0, the output is not a terminal and the text stays unchanged, because programs search it by lines.
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

// Hang wraps one line between words. It never breaks a word, which may be an address to copy. Continuation lines
// start at column indent.
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

func hanging(line string, width int) int {
	begin := len(line) - len(strings.TrimLeft(line, " "))
	at := begin + 2
	// Use the last column that leaves room for some words.
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

// continues reports whether a line continues the last column of the row above, as in a description of two lines.
func continues(row, line string) bool {
	at := len(line) - len(strings.TrimLeft(line, " "))
	const least = 12 // a smaller indentation is a nested list
	return at >= least && at < len(line) && at < len(row) && row[at-2:at] == "  " && row[at] != ' '
}

// Reflow is like Fold, for prose that was wrapped to another width. It first joins the lines of a paragraph, and of a
// description in columns. Other indented lines stay separate.
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
