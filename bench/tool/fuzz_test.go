package tool

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/rackless/rackless/bench"
)

const largestSeed = 6 << 10

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
		if len(data) <= largestSeed {
			f.Add(data)
		}
	}
}

func checkFigures(t *testing.T, figures []bench.Figure, err error) {
	t.Helper()
	if err != nil {
		var bad *bench.BadResultError
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
		m := bench.MetricOf(f.Metric)
		if math.IsNaN(f.Value) || math.IsInf(f.Value, 0) || f.Value < 0 || f.Value == 0 && !m.Zero {
			t.Fatalf("figure %+v is published", f)
		}
		if f.Metric == "" || f.Unit == "" || f.Bytes < 0 || f.Iterations < 0 {
			t.Fatalf("figure %+v is not complete", f)
		}
	}
	var buf bytes.Buffer
	var samples []bench.Sample
	for _, f := range figures {
		samples = append(samples, bench.Sample{Run: "r", Test: "x", Client: "a", Metric: f.Metric, Bytes: f.Bytes,
			Iterations: f.Iterations, Value: f.Value, Unit: f.Unit, Derived: f.Derived})
	}
	if err := bench.WriteSamples(&buf, samples); err != nil {
		t.Fatalf("figures that cannot be written: %v", err)
	}
	if got, err := bench.ReadSamples(&buf); err != nil || len(got) != len(samples) {
		t.Fatalf("read %d of %d samples back: %v", len(got), len(samples), err)
	}
}

func FuzzParsePerftest(f *testing.F) {
	addSeeds(f, "testdata/perftest/*")
	f.Fuzz(func(t *testing.T, in []byte) {
		res, err := ParsePerftest(in)
		if err != nil {
			checkFigures(t, nil, err)
			return
		}
		if len(res.Rows) == 0 {
			t.Fatal("no row and no error")
		}
		checkFigures(t, res.Figures(), nil)
	})
}

func FuzzParseIperf3(f *testing.F) {
	addSeeds(f, "testdata/iperf3/*")
	f.Fuzz(func(t *testing.T, in []byte) {
		res, err := ParseIperf3(in)
		if err != nil {
			checkFigures(t, nil, err)
			return
		}
		checkFigures(t, res.Figures(), nil)
	})
}

func figuresOf(parse func([]byte) (Tests, error)) func([]byte) ([]bench.Figure, error) {
	return func(in []byte) ([]bench.Figure, error) {
		res, err := parse(in)
		if err != nil {
			return nil, err
		}
		var all []bench.Figure
		for _, t := range res.All {
			if t.Name == "" || t.Err == nil && len(t.Figures) == 0 {
				return nil, fmt.Errorf("test %q has %d figures and no error", t.Name, len(t.Figures))
			}
			if all = append(all, t.Figures...); err == nil {
				err = t.Err
			}
		}
		if len(all) == 0 {
			return nil, err
		}
		return all, nil
	}
}

// parsers must not accept another tool's output.
var parsers = map[string]func([]byte) ([]bench.Figure, error){
	"ping":      ParsePing,
	"sysbench":  readerOf("sysbench_cpu"),
	"stress-ng": readerOf("stress_stream"),
	"ucx":       func(in []byte) ([]bench.Figure, error) { return ParseUCX(in, 8) },
	"libfabric": ParseFiPingpong,
	"iperf3": func(in []byte) ([]bench.Figure, error) {
		res, err := ParseIperf3Text(in)
		if err != nil {
			return nil, err
		}
		return res.Figures(), nil
	},
	"nccl-tests": ParseNCCLTests,
	"osu": func(in []byte) ([]bench.Figure, error) {
		res, err := ParseOSU(in)
		if err == nil && res.Gap != "" {
			err = bench.BadOutput(toolOSU, in, res.Gap) // as the engine says it
		}
		if err != nil {
			return nil, err
		}
		return res.Figures, nil
	},
	"nvbandwidth": func(in []byte) ([]bench.Figure, error) { return ParseNVBandwidth(in, "host_to_device_memcpy_ce") },
	"lmbench":     readerOf("lat_mem_rd"),
	"lammps":      readerOf("lammps"),
	"gromacs":     readerOf("gromacs"),
	"openfoam":    readerOf("openfoam"),
	"hpcc":        readerOf("hpcc"),
	"7-zip":       readerOf("7zip"),
}

func readerOf(engine string) func([]byte) ([]bench.Figure, error) {
	return func(in []byte) ([]bench.Figure, error) {
		e, err := EngineByName(engine)
		if err != nil {
			return nil, err
		}
		tool := e.Plugin.(lineTool)
		p, err := tool.read(in)
		if err != nil {
			return nil, err
		}
		return tool.made(p, in)
	}
}

func FuzzTests(f *testing.F) {
	parse := map[string]func([]byte) ([]bench.Figure, error){"nvbandwidth": figuresOf(ParseNVBandwidths),
		"nccl-tests": figuresOf(func(in []byte) (Tests, error) {
			res, err := ParseNCCLKinds(in)
			for i := range res.All {
				res.All[i].Name = "nccl" + res.All[i].Name
			}
			return res, err
		})}
	for name := range parse {
		files, err := filepath.Glob("testdata/" + name + "/*")
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data[:min(len(data), largestSeed)], name)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte, name string) {
		if read := parse[name]; read != nil {
			figures, err := read(in)
			checkFigures(t, figures, err)
		}
	})
}

func FuzzParsers(f *testing.F) {
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
