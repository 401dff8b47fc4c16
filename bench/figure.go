package bench

import (
	"errors"
	"math"
	"slices"
)

// A Figure is one number printed by a tool, in this package's unit for its metric.
type Figure struct {
	Metric     string
	Bytes      int64 // 0 if the tool has none
	Iterations int64 // 0 if not printed
	Value      float64
	Unit       string
	Derived    bool // see Sample.Derived
	// Latencies holds all latencies in time order, in us, on the median of a test with Options.Raw.
	Latencies []float64 `json:"-"`
}

// A Key identifies a figure of a lab. Figures with the same key can be compared.
type Key struct {
	Test   string `json:"test"`
	Client string `json:"client"`
	Server string `json:"server,omitempty"`
	Metric string `json:"metric"`
	Bytes  int64  `json:"bytes,omitempty"`
}

// Key returns the key of the sample's figure.
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
	UnitFold     = "x" // as a multiple of another value
	UnitKiB      = "KiB"
	UnitGBps     = "GB/s" // 10^9 bytes a second
	UnitSteps    = "steps/s"
	UnitNsPerDay = "ns/day"
	UnitGflops   = "Gflop/s" // 10^9 floating point operations a second
	// UnitMIPS is 10^6 instructions a second of 7-Zip's own model of the work, not of the CPU.
	UnitMIPS = "MIPS"
)

// CheckNumber refuses NaN, infinities and negatives.
func CheckNumber(v float64) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return errors.New("the value is not a finite number")
	case v < 0:
		return errors.New("the value is negative")
	}
	return nil
}

// CheckValue refuses v if it cannot be a value of the metric.
func CheckValue(metric string, v float64) error {
	if v == 0 && !MetricOf(metric).Zero {
		return errors.New("a value of zero is a failed measurement")
	}
	return CheckNumber(v)
}

// Median returns the mean of the two middle values: unlike a mean, it is not moved by one failed repeat.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// QuickBytes is the message size that reports quote, the only one with Options.Quick.
const QuickBytes = 64 << 10
