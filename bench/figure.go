package bench

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A Figure is one number that a tool printed, in the unit that this package reports its metric in.
type Figure struct {
	Metric     string // one of the Metric constants
	Bytes      int64  // message size; 0 where the tool has none
	Iterations int64  // as printed; 0 where the tool prints none
	Value      float64
	Unit       string
	Derived    bool // see Sample.Derived
	// Latencies are all of them, in us and in the order of time, on the median of a test that was
	// asked for them with Options.Raw.
	Latencies []float64 `json:"-"`
}

// A Key says which figure of a lab it is: what has the same key can be compared, and within one result is a repeat.
type Key struct {
	Test   string `json:"test"`
	Client string `json:"client"`
	Server string `json:"server,omitempty"`
	Metric string `json:"metric"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Key returns that of the sample's figure.
func (s *Sample) Key() Key { return Key{s.Test, s.Client, s.Server, s.Metric, s.Bytes} }

// newFigure returns a figure in the unit of its metric.
func newFigure(metric string, bytes, iterations int64, value float64) Figure {
	return Figure{Metric: metric, Bytes: bytes, Iterations: iterations, Value: value, Unit: MetricOf(metric).Unit}
}

// Units of the figures.
const (
	UnitGbps     = "Gb/s" // 10^9 bits a second
	UnitMpps     = "Mpps" // 10^6 messages a second
	UnitMtps     = "Mtps" // 10^6 transactions a second
	UnitUsec     = "us"
	UnitNsec     = "ns"
	UnitSegments = "segments"
	UnitPercent  = "%"
	UnitEvents   = "events/s"
	UnitFrames   = "frames"
	UnitTimes    = "times"
	UnitGBps     = "GB/s" // 10^9 bytes a second
	UnitSteps    = "steps/s"
	UnitNsPerDay = "ns/day"
	UnitGflops   = "Gflop/s" // 10^9 operations on floating point numbers a second
	// 10^6 instructions a second, as 7-Zip counts them: those of its own model of the work, not
	// those of the CPU
	UnitMIPS = "MIPS"
)

// checkNumber refuses what no program measures: NaN, infinities and negatives.
func checkNumber(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("the value is not a finite number")
	case v < 0:
		return errors.New("the value is negative")
	}
	return nil
}

// CheckValue refuses what cannot be a value of the metric.
func CheckValue(metric string, v float64) error {
	if v == 0 && !MetricOf(metric).Zero {
		return errors.New("a value of zero is a failed measurement")
	}
	return checkNumber(v)
}

// parseNumber reads a printed decimal number. It also returns half a unit of its last decimal: the largest
// amount by which printing can have rounded. Hexadecimal, underscores and words such as "inf", all of which
// strconv takes, are refused: no tool prints them for a figure.
func parseNumber(field string) (value, rounding float64, err error) {
	if strings.Trim(field, "0123456789.+-eE") != "" {
		return 0, 0, errors.New("not a decimal number")
	}
	if value, err = strconv.ParseFloat(field, 64); err != nil {
		return 0, 0, errors.New("not a decimal number")
	}
	_, decimals, _ := strings.Cut(field, ".")
	return value, 0.5 * math.Pow10(-len(decimals)), nil
}

// ParseValue reads a printed value of a metric.
func ParseValue(metric, field string) (float64, error) {
	v, _, err := parseNumber(field)
	if err == nil {
		err = CheckValue(metric, v)
	}
	if err != nil {
		return 0, fmt.Errorf("value %q: %w", Shorten(field), err)
	}
	return v, nil
}

// checkFields refuses a row that has not a field for each column of its header.
func checkFields(fields []string, columns int) error {
	if len(fields) != columns {
		return fmt.Errorf("the row has %d fields, the header %d columns", len(fields), columns)
	}
	return nil
}

// parseCount reads a printed message size or iteration count, which is above zero.
func parseCount(field string) (int64, error) {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		return 0, errors.New("not a whole number")
	}
	if n <= 0 {
		return 0, errors.New("not above zero")
	}
	return n, nil
}

// Tests are what an output says where a tool runs several tests in turn.
type Tests struct {
	Version string    // of the tool; "" where it does not tell
	Started time.Time // zero where it does not tell
	All     []Test    // in the order printed
}

// A Test is one of them.
type Test struct {
	Name    string // with what differs from the usual: "/half/max"
	Figures []Figure
	Err     error // why there are no figures, or not all
}

// of returns the test with a name, a new one where there is none yet.
func (t *Tests) of(name string) *Test {
	i := slices.IndexFunc(t.All, func(x Test) bool { return x.Name == name })
	if i < 0 {
		i = len(t.All)
		t.All = append(t.All, Test{Name: name})
	}
	return &t.All[i]
}

// add adds figures to those of the test with a name.
func (t *Tests) add(name string, figures ...Figure) {
	x := t.of(name)
	x.Figures = append(x.Figures, figures...)
}

// checked returns the tests where the output could be read and has some, each with figures or an error.
func (t *Tests) checked(tool string, output []byte, err error) (Tests, error) {
	if err == nil && len(t.All) == 0 {
		err = BadOutput(tool, output, "there is no result")
	}
	if err != nil {
		return Tests{}, err
	}
	for i := range t.All {
		if x := &t.All[i]; x.Err == nil && len(x.Figures) == 0 {
			x.Err = badResult(tool, "%s has no figure", x.Name)
		}
	}
	return *t, nil
}

// word makes a part of a test's name of a text from outside.
func word(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._+-=", r)) {
			return r
		}
		return '-'
	}, text)
	return text[:min(len(text), 60)]
}
