package lab

import (
	"strconv"
	"strings"
)

// ratePattern is what a rate looks like. A slash keeps bits apart from bytes: 25G is 25 GiB a few lines above it.
const ratePattern = `^[1-9][0-9]*(Mb/s|Gb/s)$`

// rateWant is the "want" of every message about a rate.
const rateWant = "a whole number with a unit, such as 25Gb/s or 2500Mb/s"

// parseRate reads what formatRate prints. It returns megabits per second or, where s is not a rate,
// advice that is never empty.
func parseRate(s string) (mbps int64, fix string) {
	rest := strings.TrimLeft(s, "0123456789")
	digits := s[:len(s)-len(rest)]
	n, err := strconv.ParseInt(digits, 10, 64)
	var unit int64
	switch rest {
	case "Mb/s":
		unit = 1
	case "Gb/s":
		unit = 1000
	}
	switch {
	case digits == "":
		return 0, "start it with a digit"
	case digits[0] == '0' && len(digits) > 1:
		return 0, "drop the leading zero"
	case err != nil:
		return 0, "use a smaller number"
	case rest == "":
		return 0, "add a unit: " + digits + "Gb/s"
	case unit == 0:
		return 0, rateFix(digits, rest)
	case n > MaxRateMbps/unit: // also what would overflow
		return 0, "use a smaller number: at most " + formatRate(MaxRateMbps)
	case n == 0:
		return 0, "use a larger number, or drop the key"
	}
	return n * unit, ""
}

// rateFix turns the near misses that people write into advice: 25G, 100Gbit/s, 2.5Gb/s, 3 GB/s.
func rateFix(digits, rest string) string {
	const usual = "use one of the units Mb/s, Gb/s"
	unit := strings.TrimLeft(rest, ".0123456789")
	f, err := strconv.ParseFloat(digits+rest[:len(rest)-len(unit)], 64)
	unit = strings.TrimSpace(unit)
	if err != nil || unit == "" {
		return usual
	}
	switch unit[0] {
	case 'm', 'M':
	case 'g', 'G':
		f *= 1000
	case 't', 'T':
		f *= 1e6
	default:
		return usual
	}
	why := ""
	// GB/s and GiB/s are bytes; gbps and Gbit/s are bits.
	if strings.HasPrefix(unit[1:], "B") || strings.HasPrefix(unit[1:], "iB") {
		f *= 8
		why = "rates of links are in bits: "
	}
	if f < 1 || f > MaxRateMbps || f != float64(int64(f)) {
		return usual
	}
	return why + "write " + formatRate(int64(f))
}

// formatRate prints a rate in the largest unit that leaves a whole number.
func formatRate(mbps int64) string {
	if mbps%1000 == 0 {
		return strconv.FormatInt(mbps/1000, 10) + "Gb/s"
	}
	return strconv.FormatInt(mbps, 10) + "Mb/s"
}
