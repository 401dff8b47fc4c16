package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A linkKey is one setting of a Link, how it is read and how it is shown. parse leaves l alone
// where it returns an error.
type linkKey struct {
	name  string
	parse func(l *Link, text string) error
	text  func(l Link) string
}

// noSetting stands for the zero value of any setting.
const noSetting = "0"

var linkKeys = []linkKey{
	{"rate", func(l *Link, s string) error {
		return parseInto(&l.Rate, s, parseRate)
	}, func(l Link) string { return formatRate(l.Rate) }},
	{"burst", func(l *Link, s string) error {
		return parseInto(&l.Burst, s, parseSize)
	}, func(l Link) string { return formatSize(l.Burst) }},
	{"delay", func(l *Link, s string) error {
		return parseInto(&l.Delay, s, parseTime)
	}, func(l Link) string { return formatTime(l.Delay) }},
	{"jitter", func(l *Link, s string) error {
		return parseInto(&l.Jitter, s, parseTime)
	}, func(l Link) string { return formatTime(l.Jitter) }},
	{"loss", func(l *Link, s string) error {
		return parseInto(&l.Loss, s, parsePercent)
	}, func(l Link) string { return formatPercent(l.Loss) }},
	{"reorder", func(l *Link, s string) error {
		return parseInto(&l.Reorder, s, parsePercent)
	}, func(l Link) string { return formatPercent(l.Reorder) }},
	{"ecn", func(l *Link, s string) error {
		return parseInto(&l.ECN, s, parseRED)
	}, func(l Link) string { return formatRED(l.ECN) }},
	{"buffer", func(l *Link, s string) error {
		return parseInto(&l.Buffer, s, parseSize)
	}, func(l Link) string { return formatSize(l.Buffer) }},
	{"pfc", func(l *Link, s string) error {
		return parseInto(&l.PFC, s, parsePFC)
	}, func(l Link) string { return formatPFC(l.PFC) }},
	{"seed", func(l *Link, s string) error {
		return parseInto(&l.Seed, s, parseSeed)
	}, func(l Link) string { return strconv.FormatUint(l.Seed, 10) }},
}

// LinkKeys returns the names of the settings of a Link, as Set and Get take them.
func LinkKeys() []string {
	names := make([]string, len(linkKeys))
	for i, k := range linkKeys {
		names[i] = k.name
	}
	return names
}

// Set sets one of LinkKeys to what a text says: rates as 1Gbit, sizes as 64KiB, times as 50us,
// probabilities as 0.1%, ecn as MIN:MAX:PROBABILITY, pfc as HIGH:LOW. 0 takes any setting away.
// Whether the settings fit together is for Validate to say.
func (l *Link) Set(key, text string) error {
	for _, k := range linkKeys {
		if k.name == key {
			return k.parse(l, text)
		}
	}
	return fmt.Errorf("link has no setting %q: want one of %s", key, strings.Join(LinkKeys(), ", "))
}

// Get returns one of LinkKeys as a text that Set takes, "0" where it is not set, and nothing for another key.
func (l Link) Get(key string) string {
	for _, k := range linkKeys {
		if k.name == key {
			return k.text(l)
		}
	}
	return ""
}

// parseInto sets v to what s says.
func parseInto[T any](v *T, s string, parse func(string) (T, error)) error {
	var t T
	if s != noSetting {
		var err error
		if t, err = parse(s); err != nil {
			return err
		}
	}
	*v = t
	return nil
}

// units of rates are decimal, as everywhere in networking.
var rateUnits = []struct {
	name string
	bits int64
}{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// parseRate reads what formatRate prints, with a fraction too, as far as whole bits go: 2.5Gbit.
func parseRate(s string) (int64, error) {
	wrong := fmt.Errorf("rate %q: want a number with a unit, such as 100Mbit, 2.5Gbit or 25Gbit", s)
	for _, u := range rateUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		v, err := parseNumber(number)
		if err != nil {
			return 0, wrong
		}
		exact := v * float64(u.bits)
		bits := math.Round(exact) // 4.35 * 100 is not quite 435
		if bits > MaxRate {
			return 0, fmt.Errorf("rate %q: want at most %s", s, formatRate(MaxRate))
		}
		if bits == 0 || math.Abs(exact-bits) > 0.001 {
			return 0, wrong
		}
		return int64(bits), nil
	}
	return 0, wrong
}

func formatRate(rate int64) string {
	for _, u := range rateUnits {
		if rate != 0 && rate%u.bits == 0 {
			return strconv.FormatInt(rate/u.bits, 10) + u.name
		}
	}
	return noSetting
}

// parseNumber reads a plain decimal number: no sign, exponent, hexadecimal digits or names such as
// Inf, which strconv would take.
func parseNumber(s string) (float64, error) {
	if strings.Trim(s, "0123456789.") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.ParseFloat(s, 64)
}

func parsePercent(s string) (float64, error) {
	wrong := fmt.Errorf("percentage %q: want 0%% to 100%%, such as 0.1%%", s)
	number, ok := strings.CutSuffix(s, "%")
	if !ok {
		return 0, wrong
	}
	if _, err := parseNumber(number); err != nil {
		return 0, wrong
	}
	p, err := strconv.ParseFloat(number+"e-2", 64) // rounds once, where dividing would round again
	if err != nil || p > 1 {
		return 0, wrong
	}
	return p, nil
}

// formatPercent prints the shortest number that parsePercent reads as p. The point is moved in the
// text, as 100*p is not always exact.
func formatPercent(p float64) string {
	if p == 0 {
		return noSetting
	}
	whole, part, _ := strings.Cut(strconv.FormatFloat(p, 'f', -1, 64), ".")
	for len(part) < 2 {
		part += "0"
	}
	whole = strings.TrimLeft(whole+part[:1], "0") + part[1:2]
	if part = part[2:]; part != "" {
		whole += "." + part
	}
	return whole + "%"
}

// units of sizes are binary.
var sizeUnits = []struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads what formatSize prints.
func parseSize(s string) (int, error) {
	for _, u := range sizeUnits {
		number, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil {
			break
		}
		if n > uint64(MaxBuffer/u.bytes) {
			return 0, fmt.Errorf("size %q: want at most %s", s, formatSize(MaxBuffer))
		}
		return int(n) * u.bytes, nil
	}
	return 0, fmt.Errorf("size %q: want a whole number with a unit, such as 64KiB or 1500B", s)
}

func formatSize(n int) string {
	for _, u := range sizeUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.Itoa(n/u.bytes) + u.name
		}
	}
	return noSetting
}

func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("time %q: want a number with a unit, such as 50us or 1.5ms", s)
	}
	return d, nil
}

func formatTime(d time.Duration) string {
	if d == 0 {
		return noSetting
	}
	return strings.ReplaceAll(d.String(), "µ", "u") // which is easier to type again
}

// orZero is parseSize where 0 needs no unit.
func orZero(s string) (n int, err error) {
	err = parseInto(&n, s, parseSize)
	return n, err
}

func parseRED(s string) (RED, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return RED{}, fmt.Errorf("marks %q: want MIN:MAX:PERCENT, such as 30KiB:90KiB:10%%", s)
	}
	lo, err1 := orZero(parts[0])
	hi, err2 := orZero(parts[1])
	p, err3 := parsePercent(parts[2])
	return RED{Min: lo, Max: hi, Probability: p}, cmp.Or(err1, err2, err3)
}

func formatRED(r RED) string {
	if r == (RED{}) {
		return noSetting
	}
	p := strings.TrimSuffix(formatPercent(r.Probability), "%") // "0" has none
	return formatSize(r.Min) + ":" + formatSize(r.Max) + ":" + p + "%"
}

func parsePFC(s string) (PFC, error) {
	high, low, ok := strings.Cut(s, ":")
	if !ok {
		return PFC{}, fmt.Errorf("thresholds %q: want HIGH:LOW, such as 64KiB:32KiB", s)
	}
	h, err1 := orZero(high)
	l, err2 := orZero(low)
	return PFC{High: h, Low: l}, cmp.Or(err1, err2)
}

func formatPFC(p PFC) string {
	if p == (PFC{}) {
		return noSetting
	}
	return formatSize(p.High) + ":" + formatSize(p.Low)
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seed %q: want a whole number below 2^64", s)
	}
	return n, nil
}
