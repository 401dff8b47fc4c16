package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rackless/rackless/internal/words"
)

// Size prints a count of bytes in the largest binary unit that divides it, so that no digit is lost:
// 65536 is "64 KiB", 65537 is "65537 B".
func Size(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

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
	return words.Either(!strings.Contains(s, "."), s, strings.TrimRight(strings.TrimRight(s, "0"), "."))
}

// Exact prints a figure so that parsing it gives the same float64. It has no exponent, so that a search for what a tool
// printed finds it.
func Exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// Unit is the unit as the page prints it. Tools print "us" because they stay within ASCII; a page need not.
func Unit(unit string) string { return words.Either(unit == "us", "µs", unit) }

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
