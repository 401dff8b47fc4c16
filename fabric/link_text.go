package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A linkKey is one setting of a Link, how it is read and how it is shown. parse leaves l alone
// where it returns an error.
type linkKey struct {
	name  string
	kind  string // of its value, for the help of a flag
	help  string
	parse func(l *Link, text string) error
	text  func(l Link) string
}

// noSetting stands for the zero value of any setting.
const noSetting = "0"

// setting makes the linkKey of a field; parse and format need not know noSetting.
func setting[T comparable](name, kind, help string, field func(*Link) *T, parse func(string) (T, error),
	format func(T) string) linkKey {
	var zero T
	return linkKey{name, kind, help, func(l *Link, text string) error {
		if text == noSetting {
			*field(l) = zero
			return nil
		}
		v, err := parse(text)
		if err == nil {
			*field(l) = v
		}
		return err
	}, func(l Link) string {
		if v := *field(&l); v != zero {
			return format(v)
		}
		return noSetting
	}}
}

// linkKeys are all settings, in the order in which they act and are shown.
var linkKeys = []linkKey{
	setting("rate", "RATE", "bits a second on the wire, such as 1Gbit",
		func(l *Link) *int64 { return &l.Rate }, parseRate, formatRate),
	setting("burst", "SIZE", "what may leave at once after a pause, with --rate",
		func(l *Link) *int { return &l.Burst }, parseSize, formatSize),
	setting("delay", "TIME", "added to each frame, such as 50us",
		func(l *Link) *time.Duration { return &l.Delay }, parseTime, formatTime),
	setting("jitter", "TIME", "varies the delay by up to this, both ways; keeps the order",
		func(l *Link) *time.Duration { return &l.Jitter }, parseTime, formatTime),
	setting("loss", "PERCENT", "of the frames are lost, such as 0.1%",
		func(l *Link) *float64 { return &l.Loss }, parsePercent, formatPercent),
	setting("reorder", "PERCENT", "of the frames skip the delay, and overtake",
		func(l *Link) *float64 { return &l.Reorder }, parsePercent, formatPercent),
	setting("trust", "dscp|pcp", "what gives a frame its priority; each has its own queue",
		func(l *Link) *Trust { return &l.Trust }, parseTrust, func(t Trust) string { return string(t) }),
	setting("ecn", "MIN:MAX:PERCENT", "queue from which packets are marked, from which all are, and how many just "+
		"below that", func(l *Link) *RED { return &l.ECN }, parseRED, formatRED),
	setting("buffer", "SIZE", "what may wait for the link, such as 256KiB",
		func(l *Link) *int { return &l.Buffer }, parseSize, formatSize),
	setting("pfc", "HIGH:LOW[:PRIO,...]", "queue above which senders are held, and down to which, such as "+
		"64KiB:32KiB, or 64KiB:32KiB:3 with --trust", func(l *Link) *PFC { return &l.PFC }, parsePFC, formatPFC),
	setting("seed", "N", "of the random sequences",
		func(l *Link) *uint64 { return &l.Seed }, parseSeed, formatSeed),
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
// probabilities as 0.1%, ecn as MIN:MAX:PROBABILITY, pfc as HIGH:LOW or HIGH:LOW:PRIORITIES, trust
// as dscp or pcp. 0 takes any setting away. Whether the settings fit together is for Validate to
// say.
func (l *Link) Set(key, text string) error {
	if i := slices.Index(LinkKeys(), key); i >= 0 {
		return linkKeys[i].parse(l, text)
	}
	return fmt.Errorf("link has no setting %q: want one of %s", key, strings.Join(LinkKeys(), ", "))
}

// Get returns one of LinkKeys as a text that Set takes, "0" where it is not set, and nothing for another key.
func (l Link) Get(key string) string {
	if i := slices.Index(LinkKeys(), key); i >= 0 {
		return linkKeys[i].text(l)
	}
	return ""
}

// A unit is a suffix of numbers, and how much it stands for. In lists of them the largest is first.
type unit struct {
	name string
	size int64
}

// formatUnits prints a number in the largest unit that leaves it whole.
func formatUnits(n int64, units []unit) string {
	for _, u := range units {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return noSetting
}

// units of rates are decimal, as everywhere in networking.
var rateUnits = []unit{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

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
		exact := v * float64(u.size)
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

func formatRate(rate int64) string { return formatUnits(rate, rateUnits) }

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
var sizeUnits = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

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
		if n > uint64(MaxBuffer/u.size) {
			return 0, fmt.Errorf("size %q: want at most %s", s, formatSize(MaxBuffer))
		}
		return int(int64(n) * u.size), nil
	}
	return 0, fmt.Errorf("size %q: want a whole number with a unit, such as 64KiB or 1500B", s)
}

func formatSize(n int) string { return formatUnits(int64(n), sizeUnits) }

func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("time %q: want a number with a unit, such as 50us or 1.5ms", s)
	}
	return d, nil
}

// formatTime writes microseconds as "us", which is easier to type again than "µs".
func formatTime(d time.Duration) string { return strings.ReplaceAll(d.String(), "µ", "u") }

// orZero is parseSize where 0 needs no unit.
func orZero(s string) (int, error) {
	if s == noSetting {
		return 0, nil
	}
	return parseSize(s)
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
	p := strings.TrimSuffix(formatPercent(r.Probability), "%") // "0" has none
	return formatSize(r.Min) + ":" + formatSize(r.Max) + ":" + p + "%"
}

func parseTrust(s string) (Trust, error) {
	if t := Trust(s); t == TrustPCP || t == TrustDSCP {
		return t, nil
	}
	return "", fmt.Errorf("trust %q: want %s or %s", s, TrustDSCP, TrustPCP)
}

func parsePFC(s string) (PFC, error) {
	high, rest, ok := strings.Cut(s, ":")
	if !ok {
		return PFC{}, fmt.Errorf("thresholds %q: want HIGH:LOW, such as 64KiB:32KiB, or HIGH:LOW:PRIORITIES, such as "+
			"64KiB:32KiB:3", s)
	}
	var p PFC
	var err1, err2, err3 error
	low, of, some := strings.Cut(rest, ":")
	p.High, err1 = orZero(high)
	p.Low, err2 = orZero(low)
	if some {
		err3 = p.Of.UnmarshalText([]byte(of))
	}
	return p, cmp.Or(err1, err2, err3)
}

func formatPFC(p PFC) string {
	text := formatSize(p.High) + ":" + formatSize(p.Low)
	if p.Of != 0 {
		text += ":" + p.Of.String()
	}
	return text
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("seed %q: want a whole number below 2^64", s)
	}
	return n, nil
}

func formatSeed(seed uint64) string { return strconv.FormatUint(seed, 10) }
