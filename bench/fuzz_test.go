package bench

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// addSeeds gives the fuzzer all fixtures of a folder; testdata/fuzz holds what it has found besides.
func addSeeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds at %s: %v", pattern, err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// checkFigures tells whether what a parser let through may be published.
func checkFigures(t *testing.T, figures []Figure, err error) {
	t.Helper()
	if err != nil {
		var bad *BadResultError
		if !errors.As(err, &bad) {
			t.Fatalf("error %v is not a BadResultError", err)
		}
		if len(err.Error()) > 3000 {
			t.Fatalf("error of %d bytes", len(err.Error()))
		}
		return
	}
	if len(figures) == 0 {
		t.Fatal("no figure and no error")
	}
	for _, f := range figures {
		m := MetricOf(f.Metric)
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Value < 0 || f.Value == 0 && !m.Zero {
			t.Fatalf("figure %+v is published", f)
		}
		if f.Metric == "" || f.Unit == "" || f.Bytes < 0 || f.Iterations < 0 {
			t.Fatalf("figure %+v is not complete", f)
		}
	}
	var buf bytes.Buffer
	samples := (&measurement{}).samples(goodSample(), figures)
	if err := WriteSamples(&buf, samples); err != nil {
		t.Fatalf("figures that cannot be written: %v", err)
	}
	if got, err := ReadSamples(&buf); err != nil || len(got) != len(samples) {
		t.Fatalf("read %d of %d samples back: %v", len(got), len(samples), err)
	}
}

func FuzzParsePerftest(f *testing.F) {
	addSeeds(f, "testdata/perftest/*")
	f.Fuzz(func(t *testing.T, in []byte) {
		res, err := ParsePerftest(bytes.NewReader(in))
		if err != nil {
			checkFigures(t, nil, err)
			return
		}
		// A table of nothing but figures that were not measured has rows without figures; engines refuse it.
		if len(res.Rows) == 0 {
			t.Fatal("no row and no error")
		}
		checkFigures(t, res.Figures(), nil)
	})
}

func FuzzParseIperf3(f *testing.F) {
	addSeeds(f, "testdata/iperf3/*")
	f.Fuzz(func(t *testing.T, in []byte) {
		res, err := ParseIperf3(bytes.NewReader(in))
		if err != nil {
			checkFigures(t, nil, err)
			return
		}
		checkFigures(t, res.Figures(), nil)
	})
}

// The parsers of one table, line or sum. FuzzParsers gives each the same input: none may take
// another tool's output for its own.
var parsers = map[string]func([]byte) ([]Figure, error){
	"ping": ParsePing,
	"sysbench": func(in []byte) ([]Figure, error) {
		if _, figures, err := ParseSysbenchMemory(in); err == nil {
			return figures, nil
		}
		return ParseSysbenchCPU(in, 0)
	},
	"stress-ng": func(in []byte) ([]Figure, error) { return ParseStressStream(in, 0) },
	"ucx":       func(in []byte) ([]Figure, error) { return ParseUCX(in, 8) },
	"libfabric": ParseFiPingpong,
	"iperf3": func(in []byte) ([]Figure, error) {
		res, err := ParseIperf3Text(in)
		if err != nil {
			return nil, err
		}
		return res.Figures(), nil
	},
	"nccl-tests": ParseNCCLTests,
	"osu": func(in []byte) ([]Figure, error) {
		res, err := ParseOSU(in)
		if err != nil {
			return nil, err
		}
		return res.Figures, nil
	},
	"nvbandwidth": func(in []byte) ([]Figure, error) { return ParseNVBandwidth(in, "host_to_device_memcpy_ce") },
	"lmbench":     ParseLatMemRd,
	"7-zip":       func(in []byte) ([]Figure, error) { return Parse7Zip(in, 0) },
}

func FuzzParsers(f *testing.F) {
	f.Add([]byte("Block size: 1K\noperation: read\n1.00 MiB transferred (22035.50 MiB/sec)\n"))
	for name := range parsers {
		addSeeds(f, "testdata/"+name+"/*")
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		took := 0
		for _, parse := range parsers {
			figures, err := parse(in)
			checkFigures(t, figures, err)
			if err == nil {
				took++
			}
		}
		if took > 1 {
			t.Fatalf("%d tools are said to have printed this", took)
		}
	})
}
