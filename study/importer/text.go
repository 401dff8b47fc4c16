package importer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// slug makes a study's name of any name.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s)
	s = strings.Trim(s, "-")
	return strings.Trim(s[:min(len(s), 40)], "-")
}

// natural compares names as people number them: run2 comes before run10.
func natural(a, b string) int {
	digits := func(s string) int {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i
	}
	x, y := a, b
	for x != "" && y != "" {
		if i, j := digits(x), digits(y); i > 0 && j > 0 {
			m, n := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
			x, y = x[i:], y[j:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// figure checks a value as every value of a measurement is checked: finite and above zero.
func figure(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("no finite number")
	case v < 0:
		return errors.New("negative")
	case v == 0:
		return errors.New("zero, which is a failed measurement")
	}
	return nil
}

// number reads a decimal number as tools print it, and checks it.
func number(s string) (float64, error) {
	if strings.Trim(s, "0123456789.+-eE") != "" {
		return 0, fmt.Errorf("%q is no decimal number", short(s))
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no decimal number", short(s))
	}
	if err := figure(v); err != nil {
		return 0, fmt.Errorf("%s: %w", short(s), err)
	}
	return v, nil
}

// short cuts text to what a message may repeat.
func short(s string) string {
	s = strings.ToValidUTF8(strings.TrimSpace(s), "?")
	if len(s) > 100 {
		s = strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
