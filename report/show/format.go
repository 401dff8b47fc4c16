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

// Size prints a count of bytes in the largest binary unit that divides it, so that no digit is lost:
// 65536 is "64 KiB", 65537 is "65537 B".
func Size(n int64) string { return words.ExactIn(n, "B", "KiB", "MiB", "GiB") }

// Figure prints a computed figure, such as a tick of an axis, with four significant digits, without
// an exponent and without zeros at the end: these would be what is left of its last binary digit.
func Figure(v float64) string { return trimZeros(Number(v, 4, math.MaxInt)) }

// Short is Figure with three digits.
func Short(v float64) string { return trimZeros(Number(v, 3, math.MaxInt)) }

// Number prints a figure with so many significant digits and at most so many decimals, and never
// with more than it has: perftest prints two to six decimals, and "0.2300" would claim more than
// its "0.23" did. What stands before the point is always whole: zeros in the place of digits would
// be wrong digits.
func Number(v float64, digits, decimals int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	// The exponent after rounding: 9.9996 has four digits as "10.00".
	_, e, _ := strings.Cut(strconv.FormatFloat(v, 'e', digits-1, 64), "e")
	exponent, err := strconv.Atoi(e)
	if err != nil {
		panic(fmt.Sprintf("exponent of %v: %v", v, err)) // FormatFloat always writes one
	}
	decimals = max(0, min(decimals, Decimals(v), digits-1-exponent))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Decimals counts the decimals of a figure as a tool printed it, but for zeros at the end, which a
// float64 does not keep.
func Decimals(v float64) int {
	_, decimals, _ := strings.Cut(Exact(v), ".")
	return len(decimals)
}

// Digits counts the significant digits of a figure, in the same way.
func Digits(v float64) int {
	return max(1, len(strings.Trim(strings.Replace(Exact(math.Abs(v)), ".", "", 1), "0")))
}

// Tick is Figure with the thousands of large numbers set apart, because on a logarithmic axis only
// their length differs.
func Tick(v float64) string {
	if v < 10000 {
		return Figure(v)
	}
	return Grouped(Figure(v))
}

// Grouped sets the thousands of a whole number apart, by a narrow space that does not break.
func Grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}

// trimZeros leaves out zeros at the end of decimals, and the point if nothing is left behind it.
func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// Exact prints a figure so that parsing it gives the same float64. It has no exponent, so that a search for what a tool
// printed finds it.
func Exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Unit is the unit as the page prints it. Tools print "us" because they stay within ASCII; a page need not.
func Unit(unit string) string {
	if unit == "us" {
		return "µs"
	}
	return unit
}

// Time prints a time in UTC; the zero time is one that was not recorded.
func Time(t time.Time) string {
	if t.IsZero() {
		return "not recorded"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// Cut shortens text to so many letters, for a place of fixed width such as a box in a picture.
func Cut(s string, letters int) string {
	r := []rune(s)
	if len(r) <= letters {
		return s
	}
	return strings.TrimRight(string(r[:max(letters-1, 0)]), " ") + "…"
}

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
