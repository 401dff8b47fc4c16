package tool

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/golden"
)

func perftestFiles(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/perftest/*")
	if err != nil || len(files) < 30 {
		t.Fatalf("list fixtures: %d files, error %v", len(files), err)
	}
	return files
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parsePerftestFile(t testing.TB, name string) *PerftestResult {
	t.Helper()
	res, err := ParsePerftest(readFile(t, filepath.Join("testdata/perftest", name)))
	if err != nil {
		t.Fatalf("ParsePerftest(%s): %v", name, err)
	}
	return res
}

func figure(t testing.TB, figures []bench.Figure, metric string, bytes int64) bench.Figure {
	t.Helper()
	var found []bench.Figure
	for _, f := range figures {
		if f.Metric == metric && f.Bytes == bytes {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d figures of %s at %d bytes, want 1: %v", len(found), metric, bytes, found)
	}
	return found[0]
}

func near(got, want, tolerance float64) bool { return math.Abs(got-want) <= tolerance*math.Abs(want) }

func TestEveryFixtureParsesAsItsGoldenFileSays(t *testing.T) {
	for _, file := range perftestFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var got []byte
			res, err := ParsePerftest(readFile(t, file))
			if err != nil {
				got = []byte(err.Error() + "\n")
			} else {
				got, err = json.MarshalIndent(res, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, '\n')
			}
			golden.Check(t, filepath.Join("testdata/golden", filepath.Base(file)+".golden"), got)
			if bad := strings.Contains(file, "-bad-"); bad && res != nil && res.Complete {
				t.Error("a fixture named bad is taken for a complete result")
			}
		})
	}
}

// In any unit, bandwidth and message rate of a row are two roundings of the same measurement.
func TestBandwidthAgreesWithRateTimesSize(t *testing.T) {
	checked := 0
	for _, file := range perftestFiles(t) {
		res, err := ParsePerftest(readFile(t, file))
		if err != nil {
			continue // checked by the golden test
		}
		for _, row := range res.Rows {
			v := make(map[string]float64)
			for _, f := range row.Figures {
				v[f.Metric] = f.Value
			}
			bw, rate := v[bench.MetricBWAverage], v[bench.MetricMessageRate]
			if bw == 0 || rate == 0 {
				continue
			}
			checked++
			// Half of the last decimal of each.
			slack := 0.0055 + 0.55e-6*float64(row.Bytes)*8e-3 + 0.005*bw
			if want := rate * float64(row.Bytes) * 8e-3; math.Abs(bw-want) > slack {
				t.Errorf("%s: %d bytes at %v Mpps are %v Gb/s, the bandwidth is %v", file, row.Bytes, rate, want, bw)
			}
		}
	}
	if checked < 140 {
		t.Errorf("only %d rows checked, want 140 or more", checked)
	}
}

func TestFiguresOfPublishedTablesComeOutAsPrinted(t *testing.T) {
	tests := []struct {
		file   string
		metric string
		bytes  int64
		want   bench.Figure
	}{
		{"synthetic-send_bw-a-cx5-100g.txt", bench.MetricBWAverage, 2, bench.Figure{Metric: bench.MetricBWAverage,
			Bytes: 2, Iterations: 1000, Value: 0.082800, Unit: bench.UnitGbps}},
		{"synthetic-send_bw-a-cx5-100g.txt", bench.MetricBWPeak, 65536, bench.Figure{Metric: bench.MetricBWPeak,
			Bytes: 65536, Iterations: 1000, Value: 96.64, Unit: bench.UnitGbps}},
		{"synthetic-send_bw-a-cx5-100g.txt", bench.MetricBWAverage, 65536, bench.Figure{Metric: bench.MetricBWAverage,
			Bytes: 65536, Iterations: 1000, Value: 96.63, Unit: bench.UnitGbps}},
		{"synthetic-send_bw-a-cx5-100g.txt", bench.MetricMessageRate, 2, bench.Figure{Metric: bench.MetricMessageRate,
			Bytes: 2, Iterations: 1000, Value: 5.175012, Unit: bench.UnitMpps}},
		{"synthetic-send_bw-a-cx5-100g.txt", bench.MetricBWAverage, 8388608, bench.Figure{Metric: bench.MetricBWAverage,
			Bytes: 8388608, Iterations: 1000, Value: 96.15, Unit: bench.UnitGbps}},
		{"synthetic-send_lat-a-cx5-100g-shorttitles.txt", bench.MetricLatencyTypical, 2,
			bench.Figure{Metric: bench.MetricLatencyTypical, Bytes: 2, Iterations: 1000, Value: 2.04,
				Unit: bench.UnitUsec}},
		{"synthetic-send_lat-a-cx5-100g-shorttitles.txt", bench.MetricLatencyP99, 2,
			bench.Figure{Metric: bench.MetricLatencyP99, Bytes: 2, Iterations: 1000, Value: 2.28,
				Unit: bench.UnitUsec}},
		{"synthetic-send_lat-a-cx5-100g-shorttitles.txt", bench.MetricLatencyP999, 2,
			bench.Figure{Metric: bench.MetricLatencyP999, Bytes: 2, Iterations: 1000, Value: 5.08,
				Unit: bench.UnitUsec}},
		{"synthetic-send_lat-a-cx5-100g-shorttitles.txt", bench.MetricLatencyTypical, 8388608,
			bench.Figure{Metric: bench.MetricLatencyTypical, Bytes: 8388608, Iterations: 1000, Value: 706.95,
				Unit: bench.UnitUsec}},
		{"synthetic-write_bw-cx4lx-25g.txt", bench.MetricBWAverage, 1024, bench.Figure{Metric: bench.MetricBWAverage,
			Bytes: 1024, Iterations: 5000, Value: 22.67, Unit: bench.UnitGbps}},
		{"synthetic-write_bw-cx4lx-25g.txt", bench.MetricMessageRate, 1048576,
			bench.Figure{Metric: bench.MetricMessageRate, Bytes: 1048576, Iterations: 5000, Value: 0.002922,
				Unit: bench.UnitMpps}},
	}
	for _, tt := range tests {
		t.Run(tt.file+" "+tt.metric, func(t *testing.T) {
			res := parsePerftestFile(t, tt.file)
			if !res.Complete {
				t.Error("the table is not complete")
			}
			if got := figure(t, res.Figures(), tt.metric, tt.bytes); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
	for _, file := range []string{"synthetic-send_bw-a-cx5-100g.txt", "synthetic-send_lat-a-cx5-100g-shorttitles.txt"} {
		if rows := parsePerftestFile(t, file).Rows; len(rows) != 23 {
			t.Errorf("%s: %d rows, want the 23 sizes of -a", file, len(rows))
		}
	}
}

func TestMegabytesAreMebibytes(t *testing.T) {
	// 2797.31 * 2^20 * 8 / 10^9
	const in = " #bytes #iterations BW peak[%] BW average[%] MsgRate[Mpps]\n 65536 20000 2800.00 2797.31 0.044757\n"
	for _, unit := range []string{"MB/sec", "MiB/sec"} {
		res, err := ParsePerftest([]byte(strings.ReplaceAll(in, "%", unit)))
		if err != nil {
			t.Fatal(err)
		}
		if got := figure(t, res.Figures(), bench.MetricBWAverage, 65536); !near(got.Value, 23.4655, 1e-5) ||
			got.Unit != bench.UnitGbps {
			t.Errorf("%s: got %v %s, want 23.4655 Gb/s", unit, got.Value, got.Unit)
		}
	}
}

func TestHeaderFactsAreRead(t *testing.T) {
	facts := func(values ...string) map[string]string {
		all := map[string]string{}
		for i, name := range []string{"Connection type", "Transport type", "Number of qps", "Link type", "Device",
			"Mtu", "GID index"} {
			if values[i] != "" {
				all[name] = values[i]
			}
		}
		return all
	}
	tests := []struct {
		file, test string
		want       map[string]string
	}{
		{"synthetic-write_bw-a-gbits-emulated.txt", "RDMA_Write BW Test", facts("RC", "IB", "1", "Ethernet", "rxe0",
			"4096[B]", "1")},
		{"synthetic-write_bw-4qp-ib-mib.txt", "RDMA_Write BW Test", facts("RC", "IB", "4", "IB", "mlx5_0", "4096[B]",
			"")},
		{"synthetic-send_bw-a-ud-1.x.txt", "Send BW Test", facts("UD", "", "", "", "", "2048", "")},
		{"synthetic-json-bare-a-gbits.json", "RDMA_Write BW Test", facts("RC", "IB", "1", "Ethernet", "rxe0", "4096",
			"1")},
		{"superbench-ib_loopback_all_sizes.log", "RDMA_Write BW Test", facts("RC", "IB", "1", "IB", "ib0", "4096[B]",
			"")},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			got := parsePerftestFile(t, tt.file)
			if diff := cmp.Diff(tt.want, got.Facts); diff != "" || got.Test != tt.test || !got.Complete {
				t.Errorf("%s, complete: %v; facts (-want +got):\n%s", got.Test, got.Complete, diff)
			}
		})
	}
}

func TestClientAndServerOnOneTerminalGiveAllRows(t *testing.T) {
	res := parsePerftestFile(t, "superbench-ib_loopback_all_sizes.log")
	if len(res.Rows) != 24 {
		t.Errorf("%d rows, want the client's 23 and the server's last one", len(res.Rows))
	}
}

func TestPeakThatWasNotMeasuredIsAbsent(t *testing.T) {
	for _, file := range []string{"dgxspark-rdma_write_bw_test-client-0.txt", "synthetic-send_bw-a-mib-server.txt",
		"synthetic-write_bw-cx4lx-25g.txt"} {
		for _, f := range parsePerftestFile(t, file).Figures() {
			if f.Metric == bench.MetricBWPeak {
				t.Errorf("%s: %+v", file, f)
			}
		}
	}
	res := parsePerftestFile(t, "dgxspark-rdma_write_bw_test-client-0.txt")
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "BW peak won't be measured") {
		t.Errorf("warnings %q", res.Warnings)
	}
}

func TestATestThatRunsUntilItIsEndedIsClosedByNothing(t *testing.T) {
	const file = "testdata/perftest/dgxspark-rdma_write_bw_test-client-0.txt"
	in := string(readFile(t, file))
	for _, tt := range []struct {
		name, in string
		rows     int
		whole    bool
	}{
		{"as it is", in, 5, true},
		{"cut off in its last row", strings.TrimSuffix(in, "55\n"), 5, false},
		{"another size", strings.Replace(in, " 65536 ", " 32768 ", 1), 5, false},
		{"one row", in[:strings.Index(in, " 65536 ")] + " 65536      882805           0.00               92.57       " +
			"         0.176554\n", 1, false},
	} {
		res, err := ParsePerftest([]byte(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if len(res.Rows) != tt.rows || res.Complete != tt.whole {
			t.Errorf("%s: %d rows, complete: %v", tt.name, len(res.Rows), res.Complete)
		}
	}
}

// The first title does not apply to the second run.
func TestTwoRunsAreNotOne(t *testing.T) {
	in := append(readFile(t, "testdata/perftest/recorded-6.06-rxe-tcg-write_bw-64k.txt"),
		readFile(t, "testdata/perftest/recorded-6.06-rxe-tcg-read_bw-a.txt")...)
	if _, err := ParsePerftest(in); err == nil || !strings.Contains(err.Error(),
		`"RDMA_Read BW Test": another run begins`) {
		t.Errorf("error %v", err)
	}
}

func TestDeviationThatRoundsToZeroIsAbsent(t *testing.T) {
	got := make(map[int64]bool)
	for _, f := range parsePerftestFile(t, "synthetic-read_lat-a-mib-6.x.txt").Figures() {
		if f.Metric == bench.MetricLatencyStdev {
			got[f.Bytes] = true
		}
	}
	if got[2] || !got[8] {
		t.Errorf("deviation of 2 bytes present: %v, want false; of 8 bytes: %v, want true", got[2], got[8])
	}
}

func TestFiguresThatRoundToZeroAreDerivedFromTheOtherColumn(t *testing.T) {
	figures := parsePerftestFile(t, "synthetic-write_bw-emulated-mb-rounded.txt").Figures()
	// 2 bytes at 2000 messages a second are 32 kb/s, printed as 0.00 MB/s.
	if f := figure(t, figures, bench.MetricBWAverage, 2); !f.Derived || !near(f.Value, 32e-6, 1e-9) {
		t.Errorf("bandwidth of 2 bytes: %+v, want 0.000032 Gb/s, derived", f)
	}
	if f := figure(t, figures, bench.MetricBWAverage, 64); f.Derived || !near(f.Value, 0.29*mibToGb, 1e-9) {
		t.Errorf("bandwidth of 64 bytes: %+v, want the printed one", f)
	}
	// 3.20 MiB/s of 8 MiB messages are 0.4 messages a second, printed as 0.000000 Mpps.
	if f := figure(t, figures, bench.MetricMessageRate, 8388608); !f.Derived || !near(f.Value, 0.4e-6, 1e-9) {
		t.Errorf("rate of 8 MiB: %+v, want 4e-07 Mpps, derived", f)
	}
	for _, f := range figures {
		if f.Value <= 0 {
			t.Errorf("a zero is published: %+v", f)
		}
	}
}

func TestTransactionsASecondBecomeMillions(t *testing.T) {
	figures := parsePerftestFile(t, "synthetic-send_lat-duration-tps.txt").Figures()
	if f := figure(t, figures, bench.MetricTPSAverage, 64); !near(f.Value, 0.00504878, 1e-9) ||
		f.Unit != bench.UnitMtps {
		t.Errorf("got %+v", f)
	}
}

func TestJSONTellsItsUnitByTheMessageRate(t *testing.T) {
	tests := []struct {
		name string
		bw   string
		want float64 // Gb/s; 0 for an error
	}{
		{"MiB/s", "2229.27", 2229.27 * mibToGb},
		{"Gb/s", "18.70", 18.70},
		{"neither", "400.00", 0},
	}
	in := string(readFile(t, "testdata/perftest/synthetic-json-valid.json"))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, err := ParsePerftest([]byte(strings.Replace(in, "2229.27", tt.bw, 1)))
			if tt.want == 0 {
				if err == nil || !strings.Contains(err.Error(), "unit of the bandwidth is unknown") {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if f := figure(t, res.Figures(), bench.MetricBWAverage, 65536); !near(f.Value, tt.want, 1e-9) {
				t.Errorf("got %v, want %v", f.Value, tt.want)
			}
		})
	}
}

func TestADeviationThatPerftestCannotComputeIsLeftOut(t *testing.T) {
	const lat = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% " +
		"percentile[usec] 99.9% percentile[usec]\n"
	tests := []struct {
		name, row string
		stdev     float64 // 0: left out
		fails     bool
	}{
		// The first row is one that perftest 4.5 printed on a busy machine.
		{"overflowed to no number", "2 70 7337.87 432216.41 112058.70 130256.97 -nan 432216.41 432216.41", 0, false},
		{"overflowed to a number", "2 70 7337.87 432216.41 112058.70 130256.97 1234.50 432216.41 432216.41", 0, false},
		{"the last square that fits", "2 70 20000.00 66340.00 20000.00 20000.00 5500.00 66340.00 66340.00", 5500,
			false},
		{"no number without a cause", "2 70 20000.00 66340.00 20000.00 20000.00 -nan 66340.00 66340.00", 0, true},
		{"the average is no number", "2 70 7337.87 432216.41 112058.70 -nan -nan 432216.41 432216.41", 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, err := ParsePerftest([]byte(lat + tt.row + "\n"))
			if tt.fails {
				if err == nil || !strings.Contains(err.Error(), `value "-nan": not a decimal number`) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var stdev float64
			for _, f := range res.Figures() {
				if f.Metric == bench.MetricLatencyStdev {
					stdev = f.Value
				}
			}
			if n := len(res.Figures()); stdev != tt.stdev || n < 6 {
				t.Errorf("a deviation of %v among %d figures, want %v", stdev, n, tt.stdev)
			}
		})
	}
}

func TestWhatIsNoResultIsRefusedWithItsLine(t *testing.T) {
	const (
		bw  = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
		lat = " #bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% " +
			"percentile[usec] 99.9% percentile[usec]\n"
	)
	tests := []struct{ name, in, want string }{
		{"nothing", "", `read result of perftest: the output ends without a row of figures`},
		{"a message instead of a table", "Did not detect devices\n Unable to find the Infiniband/RoCE device\n\n",
			`read result of perftest, line 2 "Unable to find the Infiniband/RoCE device": ` +
				`there is no such RDMA device, or it cannot be opened: ibv_devices lists them (-d)`},
		{"the server is not there", " Couldn't connect to 10.0.0.2:18515\nUnable to init the socket connection\n",
			`read result of perftest, line 1 "Couldn't connect to 10.0.0.2:18515": ` +
				`the server was not reached: it is to be started first, with the same options, ` +
				`and its port (-p, by default 18515) to be open`},
		{"a queue pair that does not come up",
			bw + "Failed to modify QP 17 to RTR\n Unable to Connect the HCA's through the link\n",
			`read result of perftest, line 2 "Failed to modify QP 17 to RTR": ` +
				`the queue pairs could not be connected: compare GID index (-x), MTU and subnet of both ends`},
		{"no queue pair", perftestWaits + "\nUnable to create QP.\nCouldn't create IB resources\n",
			`read result of perftest, line 2 "Unable to create QP.": ` + noQP},
		{"no connection", "Received 10 times ADDR_ERROR\n Unable to perform rdma_client function\n",
			`read result of perftest, line 1 "Received 10 times ADDR_ERROR": ` + noManager},
		{"a server that waits", perftestWaits + "\n****\n",
			`read result of perftest, line 2 "****": the output ends without a row of figures: it is of a server, ` +
				`and no client came, or none that measured`},
		{"a header without rows", bw,
			`read result of perftest, line 1 ` +
				`"#bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]": ` +
				`the output ends without a row of figures`},
		{"a row of zeros", bw + " 2 1000 0.00 0.00 0.000000\n",
			`read result of perftest, line 2 "2 1000 0.00 0.00 0.000000": column BW average[Gb/sec]: value "0.00": ` +
				`a value of zero is a failed measurement`},
		{"a zero that is no rounding", bw + " 65536 1000 0.00 0.00 0.044000\n",
			`read result of perftest, line 2 "65536 1000 0.00 0.00 0.044000": column BW average[Gb/sec]: ` +
				`value "0.00": a value of zero is a failed measurement`},
		{"a rate of zero that is no rounding", bw + " 2 1000 1.00 1.00 0.000000\n",
			`read result of perftest, line 2 "2 1000 1.00 1.00 0.000000": column MsgRate[Mpps]: value "0.000000": ` +
				`a value of zero is a failed measurement`},
		{"a figure that is not a number", bw + " 2 1000 nan nan nan\n",
			`read result of perftest, line 2 "2 1000 nan nan nan": column BW peak[Gb/sec]: value "nan": ` +
				`not a decimal number`},
		{"an infinite figure", bw + " 2 1000 1.00 inf 0.1\n",
			`read result of perftest, line 2 "2 1000 1.00 inf 0.1": column BW average[Gb/sec]: value "inf": ` +
				`not a decimal number`},
		{"a figure too large for a float", bw + " 2 1000 1.00 1e999 0.1\n",
			`read result of perftest, line 2 "2 1000 1.00 1e999 0.1": column BW average[Gb/sec]: value "1e999": ` +
				`not a decimal number`},
		{"a negative figure", bw + " 2 1000 1.00 -1.00 0.1\n",
			`read result of perftest, line 2 "2 1000 1.00 -1.00 0.1": column BW average[Gb/sec]: value "-1.00": ` +
				`the value is negative`},
		{"a size of zero", bw + " 0 1000 1.00 1.00 0.1\n",
			`read result of perftest, line 2 "0 1000 1.00 1.00 0.1": column #bytes: value "0": not above zero`},
		{"a fractional count", bw + " 2 10.5 1.00 1.00 0.1\n",
			`read result of perftest, line 2 "2 10.5 1.00 1.00 0.1": column #iterations: ` +
				`value "10.5": not a whole number`},
		{"a row that is cut", bw + " 2 1000 1.00\n",
			`read result of perftest, line 2 "2 1000 1.00": the row has 3 fields, the header 5 columns`},
		{"a line that is no row", bw + "segmentation fault\n",
			`read result of perftest, line 2 "segmentation fault": the row has 2 fields, the header 5 columns`},
		{"a column not known", " #bytes #iterations BW peak[furlong] BW average[Gb/sec]\n",
			`read result of perftest, line 1 "#bytes #iterations BW peak[furlong] BW average[Gb/sec]": ` +
				`unknown layout: unknown column at "BW peak[furlong] BW average[Gb/sec]"`},
		{"a column title that goes on", " #bytes #iterations MsgRate[Mpps]x\n",
			`read result of perftest, line 1 "#bytes #iterations MsgRate[Mpps]x": unknown layout: ` +
				`unknown column at "MsgRate[Mpps]x"`},
		{"a column twice", " #bytes #iterations BW average[Gb/sec] BW average[MB/sec]\n",
			`read result of perftest, line 1 "#bytes #iterations BW average[Gb/sec] BW average[MB/sec]": ` +
				`unknown layout: column "BW average[MB/sec]" appears twice`},
		{"no column of sizes", " #iterations BW average[Gb/sec]\n",
			`read result of perftest, line 1 "#iterations BW average[Gb/sec]": unknown layout: ` +
				`column #bytes or #iterations is missing`},
		{"no column of results", " #bytes #iterations CPU_Util[%]\n",
			`read result of perftest, line 1 "#bytes #iterations CPU_Util[%]": unknown layout: ` +
				`neither a bandwidth nor a latency column`},
		{"all samples instead of a summary", "#, usec\n1, 2.5\n",
			`read result of perftest, line 1 "#, usec": unknown layout: unknown column at "#, usec"`},
		{"two tables", bw + " 2 1000 1.00 1.00 0.1\n" + lat, `read result of perftest, line 3 "` +
			strings.TrimSpace(lat) + `": a second table with other columns`},
		{"latencies out of order", lat + " 2 1000 1.00 9.00 2.00 2.00 0.10 3.00 10.00\n",
			`read result of perftest, line 2 "2 1000 1.00 9.00 2.00 2.00 0.10 3.00 10.00": ` +
				`latency_max of 9 us is below latency_p99.9 of 10 us`},
		{"a failed calibration", bw + "Correlation coefficient r^2: 0.83 < 0.9\n 2 1000 1.00 1.00 0.1\n",
			`read result of perftest, line 2 "Correlation coefficient r^2: 0.83 < 0.9": ` +
				`perftest could not calibrate the CPU clock and its figures mean nothing; run it again`},
		{"a failed work request", bw + " Completion with error at client\n",
			`read result of perftest, line 2 "Completion with error at client": a work request failed; ` +
				`look at the state of the RDMA link`},
		{"a failed work request with its status",
			bw + " Completion with error at client\n Failed status 4: wr_id 0 syndrom 0x51\n",
			`read result of perftest, line 3 "Failed status 4: wr_id 0 syndrom 0x51": ` +
				`a work request failed with status 4, local protection error; ` +
				`what to look at: rackless explain "status 4"`},
		{"a status in words", bw + "Failed status transport retry counter exceeded (12) for wr_id 2\n",
			`read result of perftest, line 2 "Failed status transport retry counter exceeded (12) for wr_id 2": ` +
				`a work request failed with status 12, transport retry counter exceeded; ` +
				`what to look at: rackless explain "status 12"`},
		{"a status that is unknown", bw + " Failed status 99: wr_id 0 syndrom 0x0\n",
			`read result of perftest, line 2 "Failed status 99: wr_id 0 syndrom 0x0": ` +
				`a work request failed with status 99, which libibverbs does not know`},
		{"JSON that is cut", `{"results": {"MsgSize": 2`,
			`read result of perftest, line 1 "{\"results\": {\"MsgSize\": 2": the JSON is cut off`},
		{"JSON without results", `{"test_info": {"Mtu": 1024}}`, `read result of perftest: the JSON has no "results"`},
		{"JSON with a figure not known", `{"results": {"MsgSize": 2, "BW_furlongs": 3}}`,
			`read result of perftest, line 1 "BW_furlongs": unknown layout: a figure with this name is not known`},
		{"JSON with a row that is cut", `{"results": {"MsgSize": 2, "n_iterations": 5}}`,
			`read result of perftest, line 1 "2 5": MsgSize, n_iterations or the average is missing`},
		{"JSON with a figure twice", `{"results": {"MsgSize": 2, "t_avg": 5, "t_avg": 6}}`,
			`read result of perftest, line 1 "2 5 6": t_avg appears twice in a row`},
		{"JSON with a zero", `{"results": {"MsgSize": 2, "n_iterations": 5, "t_avg": 0.00}}`,
			`read result of perftest, line 1 "2 5 0.00": column t_avg: value "0.00": ` +
				`a value of zero is a failed measurement`},
		{"JSON that closes too much", `{}}`,
			`read result of perftest, line 1 "}": unknown layout: a bracket that closes nothing`},
		{"JSON too deep", strings.Repeat("{", 20),
			`read result of perftest, line 1 "{": unknown layout: nested too deep`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res, err := ParsePerftest([]byte(tt.in))
			var bad *bench.BadResultError
			if !errors.As(err, &bad) {
				t.Fatalf("got %+v, error %v, want a BadResultError", res, err)
			}
			if err.Error() != tt.want {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

func TestLinesBelowTheTableAreNotRead(t *testing.T) {
	in := string(readFile(t, "testdata/perftest/synthetic-write_bw-4qp-ib-mib.txt"))
	res, err := ParsePerftest([]byte(in + "deallocating GPU buffer 00007fdfc7e00000\n$ ls\n8 " +
		"files\nn1:~#\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Rows) != 1 {
		t.Errorf("%d rows, want 1", len(res.Rows))
	}
}

func TestLongLinesAreShortenedInErrors(t *testing.T) {
	_, err := ParsePerftest([]byte(strings.Repeat("x", 1<<20) + "\xff"))
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("error of %d bytes, want a short one", len(err.Error()))
	}
}

func BenchmarkParsePerftestAllSizes(b *testing.B) {
	in := string(readFile(b, "testdata/perftest/synthetic-send_bw-a-cx5-100g.txt"))
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParsePerftest([]byte(in)); err != nil {
			b.Fatal(err)
		}
	}
}
