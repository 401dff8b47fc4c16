package bench

import (
	"testing"
)

func TestEachMetricIsInTheTableOnce(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i, m := range metrics {
		if m.Name == "" || m.Unit == "" || m.Label == "" || seen[m.Name] {
			t.Errorf("%+v: a part is missing, or it is there twice", m)
		}
		seen[m.Name] = true
		m.Place = i
		if got := MetricOf(m.Name); got != m {
			t.Errorf("%s: got %+v, want %+v", m.Name, got, m)
		}
	}
	if m := MetricOf("other"); m != (Metric{Name: "other", Label: "other", Place: len(metrics)}) {
		t.Errorf("an unknown metric: %+v", m)
	}
}

func TestWhatIsBetterFollowsFromTheMetricThenFromTheUnit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, unit string
		want       bool
	}{
		{MetricBWAverage, UnitGbps, false}, {MetricLatencyP99, UnitUsec, true}, {MetricRetransmits, UnitSegments, true},
		{MetricLoss, UnitPercent, true}, {"kernel_launch", "us", true}, {"wall", "s", true},
		{"tflops", "TFLOPS", false},
		{MetricBWAverage, "us", true}, {"other", "", false},
	} {
		if got := LowerIsBetter(tt.name, tt.unit); got != tt.want {
			t.Errorf("%s in %q: %v, want %v", tt.name, tt.unit, got, tt.want)
		}
	}
}

func TestZeroIsAResultOfSomeMetricsOnly(t *testing.T) {
	t.Parallel()
	for metric, ok := range map[string]bool{MetricRetransmits: true, MetricLoss: true, MetricLatencyStdev: true,
		MetricBWAverage: false, MetricLatencyMin: false, "other": false} {
		if err := CheckValue(metric, 0); (err == nil) != ok {
			t.Errorf("%s of 0: %v", metric, err)
		}
	}
}
