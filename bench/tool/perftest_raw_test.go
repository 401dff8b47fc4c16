package tool

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

const rawHead = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]" +
	"   99% percentile[usec]   99.9% percentile[usec] \n"

// rawText has the form of ib_write_lat of perftest 4.5 with -n 4 -s 2 -U; the figures are made up.
const rawText = `---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Connection type : RC		Using SRQ      : OFF
---------------------------------------------------------------------------------------
` + rawHead + `#, usec
1, 412.25
2, 398.5
3, 1207
---------------------------------------------------------------------------------------
` + rawHead + ` 2       4          398.50         1207.00      412.25     	       672.58` +
	"       \t377.99 \t\t1207.00     \t\t1207.00" + `
---------------------------------------------------------------------------------------
`

func TestSingleLatenciesAreReadAndTheTableAsWithoutThem(t *testing.T) {
	t.Parallel()
	e, err := EngineByName("ib_write_lat")
	if err != nil {
		t.Fatal(err)
	}
	figures, err := e.ParseOutput(bench.Output{Stdout: []byte(rawText)}, bench.Options{Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range figures {
		if f.Metric != bench.MetricLatencyTypical {
			if f.Latencies != nil {
				t.Errorf("%s has latencies", f.Metric)
			}
			continue
		}
		found = true
		if !slices.Equal(f.Latencies, []float64{412.25, 398.5, 1207}) || f.Value != 412.25 || f.Bytes != 2 {
			t.Errorf("got %+v", f)
		}
	}
	if !found {
		t.Error("there is no median")
	}
	if args := strings.Join(mustArgs(t, e, bench.Options{Raw: true, Port: 1, Bytes: 2}), " "); !strings.Contains(args,
		" -U") {
		t.Errorf("%s: want -U", args)
	}
	bw, err := EngineByName("ib_write_bw")
	if err != nil {
		t.Fatal(err)
	}
	if args := strings.Join(mustArgs(t, bw, bench.Options{Raw: true, Port: 1, Bytes: 2}), " "); strings.Contains(args,
		"-U") {
		t.Errorf("%s: a bandwidth has no latencies", args)
	}
}

func mustArgs(t *testing.T, e bench.Engine, o bench.Options) []string {
	t.Helper()
	p, ok := e.Plugin.(perftest)
	if !ok {
		t.Fatalf("%s is no perftest", e.Name)
	}
	return p.args(bench.Endpoint{Device: "rxe0", GIDIndex: 1}, o)
}

func TestAListOfLatenciesThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	e, err := EngineByName("ib_write_lat")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, old, new, want string }{
		{"no list", "#, usec\n1, 412.25\n2, 398.5\n3, 1207\n", "", "is missing"},
		{"the clock was not calibrated", "2, 398.5", "2, inf", "no latency: above 0 and finite"},
		{"zero", "2, 398.5", "2, 0", "no latency: above 0 and finite"},
		{"not a number", "2, 398.5", "2, nan", "no latency: above 0 and finite"},
		{"garbage", "2, 398.5", "2, 39x", "no number"},
		{"a decimal comma", "2, 398.5", "2, 398,5", "no number"},
		{"one is missing", "2, 398.5\n", "", "want latency number 2"},
		{"cut off", "3, 1207\n---", "3, 12", "is cut off"},
		{"nothing in it", "1, 412.25\n2, 398.5\n3, 1207\n", "", "is cut off"},
		{"a second one", "3, 1207\n", "3, 1207\n#, usec\n", "a second list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(rawText, tt.old, tt.new, 1)
			if tt.name == "cut off" {
				text = text[:strings.Index(text, "3, 12")+5]
			}
			_, err := e.ParseOutput(bench.Output{Stdout: []byte(text)}, bench.Options{Raw: true})
			var bad *bench.BadResultError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestATableWithAListKeepsItsLineNumbers(t *testing.T) {
	t.Parallel()
	_, err := ParsePerftest([]byte(strings.Replace(rawText, "672.58", "672,58", 1)))
	var bad *bench.BadResultError
	if !errors.As(err, &bad) || bad.Line != 12 {
		t.Errorf("got %v, want an error in line 12", err)
	}
}

func FuzzLatencyList(f *testing.F) {
	f.Add([]byte(rawText))
	f.Fuzz(func(t *testing.T, text []byte) {
		res, err := parsePerftestText(text)
		if err != nil || len(res.Latencies) == 0 {
			return
		}
		if len(res.Rows) != 1 || slices.Min(res.Latencies) <= 0 {
			t.Fatalf("%d latencies from %v us on, and %d rows", len(res.Latencies), slices.Min(res.Latencies),
				len(res.Rows))
		}
	})
}
