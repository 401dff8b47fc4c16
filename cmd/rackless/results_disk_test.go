package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/results"
)

// TestAFullDiskLosesNoFigures fills the disk before a result is written, or during any of its files: figures are shown,
// the error has a remedy, and no partial result remains.
func TestAFullDiskLosesNoFigures(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a small file system takes root")
		}
		t.Skip("mounting a small file system takes root")
	}
	dir := t.TempDir()
	const size = 2 << 20
	if err := syscall.Mount("rackless-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount a small file system: %v", err)
		}
		t.Skipf("mount a small file system: %v", err) // a container may forbid this
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	data := record.Record{Lab: "pair", Generated: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}
	for i := range 300 {
		data.Samples = append(data.Samples, bench.Sample{Run: fmt.Sprint("r-", i), Test: "ib_write_bw", Client: "vm01",
			Server: "vm00", Metric: bench.MetricBWAverage, Bytes: 65536, Value: 24.5,
			Unit: bench.UnitGbps, Tool: "perftest", Version: "6.06", Started: data.Generated})
	}
	whole, err := results.Store{Data: t.TempDir()}.Save(data, report.Page)
	if err != nil {
		t.Fatal(err)
	}
	length := map[string]int64{}
	for _, name := range []string{results.SamplesFile, "report.json", results.PageFile} {
		info, err := os.Stat(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		length[name] = info.Size()
	}
	ballast := filepath.Join(dir, "ballast")
	for _, tt := range []struct {
		free int64 // bytes
		file string
	}{
		{0, results.SamplesFile}, {length[results.SamplesFile] / 2, results.SamplesFile},
		{length[results.SamplesFile] + length["report.json"]/2,
			"report.json"},
		{length[results.SamplesFile] + length["report.json"] + length[results.PageFile]/2, results.PageFile},
	} {
		if err := os.WriteFile(ballast, make([]byte, size-tt.free), 0o600); err != nil &&
			!errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		for format, figure := range map[string]string{"": "ib_write_bw 24.5 Gb/s", "json": `"value":24.5,`} {
			a, out, _ := testApp(t)
			err := a.keepMeasured(results.Store{Data: dir}, data, benchFlags{output: format})
			if !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(),
				"the figures above are not kept: results: ") || !strings.Contains(err.Error(),
				tt.file+": no space left on device") ||
				!strings.HasSuffix(err.Error(), "; free space there, or set RACKLESS_DATA to a directory with more") {
				t.Errorf("%d bytes are free: %v", tt.free, err)
			}
			if code, _ := exitCode(err); code != 1 {
				t.Errorf("%d bytes are free: exit status %d", tt.free, code)
			}
			if !strings.Contains(out.String(), figure) || strings.Contains(out.String(), "results: ") {
				t.Errorf("%d bytes are free, and %q is printed:\n%s", tt.free, format, out)
			}
		}
		if left, err := os.ReadDir(filepath.Join(dir, "results", "pair")); err != nil || len(left) > 0 {
			t.Errorf("%d bytes are free: left %v, error %v", tt.free, left, err)
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
	a, out, _ := testApp(t)
	if err := a.keepMeasured(results.Store{Data: dir}, data, benchFlags{}); err != nil ||
		!strings.Contains(out.String(),
			"results: "+dir) {
		t.Errorf("with space again: %v\n%s", err, out)
	}
	if all, err := (results.Store{Data: dir}).List("pair"); err != nil || len(all) != 1 {
		t.Errorf("results %v, error %v", all, err)
	}
}
