package bench

import (
	"slices"
)

// A Metric describes one kind of figure, independent of the program.
type Metric struct {
	Name, Unit string
	// Label heads the metric's column.
	Label string
	// Lower is set if less is better.
	Lower bool
	// Zero is set if 0 is a good result. For other metrics 0 means a failed measurement: perftest prints 0.000 for
	// everything if it could not calibrate its clock.
	Zero bool
	// Place is the display order; an unknown metric comes last.
	Place int
}

var metrics = []Metric{
	{Name: MetricBWAverage, Unit: UnitGbps, Label: "average"},
	{Name: MetricBWPeak, Unit: UnitGbps, Label: "peak"},
	{Name: MetricMessageRate, Unit: UnitMpps, Label: "message rate"},
	{Name: MetricThroughput, Unit: UnitGbps, Label: "throughput"},
	{Name: MetricRetransmits, Unit: UnitSegments, Label: "retransmits", Lower: true, Zero: true},
	{Name: MetricLatencyTypical, Unit: UnitUsec, Label: "typical", Lower: true},
	{Name: MetricLatencyP99, Unit: UnitUsec, Label: "p99", Lower: true},
	{Name: MetricLatencyP999, Unit: UnitUsec, Label: "p99.9", Lower: true},
	{Name: MetricLatencyMin, Unit: UnitUsec, Label: "min", Lower: true},
	{Name: MetricLatencyAverage, Unit: UnitUsec, Label: "average", Lower: true},
	{Name: MetricLatencyMax, Unit: UnitUsec, Label: "max", Lower: true},
	{Name: MetricLatencyStdev, Unit: UnitUsec, Label: "stdev", Lower: true, Zero: true},
	{Name: MetricGoodput, Unit: UnitGbps, Label: "goodput"},
	{Name: MetricGoodputMin, Unit: UnitGbps, Label: "slowest flow"},
	{Name: MetricFairness, Unit: UnitPercent, Label: "fairness"},
	{Name: MetricDrops, Unit: UnitFrames, Label: "drops", Lower: true, Zero: true},
	{Name: MetricGoBacks, Unit: UnitTimes, Label: "went back", Lower: true, Zero: true},
	{Name: MetricMarks, Unit: UnitFrames, Label: "ECN marks", Lower: true, Zero: true},
	{Name: MetricCNPs, Unit: UnitFrames, Label: "CNPs", Lower: true, Zero: true},
	{Name: MetricPauses, Unit: UnitTimes, Label: "pauses", Lower: true, Zero: true},
	{Name: MetricPausedTime, Unit: UnitPercent, Label: "paused", Lower: true, Zero: true},
	{Name: MetricSlowdown, Unit: UnitFold, Label: "slowdown", Lower: true},
	{Name: MetricSlowdownP99, Unit: UnitFold, Label: "p99 slowdown", Lower: true},
	{Name: MetricCompletion, Unit: UnitUsec, Label: "last end", Lower: true},
	{Name: MetricQueueP99, Unit: UnitKiB, Label: "p99 queue", Lower: true, Zero: true},
	{Name: MetricTPSAverage, Unit: UnitMtps, Label: "average rate"},
	{Name: MetricTPSPeak, Unit: UnitMtps, Label: "peak rate"},
	{Name: MetricLoss, Unit: UnitPercent, Label: "lost", Lower: true, Zero: true},
	{Name: MetricEventRate, Unit: UnitEvents, Label: "rate"},
	{Name: MetricMemoryBandwidth, Unit: UnitGBps, Label: "read and written"},
	{Name: MetricLoadLatency, Unit: UnitNsec, Label: "time of a load", Lower: true},
	{Name: MetricBusBandwidth, Unit: UnitGBps, Label: "bus bandwidth"},
	{Name: MetricCopyBandwidth, Unit: UnitGBps, Label: "copies"},
	{Name: MetricCollectiveTime, Unit: UnitUsec, Label: "time", Lower: true},
	{Name: MetricStepRate, Unit: UnitSteps, Label: "steps"},
	{Name: MetricSimulated, Unit: UnitNsPerDay, Label: "simulated"},
	{Name: MetricFlopRate, Unit: UnitGflops, Label: "Linpack"},
	{Name: MetricRating, Unit: UnitMIPS, Label: "rating"},
	{Name: MetricRatingCompress, Unit: UnitMIPS, Label: "compressing"},
	{Name: MetricRatingDecompress, Unit: UnitMIPS, Label: "decompressing"},
}

// MetricOf gives an unknown metric its own name and no unit.
func MetricOf(name string) Metric {
	for i, m := range metrics {
		if m.Name == name {
			m.Place = i
			return m
		}
	}
	return Metric{Name: name, Label: name, Place: len(metrics)}
}

// LowerIsBetter decides by the unit for unknown metrics and other units.
func LowerIsBetter(name, unit string) bool {
	if m := MetricOf(name); unit != "" && m.Unit == unit {
		return m.Lower
	}
	return slices.Contains([]string{UnitUsec, UnitNsec, "ms", "s", UnitSegments, UnitPercent}, unit)
}
