package tool

import (
	"math"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

// Never above the limit.
func TestPublishedFiguresAreJustBelowTheWire(t *testing.T) {
	for _, tt := range []struct {
		engine   string
		wire     bench.Wire
		bytes    int64
		measured float64 // Gb/s
		want     float64 // limit, to four digits
		least    float64
	}{
		// Building a Multi-Node RDMA Lab on a Single Machine: ConnectX-4 Lx, two virtual machines.
		{"ib_write_bw", bench.Wire{Rate: 25, MTU: 4096}, 1 << 20, 24.51, 24.51, 0.999},
		{"ib_write_bw", bench.Wire{Rate: 25, MTU: 4096}, 64 << 10, 24.50, 24.50, 0.999},
		{"ib_write_bw", bench.Wire{Rate: 25, MTU: 4096}, 4096, 24.40, 24.42, 0.999},
		{"ib_write_bw", bench.Wire{Rate: 25, MTU: 4096}, 2, 0.06, 0.4902, 0.1},
		// RoCE with SR-IOV on vSphere: ConnectX-5 and a switch.
		{"ib_send_bw", bench.Wire{Rate: 100, MTU: 4096}, 64 << 10, 96.63, 98.04, 0.98},
		{"ib_send_bw", bench.Wire{Rate: 100, MTU: 4096}, 4096, 88.17, 98.04, 0.89},
		// A port of an H20 server: one flow, so one of two bonded ports.
		{"ib_write_bw", bench.Wire{Rate: 200, MTU: 4096}, 64 << 10, 195.06, 196.0, 0.995},
	} {
		got := tt.wire.Limit(mustEngine(t, tt.engine), tt.bytes)
		if math.Abs(got/tt.want-1) > 0.0005 {
			t.Errorf("%s of %d bytes at %g Gb/s: limit %.5g, want %.4g", tt.engine, tt.bytes, tt.wire.Rate, got,
				tt.want)
		}
		if part := tt.measured / got; part > 1.005 || part < tt.least {
			t.Errorf("%s of %d bytes at %g Gb/s: measured %g, which is %.4f of the limit", tt.engine, tt.bytes,
				tt.wire.Rate, tt.measured, part)
		}
	}
}

func TestALimitIsNotMadeUp(t *testing.T) {
	for name, got := range map[string]float64{
		"no rate":   bench.Wire{MTU: 4096}.Limit(mustEngine(t, "ib_write_bw"), 4096),
		"no MTU":    bench.Wire{Rate: 25}.Limit(mustEngine(t, "ib_write_bw"), 4096),
		"no size":   bench.Wire{Rate: 25, MTU: 4096}.Limit(mustEngine(t, "ib_write_bw"), 0),
		"a latency": bench.Wire{Rate: 25, MTU: 4096}.Limit(mustEngine(t, "ib_write_lat"), 2),
		"TCP":       bench.Wire{Rate: 25, MTU: 4096}.Limit(mustEngine(t, "iperf3"), 4096),
		"one is not": bench.SlowerWire(bench.Wire{Rate: 25, MTU: 4096}, bench.Wire{}).Limit(mustEngine(t,
			"ib_write_bw"), 4096),
	} {
		if got != 0 {
			t.Errorf("%s: %g", name, got)
		}
	}
	send, read, write := mustEngine(t, "ib_send_bw"), mustEngine(t, "ib_read_bw"), mustEngine(t, "ib_write_bw")
	w := bench.Wire{Rate: 25, MTU: 1024}
	six := w
	six.IPv6 = true
	// 1024 of 1024 + 82, + 4, + 16, + 20 bytes.
	for name, c := range map[string][2]float64{
		"send":     {w.Limit(send, 1024), 25 * 1024. / 1106},
		"read":     {w.Limit(read, 1024), 25 * 1024. / 1110},
		"write":    {w.Limit(write, 1024), 25 * 1024. / 1122},
		"IPv6":     {six.Limit(send, 1024), 25 * 1024. / 1126},
		"two":      {w.Limit(read, 2048), 25 * 2048. / 2220},
		"padded":   {w.Limit(send, 2), 25 * 2. / 86},
		"a byte 2": {w.Limit(send, 1025), 25 * 1025. / (1028 + 164)},
		"slower":   {bench.SlowerWire(bench.Wire{Rate: 100, MTU: 4096}, w).Limit(send, 1024), 25 * 1024. / 1106},
	} {
		if math.Abs(c[0]/c[1]-1) > 1e-12 {
			t.Errorf("%s: %g, want %g", name, c[0], c[1])
		}
	}
}

func TestMoreThanTheWireCarriesIsNoResult(t *testing.T) {
	e := mustEngine(t, "ib_write_bw")
	w := bench.Wire{Rate: 25, MTU: 4096}
	good := []bench.Figure{
		{Metric: bench.MetricBWPeak, Bytes: 65536, Value: 26, Unit: bench.UnitGbps}, {Metric: bench.MetricBWAverage,
			Bytes: 65536, Value: 24.5, Unit: bench.UnitGbps},
		{Metric: bench.MetricMessageRate, Bytes: 65536, Value: 0.0467, Unit: bench.UnitMpps},
	}
	if err := w.Check(e, good); err != nil {
		t.Error(err)
	}
	err := w.Check(e, []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 31, Unit: bench.UnitGbps}})
	if err == nil || !strings.Contains(err.Error(),
		"31 Gb/s with messages of 65536 bytes is more than a link of 25 Gb/s carries with an MTU of 4096, which is "+
			"24.5 Gb/s") {
		t.Errorf("31 Gb/s: %v", err)
	}
	// bench advises ib_write_bw/q8 for a bond, because it uses both links.
	bond := bench.SlowerWire(bench.Wire{Rate: 200, MTU: 4096, Links: 2}, bench.Wire{Rate: 200, MTU: 4096, Links: 2})
	e = mustEngine(t, "ib_write_bw/q8")
	if err := bond.Check(e, []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 390,
		Unit: bench.UnitGbps}}); err != nil {
		t.Errorf("390 Gb/s over two links of 200: %v", err)
	}
	err = bond.Check(e, []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 410, Unit: bench.UnitGbps}})
	if err == nil || !strings.Contains(err.Error(), "is more than a bond of 2 links of 200 Gb/s carries") {
		t.Errorf("410 Gb/s over two links of 200: %v", err)
	}
	single := bench.SlowerWire(bond, bench.Wire{Rate: 200, MTU: 4096})
	if err := single.Check(e, []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 390,
		Unit: bench.UnitGbps}}); err ==
		nil {
		t.Error("390 Gb/s from a bond to a single link is taken")
	}
	if err := (bench.Wire{}).Check(e, []bench.Figure{{Metric: bench.MetricBWAverage, Bytes: 65536, Value: 31,
		Unit: bench.UnitGbps}}); err !=
		nil {
		t.Errorf("nothing is known of the wire: %v", err)
	}
}

// UCX puts are RDMA writes. MPI chooses its transport, so only the rate of the port bounds it.
func TestOtherToolsAreBoundByTheWireToo(t *testing.T) {
	w := bench.Wire{Rate: 25, MTU: 4096}
	if got, want := w.Limit(mustEngine(t, "ucx_put_bw"), 65536), w.Limit(mustEngine(t, "ib_write_bw"),
		65536); got != want {
		t.Errorf("puts: %g, and writes %g", got, want)
	}
	for _, name := range []string{"ucx_put_lat", "fi_pingpong", "osu_bw", "osu_bibw"} {
		if got := w.Limit(mustEngine(t, name), 65536); got != 0 {
			t.Errorf("%s: %g, and its headers are not known", name, got)
		}
	}
	bandwidth := func(v float64) bench.Figure {
		return bench.Figure{Metric: bench.MetricBWAverage, Bytes: 65536, Value: v, Unit: bench.UnitGbps}
	}
	latency := func(us float64) bench.Figure {
		return bench.Figure{Metric: bench.MetricLatencyAverage, Bytes: 65536, Value: us, Unit: bench.UnitUsec}
	}
	for _, tt := range []struct {
		engine    string
		good, bad bench.Figure
		want      string
	}{
		{"ucx_put_bw", bandwidth(24.5), bandwidth(24.7),
			"24.7 Gb/s with messages of 65536 bytes is more than a link of 25 Gb/s carries with an MTU of 4096, " +
				"which is 24.5 Gb/s"},
		{"osu_bw", bandwidth(25), bandwidth(26), "26 Gb/s is more than a link of 25 Gb/s carries"},
		{"osu_bibw", bandwidth(50), bandwidth(51), "51 Gb/s is more than a link of 25 Gb/s carries"},
		{"ucx_put_lat", latency(22), latency(20), "latency_average of 20 us is less than the 20.97 us that a link of " +
			"25 Gb/s takes to carry the message"},
		{"fi_pingpong", latency(22), latency(20), "is less than the 20.97 us"},
		{"osu_latency", latency(22), latency(20), "is less than the 20.97 us"},
	} {
		e := mustEngine(t, tt.engine)
		if err := w.Check(e, []bench.Figure{tt.good}); err != nil {
			t.Errorf("%s: %v", tt.engine, err)
		}
		if err := w.Check(e, []bench.Figure{tt.bad}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %s", tt.engine, err, tt.want)
		}
	}
}
