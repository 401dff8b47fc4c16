package expect

import (
	"slices"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/group"
)

// A Published latency is neither a limit nor a verdict, because cards, switches and CPUs differ.
type Published struct {
	Test   string
	Bytes  int64
	Metric string
	Value  float64 // us
	Of     string  // measured hardware
}

var published = slices.Concat(
	publishedOf("ib_write_lat", "ConnectX-4 Lx, 25 Gb/s, two virtual machines back to back", 1.44, 1.53, 5.22),
	publishedOf("ib_send_lat", "ConnectX-5, 100 Gb/s, two virtual machines and one switch", 2.04, 2.28, 5.08))

// publishedOf takes us, for messages of 2 bytes.
func publishedOf(test, of string, typical, p99, p999 float64) []Published {
	return []Published{{test, 2, bench.MetricLatencyTypical, typical, of}, {test, 2, bench.MetricLatencyP99, p99, of},
		{test, 2, bench.MetricLatencyP999, p999, of}}
}

// A PublishedComparison pairs a measured latency with a published one of the same test.
type PublishedComparison struct {
	Test      string  `json:"test"`
	Client    string  `json:"client"`
	Server    string  `json:"server"`
	Metric    string  `json:"metric"`
	Bytes     int64   `json:"bytes"`
	Value     float64 `json:"us"` // or the median of repeats
	Published float64 `json:"published_us"`
	Of        string  `json:"published_of"`
}

// ComparePublished leaves out emulated latencies, which have no counterpart.
func ComparePublished(samples []bench.Sample) []PublishedComparison {
	type key struct{ client, server string }
	var out []PublishedComparison
	for _, p := range published {
		var values group.By[key, float64]
		for _, s := range samples {
			if s.Error != "" || s.Emulated || s.Test != p.Test || s.Bytes != p.Bytes || s.Metric != p.Metric {
				continue
			}
			values.Add(key{s.Client, s.Server}, s.Value)
		}
		for _, k := range values.Keys {
			out = append(out, PublishedComparison{p.Test, k.client, k.server, p.Metric, p.Bytes,
				bench.Median(values.Of(k)), p.Value, p.Of})
		}
	}
	return out
}
