package expect

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

func baselineSamples(bw, lat float64) []bench.Sample {
	one := func(test, metric, unit string, bytes int64, v float64) bench.Sample {
		return bench.Sample{Run: test, Test: test, Client: "vm01", Server: "vm00", Metric: metric, Bytes: bytes,
			Value: v, Unit: unit, Tool: "perftest", Accelerator: "kvm"}
	}
	return []bench.Sample{
		one("ib_write_bw", bench.MetricBWPeak, bench.UnitGbps, 65536, 99), // not repeatable
		one("ib_write_bw", bench.MetricBWAverage, bench.UnitGbps, 65536, bw),
		one("ib_write_lat", bench.MetricLatencyP99, bench.UnitUsec, 2, lat),
		one("ib_write_lat", bench.MetricLatencyMax, bench.UnitUsec, 2, 100*lat),
	}
}

func TestAMeasurementIsHeldAgainstItsBaseline(t *testing.T) {
	t.Parallel()
	b, err := NewBaseline(baselineSamples(24.5, 1.5), Tolerance{Bad: 0.1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Figures) != 2 {
		t.Fatalf("%d figures, want 2: %+v", len(b.Figures), b.Figures)
	}
	failed := baselineSamples(24.5, 1.5)[:2]
	failed = append(failed, bench.Sample{Test: "ib_write_lat", Client: "vm01", Server: "vm00",
		Error: "no result within 3m0s"})
	for _, tt := range []struct {
		name    string
		samples []bench.Sample
		want    string // reasons; "" is good
	}{
		{"the same", baselineSamples(24.5, 1.5), ""},
		{"better on both sides", baselineSamples(50, 0.5), ""},
		{"just inside", baselineSamples(24.5*0.9001, 1.5*1.0999), ""},
		{"slower", baselineSamples(20, 1.5), "18.4% below, and 10% are allowed"},
		{"later", baselineSamples(24.5, 1.8), "20.0% above, and 10% are allowed"},
		{"one is missing", baselineSamples(24.5, 1.5)[:2], "it was not measured"},
		{"one failed", failed, "it failed: no result within 3m0s"},
		{"the median of three counts", append(append(baselineSamples(24.5, 1.5), baselineSamples(1, 99)...),
			baselineSamples(24.4, 1.51)...), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all, err := b.Check(tt.samples)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range all {
				if d.OK != (d.Reason == "") {
					t.Errorf("%s: OK is %v, and the reason %q", d.Metric, d.OK, d.Reason)
				}
				if !d.OK {
					got = append(got, d.Reason)
				}
			}
			if strings.Join(got, "; ") != tt.want {
				t.Errorf("got  %v\nwant %s", got, tt.want)
			}
		})
	}
	emulated := baselineSamples(24.5, 1.5)
	for i := range emulated {
		emulated[i].Emulated = true
	}
	if _, err := b.Check(emulated); !errors.Is(err, ErrOtherKind) {
		t.Errorf("emulated figures against those of hardware: %v", err)
	}
}

func TestWhatIsNoBaseline(t *testing.T) {
	t.Parallel()
	if _, err := NewBaseline([]bench.Sample{{Test: "iperf3", Client: "vm01", Error: "refused"}}, Tolerance{Bad: 0.1},
		nil); err == nil || !strings.Contains(err.Error(), "iperf3 from vm01 failed: refused") {
		t.Errorf("got %v", err)
	}
	if _, err := NewBaseline(nil, Tolerance{Bad: 0.1}, nil); err == nil {
		t.Error("nothing is a baseline")
	}
	if _, err := NewBaseline(baselineSamples(1, 1), Tolerance{}, nil); err == nil {
		t.Error("a tolerance of nothing is taken")
	}
	good := `{"schema":"rackless/baseline/v1","lab":"a","made":"","rackless":"","accelerator":"kvm","emulated":false,` +
		`"figures":[{"test":"x","client":"a","metric":"m","value":1,"unit":"us","upper":0.1}]}`
	for _, tt := range []struct{ name, old, new, want string }{
		{"another schema", "/v1", "/v9", `schema "rackless/baseline/v9"`},
		{"a bound misspelt", "upper", "uper", "uper"},
		{"no bound", `,"upper":0.1`, "", "neither a lower nor an upper bound"},
		{"a bound below zero", "0.1", "-0.1", "upper -0.1: want a share of 0 or more"},
		{"a value of nothing", `"value":1`, `"value":0`, "value 0: want a number above 0"},
		{"no metric", `"metric":"m"`, `"metric":""`, "test, client and metric are needed"},
		{"no figures", `{"test":"x","client":"a","metric":"m","value":1,"unit":"us","upper":0.1}`, "",
			"it has no figures"},
	} {
		if _, err := ReadBaseline(strings.NewReader(strings.Replace(good, tt.old, tt.new, 1))); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.name, err, tt.want)
		}
	}
	b, err := NewBaseline(baselineSamples(24.5, 1.5), Tolerance{Bad: 0.1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadBaseline(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if text2, _ := json.Marshal(again); !bytes.Equal(text, text2) {
		t.Errorf("written and read again:\n%s\n%s", text, text2)
	}
}

func FuzzReadBaseline(f *testing.F) {
	f.Add([]byte(`{"schema":"rackless/baseline/v1","figures":[{"test":"x","client":"a","metric":"m","value":1,` +
		`"unit":"us","upper":0.1}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ReadBaseline(bytes.NewReader(text))
		if err != nil {
			return
		}
		if _, err := b.Check(nil); err != nil {
			t.Fatal(err)
		}
	})
}

// Latencies may vary more than bandwidths, and a figure that is too good is suspicious.
func TestEachMetricHasItsTolerance(t *testing.T) {
	t.Parallel()
	b, err := NewBaseline(baselineSamples(24.5, 1.5), Tolerance{Bad: 0.5},
		map[string]Tolerance{bench.MetricBWAverage: {Lower: 0.02, Upper: 0.05}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		bandwidth, latency float64
		want               string
	}{
		{24.5, 2.2, ""},
		{24.5, 2.3, "53.3% above, and 50% are allowed"},
		{24.1, 0.1, ""},
		{23.9, 1.5, "2.4% below, and 2% are allowed"},
		{25.9, 1.5, "5.7% above, and 5% are allowed"},
	} {
		all, err := b.Check(baselineSamples(tt.bandwidth, tt.latency))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range all {
			got += d.Reason
		}
		if got != tt.want {
			t.Errorf("%v Gb/s and %v us: got %q, want %q", tt.bandwidth, tt.latency, got, tt.want)
		}
	}
	if _, err := NewBaseline(baselineSamples(1, 1), Tolerance{Bad: 0.1},
		map[string]Tolerance{"latency_max": {Bad: 0.1}}); err == nil || !strings.Contains(err.Error(),
		"tolerance of latency_max: a baseline has none; it has bw_average,") {
		t.Errorf("a metric that no baseline has: %v", err)
	}
}
