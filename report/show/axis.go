package show

import (
	"math"
	"math/bits"
)

// An Axis maps values to a coordinate of a picture.
type Axis struct {
	Lo, Hi   float64 // values at the two ends
	From, To float64 // coordinates of the two ends
	Log      bool
	Ticks    []float64 // within Lo and Hi
}

// At gives the coordinate of a value.
func (a Axis) At(v float64) float64 {
	if a.Log {
		return a.From + (a.To-a.From)*math.Log(v/a.Lo)/math.Log(a.Hi/a.Lo)
	}
	return a.From + (a.To-a.From)*(v-a.Lo)/(a.Hi-a.Lo)
}

// LinearAxis starts at zero, because the length of what is drawn on it is read as the value. It
// ends at the first tick at or above top, and has four to six steps.
func LinearAxis(top float64) Axis {
	if top <= 0 {
		top = 1
	}
	// A tenth of the top's power of ten: the factors below then give every top at most six steps.
	unit := math.Pow(10, math.Floor(math.Log10(top))-1)
	step := unit
	for _, m := range []float64{1, 2, 2.5, 5, 10, 20, 25} {
		step = m * unit
		if top/step <= 6 {
			break
		}
	}
	n := math.Ceil(top/step - 1e-9) // 1e-9: a top that is a tick but for rounding gets no step more
	a := Axis{Hi: n * step}
	for i := 0.0; i <= n; i++ {
		a.Ticks = append(a.Ticks, i*step)
	}
	return a
}

// LogAxis spans the values from lowest to highest, both above zero. Up to two decades it has ticks
// at 1, 2 and 5; beyond that only at powers of ten, thinned out to at most seven.
func LogAxis(lowest, highest float64) Axis {
	first, last := int(math.Floor(math.Log10(lowest)+1e-9)), int(math.Ceil(math.Log10(highest)-1e-9))
	if first == last {
		last++
	}
	var ticks []float64
	if last-first <= 2 {
		for e := first; e < last; e++ {
			for _, m := range []float64{1, 2, 5} {
				ticks = append(ticks, m*math.Pow10(e))
			}
		}
		ticks = append(ticks, math.Pow10(last))
		// Tighten: the ends are the closest ticks around the values.
		for len(ticks) > 2 && ticks[1] <= lowest {
			ticks = ticks[1:]
		}
		for len(ticks) > 2 && ticks[len(ticks)-2] >= highest {
			ticks = ticks[:len(ticks)-1]
		}
	} else {
		every := (last-first)/7 + 1
		last += (every - (last-first)%every) % every
		for e := first; e <= last; e += every {
			ticks = append(ticks, math.Pow10(e))
		}
	}
	return Axis{Lo: ticks[0], Hi: ticks[len(ticks)-1], Log: true, Ticks: ticks}
}

// SizeAxis is the axis of message sizes: to the base of two, ticks at powers of two and at most seven of them.
func SizeAxis(smallest, largest int64) Axis {
	// 62: a tick must fit an int64
	first, last := bits.Len64(uint64(smallest))-1, min(bits.Len64(uint64(largest-1)), 62)
	if last <= first {
		last = first + 1
	}
	// Ldexp is exact, so that a tick is the power of two itself and prints as "8 KiB".
	a := Axis{Lo: math.Ldexp(1, first), Hi: math.Ldexp(1, last), Log: true}
	every := (last-first)/7 + 1
	for e := first; e <= last; e += every {
		a.Ticks = append(a.Ticks, math.Ldexp(1, e))
	}
	return a
}
