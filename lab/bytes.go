package lab

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/strictyaml"
)

// Bytes is an amount of memory, in text with a binary unit: 256MiB.
type Bytes int64

// The binary units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

const bytesWant = "a whole number with a unit, such as 256MiB or 1GiB"

// unitOf reads M and G as binary, as in QEMU's -m option.
func unitOf(suffix string) (Bytes, bool) {
	unit, ok := map[string]Bytes{"B": 1, "KiB": KiB, "MiB": MiB, "M": MiB, "GiB": GiB, "G": GiB, "TiB": TiB}[suffix]
	return unit, ok
}

// ParseBytes parses the output of String, and the short units M and G. A number without a unit is an error, because
// tools read it differently: as bytes, KiB (libvirt) or MiB (QEMU).
func ParseBytes(s string) (Bytes, error) {
	b, fix := parseBytes(s)
	if fix != "" {
		return 0, fmt.Errorf("parse size %s: want %s; %s", strictyaml.Quote(s), bytesWant, fix)
	}
	return b, nil
}

// parseBytes returns advice if s is invalid.
func parseBytes(s string) (b Bytes, fix string) {
	digits := strings.TrimLeft(s, "0123456789")
	number, suffix := s[:len(s)-len(digits)], digits
	if number == "" {
		return 0, "start it with a digit"
	}
	if len(number) > 1 && number[0] == '0' {
		return 0, "drop the leading zero"
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil { // out of range
		return 0, "use a larger unit or a smaller number"
	}
	if suffix == "" {
		return 0, "add a unit: " + number + "MiB"
	}
	unit, ok := unitOf(suffix)
	if !ok {
		return 0, suffixFix(number, suffix)
	}
	if n > math.MaxInt64/int64(unit) {
		return 0, "use a smaller number"
	}
	return Bytes(n) * unit, ""
}

func suffixFix(number, suffix string) string {
	if strings.HasPrefix(suffix, ".") {
		if b, ok := parseFraction(number + suffix); ok {
			return "write it as a whole number: " + b.String()
		}
	}
	letter := strings.ToUpper(strings.TrimSpace(suffix))
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		short := unit[:1] // k, K, KB, KIB ...
		if letter == short || letter == short+"B" || letter == short+"IB" {
			return "write " + number + unit
		}
	}
	return "use one of the units KiB, MiB, GiB, TiB, M, G"
}

// parseFraction parses sizes such as 1.5GiB, for advice only.
func parseFraction(s string) (b Bytes, ok bool) {
	rest := strings.TrimLeft(s, "0123456789.")
	unit, ok := unitOf(rest)
	f, err := strconv.ParseFloat(s[:len(s)-len(rest)], 64)
	if !ok || err != nil || f <= 0 || f*float64(unit) > float64(16*TiB) {
		return 0, false
	}
	b = Bytes(f * float64(unit))
	return b, float64(b) == f*float64(unit) && b%KiB == 0
}

// String uses the largest unit that gives a whole number.
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b != 0 && b%u.size == 0 {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText implements [encoding.TextMarshaler].
func (b Bytes) MarshalText() ([]byte, error) {
	if b < 0 {
		return nil, fmt.Errorf("print size %s: want zero or more", b)
	}
	return []byte(b.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *Bytes) UnmarshalText(text []byte) error {
	v, err := ParseBytes(string(text))
	if err != nil {
		return err
	}
	*b = v
	return nil
}

// The slash of a rate distinguishes bits from bytes: 25G is 25 GiB a few lines above it.
const ratePattern = `^[1-9][0-9]*(Mb/s|Gb/s)$`

const rateWant = "a whole number with a unit, such as 25Gb/s or 2500Mb/s"

// parseRate returns megabits per second or, if s is invalid, advice.
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
	case n > MaxRateMbps/unit: // includes rates that would overflow
		return 0, "use a smaller number: at most " + formatRate(MaxRateMbps)
	case n == 0:
		return 0, "use a larger number, or drop the key"
	}
	return n * unit, ""
}

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

func formatRate(mbps int64) string {
	if mbps%1000 == 0 {
		return strconv.FormatInt(mbps/1000, 10) + "Gb/s"
	}
	return strconv.FormatInt(mbps, 10) + "Mb/s"
}
