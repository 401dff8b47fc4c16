package conduct_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
)

// BenchmarkReportOfAMillionFigures reads, analyses and writes 1,000 runs with 1,000 figures each.
func BenchmarkReportOfAMillionFigures(b *testing.B) {
	const blocks, perRun = 250, 1000
	spec, err := study.Parse("s.yaml", fmt.Appendf(nil,
		"name: s\nlab: l\nblocks: %d\nfactors: {placement: [default, pin]}\nmeasure: [{test: ib_write_bw, metrics: "+
			"[bw_average]}, {test: ib_write_lat, metrics: [latency_p99]}]\n", blocks))
	if err != nil {
		b.Fatal(err)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		b.Fatal(err)
	}
	db, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "s.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	s := &store.Study{Name: "s", Spec: text, Created: time.Unix(0, 0)}
	if err := db.Create(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	samples := make([]store.Sample, perRun)
	for block := 1; block <= blocks; block++ {
		for _, planned := range spec.Block(block) {
			r := &study.Observation{Block: block, Place: planned.Place, Attempt: 1,
				Cell: spec.Settings(planned.Cell), Started: time.Unix(int64(10*block), 0)}
			if err := db.Begin(b.Context(), s.ID, r); err != nil {
				b.Fatal(err)
			}
			for i := range samples {
				samples[i] = store.Sample{Test: "ib_write_bw", Metric: []string{"bw_average", "message_rate"}[i%2],
					Bytes: 2 << (i / 2 % 23), Value: 1 + rng.Float64()/10, Unit: []string{"Gb/s", "Mpps"}[i%2]}
				if i%10 == 0 {
					samples[i] = store.Sample{Test: "ib_write_lat", Metric: "latency_p99", Bytes: 2,
						Value: 5 + rng.Float64(), Unit: "us"}
				}
			}
			r.Status = study.StatusDone
			if err := db.End(b.Context(), r, samples); err != nil {
				b.Fatal(err)
			}
		}
	}
	for name, write := range map[string]func(*study.Document) error{
		"text": func(d *study.Document) error { return studyview.Text(io.Discard, d, studyview.Options{}) },
		"page": func(d *study.Document) error { return studyview.Page(io.Discard, d) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				rec, err := conduct.Load(b.Context(), db, "s")
				if err != nil {
					b.Fatal(err)
				}
				result, err := study.Analyse(rec.Data)
				if err != nil {
					b.Fatal(err)
				}
				if err := write(&study.Document{Result: result, Data: rec.Data}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
