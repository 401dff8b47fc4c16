package live

import (
	"fmt"
	"time"

	"github.com/rackless/rackless/report/show"
)

// rateText prints bits a second with a decimal unit, as rates of networks are given.
func rateText(v float64) string {
	unit := "b/s"
	for _, u := range []string{"kb/s", "Mb/s", "Gb/s", "Tb/s"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1000, u
	}
	return rounded(v) + " " + unit
}

// bytesText prints a number of bytes with a binary unit.
func bytesText(n uint64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if v < 999.5 {
			break
		}
		v, unit = v/1024, u
	}
	return rounded(v) + " " + unit
}

// rounded has three digits and keeps zeros: figures that move keep their width.
func rounded(v float64) string {
	switch {
	case v >= 99.95 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// countText sets thousands apart, by a narrow space that does not break: counters are long.
func countText(n uint64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// lasting says how long something lasts or has lasted, as a person says it.
func lasting(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s" // the clock was set back
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return show.Count(int(d.Hours()/24), "day", "days")
}
