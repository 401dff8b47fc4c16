package bench

import (
	"errors"
	"math"
	"slices"
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

// CheckNumber refuses what no program measures: NaN, infinities and negatives.
func CheckNumber(v float64) error {
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
	return CheckNumber(v)
}

// Median is the mean of the two middle values: one repeat that went wrong does not move it, unlike a mean.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// QuickBytes is the size of messages that reports quote a bandwidth of: bandwidths are of this one alone with
// Options.Quick.
const QuickBytes = 64 << 10
