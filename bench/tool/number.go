package tool

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/rackless/rackless/bench"
)

func newFigure(metric string, bytes, iterations int64, value float64) bench.Figure {
	return bench.Figure{Metric: metric, Bytes: bytes, Iterations: iterations, Value: value,
		Unit: bench.MetricOf(metric).Unit}
}

// parseNumber returns half a unit of the last decimal as rounding. It refuses words such as "inf", which strconv
// accepts.
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
		err = bench.CheckValue(metric, v)
	}
	if err != nil {
		return 0, fmt.Errorf("value %q: %w", bench.Shorten(field), err)
	}
	return v, nil
}

func checkFields(fields []string, columns int) error {
	if len(fields) != columns {
		return fmt.Errorf("the row has %d fields, the header %d columns", len(fields), columns)
	}
	return nil
}

// parseCount refuses 0 and less.
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

func word(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._+-=", r)) {
			return r
		}
		return '-'
	}, text)
	return text[:min(len(text), 60)]
}
