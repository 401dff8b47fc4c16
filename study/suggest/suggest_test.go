package suggest

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/rackless/rackless/rdma/simulate"
	"github.com/rackless/rackless/study/stats"
)

const incast = `topology: {form: star, hosts: 9, rate: 100Gbit, delay: 1us}
switch: {buffer: 2MiB, ecn: "1KiB:4KiB:100%"}
traffic: [{pattern: incast, to: h0, senders: 8, bytes: 512KiB}]
`

func search(t *testing.T, ctx context.Context, text string, o Options) *Suggestion {
	t.Helper()
	s, err := Search(ctx, "test.yaml", []byte(text), nil, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Marks far too early are moved, the effect of that is measured with other seeds than the search had, and the same
// search gives the same bytes.
func TestSearch(t *testing.T) {
	s := search(t, t.Context(), incast, Options{Trials: 20})
	if s.Trials < 20 || !slices.Contains(s.Searched, "rp_time_reset") || len(s.Changes) == 0 || s.Seeds < 8 {
		t.Fatalf("%+v", s)
	}
	if e := s.Totals[0]; e.Estimate >= 1 || e.Low == nil || e.Verdict != stats.Better {
		t.Errorf("%+v", s.Totals[0])
	}
	if plainOf(s, "ECN Kmin") == "" || plainOf(s, "headroom") == "" || plainOf(s, "XOFF, one port alone") == "" {
		t.Errorf("values of a switch: %+v", s.Switch)
	}
	if !slices.Contains(s.Host, "mlnx_qos -i eth0 --pfc 0,0,0,1,0,0,0,0") ||
		!slices.Contains(s.Host, "cma_roce_tos -d mlx5_0 -t 106") {
		t.Errorf("commands of a host: %q", s.Host)
	}
	small := strings.Replace(incast, "512KiB", "64KiB", 1)
	a, _ := json.Marshal(search(t, t.Context(), small, Options{Trials: 5}))
	if b, _ := json.Marshal(search(t, t.Context(), small, Options{Trials: 5})); string(a) != string(b) {
		t.Errorf("twice the same search:\n%s\n%s", a, b)
	}
}

func plainOf(s *Suggestion, name string) string {
	for _, p := range s.Switch {
		if p.Name == name {
			return p.Value
		}
	}
	return ""
}

// A search that is ended gives what it has until then.
func TestSearchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	trials := 0
	s := search(t, ctx, incast, Options{Trials: 100, Progress: func(string) {
		if trials++; trials == 4 {
			cancel()
		}
	}})
	if !s.Stopped || s.Trials < 2 || s.Trials > 6 || s.Seeds != 0 {
		t.Errorf("%+v", s)
	}
	if s = search(t, t.Context(), incast, Options{Trials: 100, Enough: func() bool { return true }}); !s.Stopped ||
		s.Trials != 1 || len(s.Changes) != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := Search(ctx, "test.yaml", []byte(incast), nil, Options{Trials: 5}); err == nil {
		t.Error("no error without a single trial")
	}
}

// Only what has an effect in a file is searched: without congestion control no marks and timers, without PFC no resume.
func TestSearched(t *testing.T) {
	const star = "topology: {form: star, hosts: 4, rate: 25Gbit}\n" +
		"traffic: [{pattern: incast, to: h0, senders: 3, bytes: 64KiB}]\n"
	for _, c := range []struct{ text, want, not string }{
		{star + "nic: {congestion: none}\n", "alpha resume", "kmin"},
		{star + "switch: {pfc: none}\n", "kmin kmax pmax alpha", "resume"},
		{star, "kmin kmax pmax alpha resume rp_time_reset", "rp_gd"},
	} {
		s := search(t, t.Context(), c.text, Options{Trials: 2})
		got := strings.Join(s.Searched, " ")
		if !strings.HasPrefix(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%s: searched %s, want %s", c.text, got, c.want)
		}
	}
	// A lab file has the keys below simulation.
	s := search(t, t.Context(), "name: pair\nnodes: {vm: {count: 3}}\n", Options{Trials: 2})
	if s.Trials != 2 || s.Name != "pair" {
		t.Errorf("%+v", s)
	}
	if _, err := Search(t.Context(), "test.yaml", []byte(star+"until: 1us"), nil, Options{Trials: 2}); err == nil ||
		!strings.Contains(err.Error(), "raise until") {
		t.Errorf("flows that do not end: %v", err)
	}
}

// Neighbours stay in the range of each parameter, and change what the direction says.
func TestMoves(t *testing.T) {
	c, err := simulate.Parse("test.yaml", []byte(incast), nil)
	if err != nil {
		t.Fatal(err)
	}
	v := own(c)
	if got := moves(v, both, []float64{4, 1}); len(got) != 1 || got[0][kmin] != 4<<10 || got[0][kmax] != 16<<10 {
		t.Errorf("both thresholds: %v", got)
	}
	if got := moves(v, kmin, []float64{8}); len(got) != 0 {
		t.Errorf("Kmin above Kmax: %v", got)
	}
	if got := moves(v, pmax, []float64{4, 0.25}); len(got) != 1 || math.Abs(got[0][pmax]-0.25) > 1e-9 {
		t.Errorf("Pmax: %v", got)
	}
	if keys := v.keys(v); len(keys) != 0 {
		t.Errorf("keys of the file's own values: %v", keys)
	}
}
