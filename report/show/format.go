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

// Size formats bytes in the largest binary unit that divides them: "64 KiB", but "65537 B".
func Size(n int64) string { return words.ExactIn(n, "B", "KiB", "MiB", "GiB") }

// Figure formats a computed figure with four significant digits, without exponent and trailing zeros, which would be
// artifacts of rounding.
func Figure(v float64) string { return trimZeros(Number(v, 4, math.MaxInt)) }

// Short is like Figure, with three digits.
func Short(v float64) string { return trimZeros(Number(v, 3, math.MaxInt)) }

// Number formats at most digits significant digits and decimals decimals, never more than the figure has: "0.23" does
// not become "0.2300". Digits before the point are never replaced by zeros.
func Number(v float64, digits, decimals int) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	// 9.9996 with four digits is "10.00".
	_, e, _ := strings.Cut(strconv.FormatFloat(v, 'e', digits-1, 64), "e")
	exponent, err := strconv.Atoi(e)
	if err != nil {
		panic(fmt.Sprintf("exponent of %v: %v", v, err)) // FormatFloat always writes an exponent
	}
	decimals = max(0, min(decimals, Decimals(v), digits-1-exponent))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Decimals counts decimals without trailing zeros, which a float64 loses.
func Decimals(v float64) int {
	_, decimals, _ := strings.Cut(Exact(v), ".")
	return len(decimals)
}

// Digits counts significant digits, without trailing zeros.
func Digits(v float64) int {
	return max(1, len(strings.Trim(strings.Replace(Exact(math.Abs(v)), ".", "", 1), "0")))
}

// Tick is like Figure with grouped thousands: on a logarithmic axis numbers differ only in length.
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

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// Exact formats a figure so that parsing returns the same float64, without exponent, so that a search in a tool's
// output finds it.
func Exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Unit returns the unit for pages: "µs" for "us" in ASCII.
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

// Cut shortens text to letters characters, for fixed-width places.
func Cut(s string, letters int) string {
	r := []rune(s)
	if len(r) <= letters {
		return s
	}
	return strings.TrimRight(string(r[:max(letters-1, 0)]), " ") + "…"
}

// Fold wraps lines wider than width columns between words. Continuation lines are indented to the line's last column,
// else by two spaces.
//
// Width 0 is no terminal: the text stays, because programs search it by lines.
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

// Hang wraps one line between words, at column indent. A word may be an address to copy and is never broken.
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

// continues reports whether a line continues the last column of the row above.
func continues(row, line string) bool {
	at := len(line) - len(strings.TrimLeft(line, " "))
	const least = 12 // less indentation is a nested list
	return at >= least && at < len(line) && at < len(row) && row[at-2:at] == "  " && row[at] != ' '
}

// Reflow is like Fold for prose wrapped to another width. It joins paragraphs and descriptions in columns; other
// indented lines stay separate.
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
