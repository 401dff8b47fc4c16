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

	"github.com/rackless/rackless/internal/lists"
)

// Limits keep the arithmetic within 64 bits, and a mistyped unit from stalling a lab for hours.
const (
	MinRate   = 1000              // bits a second
	MaxRate   = 1_000_000_000_000 // bits a second
	MaxDelay  = 10 * time.Second
	MaxBurst  = 64 << 20  // bytes
	MaxBuffer = 256 << 20 // bytes; also for thresholds

	// maxInFlight limits a link's delayed bytes, with prefixes. Further frames wait before it, subject to Buffer, ECN
	// and PFC.
	maxInFlight = 64 << 20
)

// A Link impairs frames that leave the switch through a port, in this order: the buffer, which may drop or mark a
// frame; the rate; loss; reordering; delay and jitter. The zero value has none. Links survive the reconnection of their
// node, and are comparable.
type Link struct {
	// Down is for both directions: no frame passes, learned addresses are forgotten, and Config.Down tells the other
	// end.
	Down bool `json:"down,omitzero"`
	// Rate is in bits a second on a real wire, with frames padded to 60 bytes, and 24 bytes for preamble, checksum and
	// gap. 0 means no limit. TCP with an MTU of 1500 gets 94.9 %.
	Rate int64 `json:"rate_bits_per_second,omitzero"`
	// Burst is in bytes, as for Rate, that may leave at once after a pause. With 0 each frame takes its time.
	Burst int `json:"burst_bytes,omitzero"`
	// Delay is added to each frame, and Jitter varies it evenly between Delay-Jitter and Delay+Jitter. Frames stay in
	// order.
	Delay  time.Duration `json:"delay_ns,omitzero"`
	Jitter time.Duration `json:"jitter_ns,omitzero"`
	// Loss is the independent probability that a frame is lost on the wire, after taking its time there.
	Loss float64 `json:"loss,omitzero"`
	// Reorder is the probability that a frame skips the delay, and so overtakes delayed ones.
	Reorder float64 `json:"reorder,omitzero"`
	// Trust is the source of priorities, with a queue each, to which Buffer, ECN and PFC apply; 7 and 6 go first, the
	// others take turns. Without trust all frames are in one queue.
	Trust Trust `json:"trust,omitzero"`
	// ECN marks by the bytes that wait for the link.
	ECN RED `json:"ecn,omitzero"`
	// Buffer limits waiting bytes; an empty one accepts any frame. 0 means Config.QueueBytes.
	Buffer int `json:"buffer_bytes,omitzero"`
	// PFC holds senders instead of dropping frames.
	PFC PFC `json:"pfc,omitzero"`
	// Seed starts random sequences. The same seed and port name give the same decisions for the same frames. A sequence
	// restarts when a link without impairments gets some, and when Seed changes.
	Seed uint64 `json:"seed,omitzero"`
}

// RED marks packets with ECN "congestion experienced": never below Min waiting bytes, always from Max on, and between
// them with a probability that grows linearly from 0 to Probability. It uses the queue's length, not an average, as
// DCTCP and DCQCN require.
type RED struct {
	Min         int     `json:"min_bytes"`
	Max         int     `json:"max_bytes"`
	Probability float64 `json:"probability"`
}

// PFC makes queues lossless, like IEEE 802.1Qbb: the nodes that send to a queue above High bytes are held until it is
// down to Low. Of selects queues; 0 means that all count and hold whole links.
type PFC struct {
	High int        `json:"high_bytes"`
	Low  int        `json:"low_bytes"`
	Of   Priorities `json:"priorities,omitzero"`
}

// Impaired reports whether l affects passing frames; with Down none pass.
func (l Link) Impaired() bool {
	l.Seed, l.Down = 0, false
	return l != Link{}
}

// Validate checks all fields. Its error names the field, its value and the range.
func (l Link) Validate() error {
	inRange := func(name string, v, least, most int) error {
		if v < least || v > most {
			return fmt.Errorf("link: %s of %d bytes: want %d to %d", name, v, least, most)
		}
		return nil
	}
	probability := func(name string, p float64) error {
		if !(p >= 0 && p <= 1) { // so that NaN is refused
			return fmt.Errorf("link: %s probability %v: want 0 to 1", name, p)
		}
		return nil
	}
	switch {
	case l.Rate != 0 && (l.Rate < MinRate || l.Rate > MaxRate):
		return fmt.Errorf("link: rate of %d bit/s: want 0 (no limit) or %d to %d", l.Rate, int64(MinRate),
			int64(MaxRate))
	case l.Burst != 0 && l.Rate == 0:
		return fmt.Errorf("link: burst of %d bytes without a rate: want 0, or a rate", l.Burst)
	case l.Delay < 0 || l.Delay > MaxDelay:
		return fmt.Errorf("link: delay %v: want 0s to %v", l.Delay, MaxDelay)
	case l.Jitter < 0 || l.Jitter > l.Delay:
		return fmt.Errorf("link: jitter %v: want 0s to the delay, %v", l.Jitter, l.Delay)
	case l.Trust != "" && l.Trust != TrustPCP && l.Trust != TrustDSCP:
		return fmt.Errorf("link: trust %q: want %s or %s", l.Trust, TrustPCP, TrustDSCP)
	case l.PFC.Of != 0 && l.Trust == "":
		return fmt.Errorf("link: pfc of priorities %v without trust: want a trust of %s or %s", l.PFC.Of, TrustDSCP,
			TrustPCP)
	case l.Reorder != 0 && l.Delay == 0:
		return fmt.Errorf("link: reorder probability %v without a delay: want 0, or a delay for frames to overtake in",
			l.Reorder)
	}
	err := cmp.Or(inRange("burst", l.Burst, 0, MaxBurst), probability("loss", l.Loss),
		probability("reorder", l.Reorder), inRange("buffer", l.Buffer, 0, MaxBuffer),
		inRange("ecn min", l.ECN.Min, 0, MaxBuffer), probability("ecn", l.ECN.Probability))
	if err == nil && l.ECN != (RED{}) {
		err = inRange("ecn max", l.ECN.Max, l.ECN.Min, MaxBuffer)
	}
	if err != nil || l.PFC == (PFC{}) {
		return err
	}
	return cmp.Or(inRange("pfc high", l.PFC.High, 1, cmp.Or(l.Buffer, MaxBuffer)),
		inRange("pfc low", l.PFC.Low, 0, l.PFC.High))
}

// A PortLink is the link to a port's node.
type PortLink struct {
	Name string `json:"name"`
	Link Link   `json:"link"`
}

// A LinkEdit is one requested setting.
type LinkEdit struct {
	Key  string `yaml:"key"`
	Text string `yaml:"text"`
}

// DownKey sets a port down ("yes") or up ("no"). It is not one of LinkKeys, because it does not affect passing frames.
const DownKey = "down"

// ChangeLinks returns the new links of the named ports, by default all, or an error.
func ChangeLinks(have []PortCounters, named []string, reset bool, edits []LinkEdit) ([]PortLink, error) {
	names := lists.Map(have, func(p PortCounters) string { return p.Name })
	for _, n := range named {
		if !slices.Contains(names, n) {
			return nil, fmt.Errorf("--port %s: the switch has no such port; it has %s", n, strings.Join(names, ", "))
		}
	}
	var out []PortLink
	for _, p := range have {
		if len(named) > 0 && !slices.Contains(named, p.Name) {
			continue
		}
		l := p.Link
		if reset {
			l = Link{}
		}
		for _, e := range edits {
			if e.Key == DownKey {
				l.Down = e.Text == "yes"
			} else if err := l.Set(e.Key, e.Text); err != nil {
				return nil, fmt.Errorf("--%s: %w", e.Key, err)
			}
		}
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("port %s: %w", p.Name, err)
		}
		out = append(out, PortLink{p.Name, l})
	}
	return out, nil
}

// A LinkFlag is a flag for one setting. A wrong value is refused at parsing.
type LinkFlag struct {
	Key   string
	Edits *[]LinkEdit
}

// String returns no default, because an omitted setting stays.
func (f LinkFlag) String() string { return "" }

// Type returns the placeholder in the help.
func (f LinkFlag) Type() string { return linkKeys[slices.Index(LinkKeys(), f.Key)].kind }

// Set adds an edit in order, since a later one may revert an earlier one.
func (f LinkFlag) Set(text string) error {
	*f.Edits = append(*f.Edits, LinkEdit{Key: f.Key, Text: text})
	return new(Link).Set(f.Key, text)
}

// Help returns the flag's text.
func (f LinkFlag) Help() string { return linkKeys[slices.Index(LinkKeys(), f.Key)].help }

// A linkKey is a setting. On error, parse does not change l.
type linkKey struct {
	name  string
	kind  string
	help  string
	parse func(l *Link, text string) error
	text  func(l Link) string
}

const noSetting = "0"

// setting handles noSetting itself.
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

// linkKeys are in the order of effect and display.
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

// LinkKeys returns the names for Set and Get.
func LinkKeys() []string {
	names := make([]string, len(linkKeys))
	for i, k := range linkKeys {
		names[i] = k.name
	}
	return names
}

// Set parses rates as 1Gbit, sizes as 64KiB, times as 50us, probabilities as 0.1%, ecn as MIN:MAX:PROBABILITY, pfc as
// HIGH:LOW or HIGH:LOW:PRIORITIES, trust as dscp or pcp. 0 clears. Validate checks the combination.
func (l *Link) Set(key, text string) error {
	if i := slices.Index(LinkKeys(), key); i >= 0 {
		return linkKeys[i].parse(l, text)
	}
	return fmt.Errorf("link has no setting %q: want one of %s", key, strings.Join(LinkKeys(), ", "))
}

// Get returns a text for Set, "0" if not set, or "" for an unknown key.
func (l Link) Get(key string) string {
	if i := slices.Index(LinkKeys(), key); i >= 0 {
		return linkKeys[i].text(l)
	}
	return ""
}

// A unit is a suffix of numbers. Lists begin with the largest.
type unit struct {
	name string
	size int64
}

// formatUnits uses the largest unit that leaves a number whole.
func formatUnits(n int64, units []unit) string {
	for _, u := range units {
		if n != 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return noSetting
}

// rateUnits are decimal, as everywhere in networking.
var rateUnits = []unit{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}

// parseRate accepts fractions that give whole bits, such as 2.5Gbit.
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

// parseNumber refuses signs, exponents, hexadecimal digits and names such as Inf, which strconv would accept.
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
	p, err := strconv.ParseFloat(number+"e-2", 64) // rounds once, while dividing would round twice
	if err != nil || p > 1 {
		return 0, wrong
	}
	return p, nil
}

// formatPercent prints the shortest number that parsePercent reads as p. It moves the point in the text, as 100*p is
// not always exact.
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

// sizeUnits are binary.
var sizeUnits = []unit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

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

// formatTime writes "us", which is easier to type than "µs".
func formatTime(d time.Duration) string { return strings.ReplaceAll(d.String(), "µ", "u") }

// orZero parses also 0 without a unit.
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
	p := strings.TrimSuffix(formatPercent(r.Probability), "%") // "0" has no percent sign
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
