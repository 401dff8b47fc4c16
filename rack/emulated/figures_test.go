package emulated

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/bench/tool"
	"github.com/rackless/rackless/rack"
)

// TestFiguresAreThoseThatTheToolPrints reads perftest's output like a user: a sample has the tool's figure, digit by
// digit.
func TestFiguresAreThoseThatTheToolPrints(t *testing.T) {
	p := newPlace(t)
	ctx := limited(t)
	l := parse(t, "figures", 2)
	r, err := rack.Up(ctx, p.Dirs, l, rack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	server, err := r.Endpoint(l.Nodes[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	client, err := r.Endpoint(l.Nodes[1].Name)
	if err != nil {
		t.Fatal(err)
	}
	printed := &recorder{Rack: r}
	runner := &bench.Runner{Exec: printed, Accelerator: r.State.Accel, Emulated: true}
	for _, tt := range []struct {
		engine, metric string
		column         int // from 0, by perftest's documentation: t_typical, "BW average"
	}{
		{"ib_write_lat", bench.MetricLatencyTypical, 4},
		{"ib_write_bw", bench.MetricBWAverage, 3},
	} {
		engine, err := tool.EngineByName(tt.engine)
		if err != nil {
			t.Fatal(err)
		}
		samples, err := runner.Run(ctx, engine, client, server, bench.Options{Bytes: 4096, Iterations: 100})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(samples, func(s bench.Sample) bool { return s.Metric == tt.metric })
		if i < 0 {
			t.Fatalf("%s: no %s among %+v", tt.engine, tt.metric, samples)
		}
		want := printed.column(t, tt.engine, server.Addr.String(), tt.column)
		if got := samples[i]; got.Value != want || got.Error != "" {
			t.Errorf("%s: the sample is %v %s %s, and the tool printed %v", tt.engine, got.Value, got.Unit, got.Error,
				want)
		}
	}
}

type recorder struct {
	*rack.Rack
	mu  sync.Mutex
	all []recorded
}

type recorded struct {
	argv   []string
	stdout string
}

func (r *recorder) Exec(ctx context.Context, node string, argv []string) (bench.Output, error) {
	return r.Serve(ctx, node, argv, nil)
}

func (r *recorder) Serve(ctx context.Context, node string, argv []string, awaited <-chan struct{}) (bench.Output,
	error) {
	out, err := r.Rack.Serve(ctx, node, argv, awaited)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, recorded{argv, string(out.Stdout)})
	return out, err
}

// column reads the last table: earlier attempts gave no figure.
func (r *recorder) column(t *testing.T, tool, server string, column int) float64 {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range slices.Backward(r.all) {
		if !slices.Contains(c.argv, tool) || !slices.Contains(c.argv, server) {
			continue
		}
		lines := strings.Split(c.stdout, "\n")
		at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "#bytes") })
		if at < 0 || at+1 >= len(lines) {
			t.Fatalf("%q printed no table:\n%s", c.argv, c.stdout)
		}
		v, err := strconv.ParseFloat(strings.Fields(lines[at+1])[column], 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	t.Fatalf("no client ran %s to %s", tool, server)
	return 0
}
