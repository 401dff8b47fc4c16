package tool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rackless/rackless/bench"
)

func TestIperf3OutputsOfSeveralReleases(t *testing.T) {
	seven, eight, none := int64(7), int64(8), int64(0)
	at := func(year int, month time.Month, day, hour, minute, second int) time.Time {
		return time.Date(year, month, day, hour, minute, second, 0, time.UTC)
	}
	tests := []struct {
		name, in string
		want     Iperf3Result
	}{
		{"3.0 TCP", "thiezn-3.0.11.json", Iperf3Result{Version: "3.0.11", Protocol: "TCP", Streams: 1,
			Started: at(2017, 6, 28, 15, 31, 28), Throughput: 0.934268, Retransmits: &none}},
		{"3.12 TCP", "recorded-3.12-tcp.json", Iperf3Result{Version: "3.12", Protocol: "TCP", Streams: 1,
			Started: at(2026, 11, 21, 20, 40, 59), Throughput: 28.32507950467354, Retransmits: &seven}},
		{"3.12 UDP", "recorded-3.12-udp.json", Iperf3Result{Version: "3.12", Protocol: "UDP", Streams: 1,
			Started: at(2026, 11, 21, 20, 41, 1), Throughput: 0.020175060994685642}},
		{"3.12 reverse, two streams", "recorded-3.12-reverse-2streams.json", Iperf3Result{Version: "3.12",
			Protocol: "TCP", Streams: 2, Reverse: true, Started: at(2026, 11, 21, 20, 41, 3),
			Throughput: 29.260888007575822, Retransmits: &eight}},
		{
			"early UDP prints what was sent, and a quarter of it was lost",
			`{"start":{"version":"iperf 3.1.3","test_start":{"protocol":"UDP","num_streams":1,"reverse":0}},
			 "end":{"sum":{"bits_per_second":1e9,"jitter_ms":0.01,"lost_packets":25,"packets":100,"lost_percent":25}}}`,
			Iperf3Result{Version: "3.1.3", Protocol: "UDP", Streams: 1, Throughput: 0.75},
		},
		{
			"a clock that is set to no time of ours",
			`{"start":{"version":"iperf 3.17.1","timestamp":{"timesecs":9000000000000000000},
			  "test_start":{"protocol":"TCP","num_streams":1,"reverse":0}},
			 "end":{"sum_received":{"bits_per_second":1e9}}}`,
			Iperf3Result{Version: "3.17.1", Protocol: "TCP", Streams: 1, Throughput: 1},
		},
		{
			"a system that counts no retransmits",
			`{"start":{"version":"iperf 3.17.1","test_start":{"protocol":"TCP","num_streams":1,"reverse":0}},
			 "end":{"sum_sent":{"bits_per_second":2e9},"sum_received":{"bits_per_second":1e9}}}`,
			Iperf3Result{Version: "3.17.1", Protocol: "TCP", Streams: 1, Throughput: 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			if !strings.HasPrefix(in, "{") {
				in = string(readFile(t, "testdata/iperf3/"+in))
			}
			got, err := ParseIperf3([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIperf3FiguresHaveTheirUnits(t *testing.T) {
	zero := int64(0)
	got := (&Iperf3Result{Throughput: 0.43, Retransmits: &zero}).Figures()
	want := []bench.Figure{{Metric: bench.MetricThroughput, Value: 0.43, Unit: bench.UnitGbps},
		{Metric: bench.MetricRetransmits, Value: 0, Unit: bench.UnitSegments}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("no retransmit is a result, not a failure (-want +got):\n%s", diff)
	}
	if got := (&Iperf3Result{Throughput: 1}).Figures(); len(got) != 1 {
		t.Errorf("retransmits that were not counted are reported: %v", got)
	}
}

func TestIperf3OutputThatIsNoResultIsRefused(t *testing.T) {
	const start = `{"start":{"version":"iperf 3.12","test_start":{"protocol":"TCP","num_streams":1,"reverse":0}},"end":`
	whole := string(readFile(t, "testdata/iperf3/recorded-3.12-tcp.json"))
	tests := []struct{ name, in, want string }{
		{"nothing", "", `read result of iperf3, line 1: the JSON is cut off`},
		{"text", "iperf3: error - unable to connect\n",
			`read result of iperf3, line 1 "i": not the JSON of iperf3: ` +
				`invalid character 'i' looking for beginning of value`},
		{"a refused connection", string(readFile(t, "testdata/iperf3/recorded-3.12-refused.json")),
			`read result of iperf3: unable to connect to server: Connection refused`},
		{"half of the output", whole[:len(whole)/2], `the JSON is cut off`},
		{"more than the output", whole + "{}", `more follows the JSON object`},
		{"an array", "[]",
			`read result of iperf3, line 1 "[": not the JSON of iperf3: json: cannot unmarshal array into Go value ` +
				`of type tool.iperf3Output`},
		{"a test that did not begin", `{"start":{},"end":{}}`,
			`read result of iperf3: start.test_start is missing: the test did not begin`},
		{"a test that did not end", start + `{}}`,
			`read result of iperf3: the receiver's sum is missing: the test did not end`},
		{"nothing received", start + `{"sum_received":{"bits_per_second":0}}}`,
			`read result of iperf3: throughput at the receiver: a value of zero is a failed measurement`},
		{"less than nothing received", start + `{"sum_received":{"bits_per_second":-1}}}`,
			`read result of iperf3: throughput at the receiver: the value is negative`},
		{"not a number", start + `{"sum_received":{"bits_per_second":nan}}}`, `invalid character 'a' in literal null`},
		{"too large a number", start + `{"sum_received":{"bits_per_second":1e999}}}`, `cannot unmarshal number 1e999`},
		{"retransmits below zero", start + `{"sum_sent":{"retransmits":-1},"sum_received":{"bits_per_second":1}}}`,
			`read result of iperf3: -1 retransmits is impossible`},
		{"a protocol not known", strings.Replace(start, "TCP", "SCTP", 1) + `{"sum_received":{"bits_per_second":1}}}`,
			`read result of iperf3: unknown protocol "SCTP"`},
		{"more packets lost than sent", strings.Replace(start, "TCP", "UDP", 1) +
			`{"sum":{"bits_per_second":1,"packets":1,"lost_packets":2}}}`,
			`read result of iperf3: 2 packets lost of 1 is impossible`},
		{"all packets lost", strings.Replace(start, "TCP", "UDP", 1) +
			`{"sum":{"bits_per_second":1,"packets":2,"lost_packets":2}}}`,
			`read result of iperf3: throughput at the receiver: a value of zero is a failed measurement`},
		{"a server's output", strings.Replace(start, `"version"`, `"accepted_connection":{"host":"10.0.0.1"},"version"`,
			1) + `{}}`, `read result of iperf3: this is a server's output; give the client's`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseIperf3([]byte(tt.in))
			var bad *bench.BadResultError
			if !errors.As(err, &bad) {
				t.Fatalf("got %+v, error %v, want a BadResultError", got, err)
			}
			if !strings.HasSuffix(err.Error(), tt.want) && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %s\nwant %s", err, tt.want)
			}
		})
	}
}

func TestIperf3TextOfSeveralReleases(t *testing.T) {
	four, zero := int64(4), int64(0)
	for _, tt := range []struct {
		file string
		want Iperf3Result
	}{
		{"recorded-3.12-tcp.txt", Iperf3Result{Protocol: "TCP", Streams: 1, Throughput: 18.5, Retransmits: &four}},
		{"recorded-3.12-reverse-2streams.txt", Iperf3Result{Protocol: "TCP", Streams: 2, Reverse: true,
			Throughput: 19.3, Retransmits: &four}},
		{"recorded-3.12-udp.txt", Iperf3Result{Protocol: "UDP", Streams: 1, Throughput: 0.0499}},
		{"recorded-3.12-udp-2streams.txt", Iperf3Result{Protocol: "UDP", Streams: 2, Throughput: 8.2}},
		{"synthetic-3.0-tcp.txt", Iperf3Result{Version: "3.0.11", Protocol: "TCP", Streams: 1, Throughput: 9.42,
			Retransmits: &zero}},
		// a quarter of it was lost
		{"synthetic-3.0-udp.txt", Iperf3Result{Protocol: "UDP", Streams: 1, Throughput: 0.75 * 0.000_105}},
	} {
		got, err := ParseIperf3Text(readFile(t, "testdata/iperf3/"+tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		if diff := cmp.Diff(&tt.want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.file, diff)
		}
	}
}

func TestIperf3TextThatIsNoResultIsRefused(t *testing.T) {
	whole := string(readFile(t, "testdata/iperf3/recorded-3.12-tcp.txt"))
	two, late, udp := string(readFile(t, "testdata/iperf3/recorded-3.12-reverse-2streams.txt")),
		string(readFile(t, "testdata/iperf3/recorded-3.12-udp.txt")),
		string(readFile(t, "testdata/iperf3/synthetic-3.0-udp.txt"))
	swap := func(in, old, new string) string {
		if strings.Count(in, old) == 0 {
			t.Fatalf("%q is not there", old)
		}
		return strings.Replace(in, old, new, 1)
	}
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", "the receiver's row is missing"},
		{"ended before its time", string(readFile(t, "testdata/iperf3/recorded-3.12-bad-ended.txt")),
			"the receiver's row is missing, or has nothing in it: the test did not end"},
		{"cut off", whole[:strings.LastIndex(whole, "[  5]")], "the receiver's row is missing"},
		{"cut off in its last row", whole[:strings.Index(whole, "receiver")],
			"neither the sender's row nor the receiver's"},
		{"cut off before the sum", two[:strings.Index(two, "[SUM]   0.00-2.00   sec  4.49")], "the test did not end"},
		{"cut off before the receiver's sum", two[:strings.LastIndex(two, "[SUM]")], "the test did not end"},
		{"UDP, cut off in the sender's row", late[:strings.Index(late, "  sender")],
			"neither the sender's row nor the receiver's"},
		{"UDP, cut off in the receiver's row", late[:strings.LastIndex(late, "eiver")],
			"neither the sender's row nor the receiver's"},
		{"given up", "Connecting to host 10.0.0.1, port 5201\niperf3: error - control socket has closed unexpectedly\n",
			`line 2 "iperf3: error - control socket has closed unexpectedly": iperf3 gave up`},
		{"a server's", swap(whole, "Connecting to host 127.0.0.1, port 5999",
			"Accepted connection from 127.0.0.1, port 4"), "this is a server's output"},
		{"two runs", whole + whole, `line 12 "Connecting to host 127.0.0.1, port 5999": another run begins`},
		{"both ways", strings.ReplaceAll(whole, "[ ID] Interval", "[ ID][Role] Interval"),
			"not those of a test one way"},
		{"a rate that its amount does not give", swap(whole, "2.01   sec  4.31 GBytes  18.5",
			"2.01   sec  4.31 GBytes  81.5"), "4.31 GBytes in 0.00 to 2.01 s are not 81.5 Gbits/sec"},
		{"a decimal comma", strings.ReplaceAll(whole, "18.5", "18,5"), `value "18,5": not a decimal number`},
		{"another unit", strings.ReplaceAll(whole, "Gbits/sec", "GBytes/sec"),
			`"18.5" "GBytes/sec" is no quantity of this column`},
		{"retransmits below zero", swap(whole, "4             sender", "-4            sender"),
			`column Retr: value "-4"`},
		{"no time", swap(whole, "0.00-2.01", "0.00-0.00"), "are not 18.5 Gbits/sec"},
		{"more lost than sent", swap(udp, "4/16 (25%)", "17/16 (106%)"), `column Lost/Total: "17/16" is impossible`},
		{"all lost", swap(udp, "4/16 (25%)", "16/16 (100%)"), "the test did not end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseIperf3Text([]byte(tt.in))
			var bad *bench.BadResultError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %+v, error %v\nwant %s", got, err, tt.want)
			}
		})
	}
}
