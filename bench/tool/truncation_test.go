package tool

import (
	"bytes"
	"errors"
	"maps"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/bench"
)

// The rest is refused, or lacks only characters below the last row.
func TestNoPrefixOfAnOutputGivesWrongFigures(t *testing.T) {
	tests := []struct{ engine, file string }{
		{"ib_write_bw", "perftest/recorded-6.06-rxe-tcg-write_bw-a.txt"},
		{"ib_write_bw", "perftest/recorded-6.06-rxe-tcg-write_bw-a.json"},
		{"ib_write_lat", "perftest/recorded-6.06-rxe-tcg-write_lat.txt"},
		{"ib_send_bw", "perftest/synthetic-send_bw-a-cx5-100g.txt"},
		{"ib_write_bw", "perftest/synthetic-json-valid.json"},
		{"iperf3", "iperf3/recorded-3.12-tcp.json"},
		{"iperf3", "iperf3/recorded-3.12-udp.json"},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			e := mustEngine(t, tt.engine)
			whole := readFile(t, "testdata/"+tt.file)
			want, err := e.Parse(whole)
			if err != nil {
				t.Fatal(err)
			}
			refused := 0
			for n := range whole {
				got, err := e.Parse(whole[:n])
				var bad *bench.BadResultError
				switch {
				case errors.As(err, &bad):
					refused++
				case err != nil:
					t.Fatalf("%d bytes: error %v is not a BadResultError", n, err)
				case !cmp.Equal(want, got):
					t.Fatalf("%d of %d bytes give other figures:\n%s", n, len(whole), cmp.Diff(want, got))
				}
			}
			// The ruler has 87 dashes, and three are enough.
			if least := len(whole) - 90; refused < least {
				t.Errorf("%d of %d prefixes refused, want %d or more", refused, len(whole), least)
			}
		})
	}
}

// A node's serial console sends a carriage return with every line feed.
func TestLineEndsOfATerminalDoNotMatter(t *testing.T) {
	for _, tt := range []struct{ engine, file string }{
		{"ib_write_bw", "perftest/recorded-6.06-rxe-tcg-write_bw-a.txt"},
		{"ib_read_lat", "perftest/recorded-6.06-rxe-tcg-read_lat.txt"},
		{"iperf3", "iperf3/recorded-3.12-tcp.json"},
	} {
		e := mustEngine(t, tt.engine)
		in := readFile(t, "testdata/"+tt.file)
		want, err := e.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Parse(bytes.ReplaceAll(in, []byte("\n"), []byte("\r\n")))
		if err != nil {
			t.Fatalf("%s: %v", tt.file, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.file, diff)
		}
	}
}

// An executor with one stream joins stderr to stdout.
func TestWarningsBetweenHeaderAndRowAreKept(t *testing.T) {
	for _, warning := range []string{
		"Conflicting CPU frequency values detected: 1500.000000 != 3100.000000. CPU Frequency is not max.",
		"Requested SQ size might be too big. Try reducing TX depth and/or inline size.",
		"WARNING: BW peak won't be measured in this run.",
		"Warning: Large message requested and CQ moderation enabled",
	} {
		in := " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]\n" + warning +
			"\n 65536 350 0.24 0.23 0.000439\n"
		res, err := ParsePerftest([]byte(in))
		if err != nil {
			t.Errorf("%s: %v", warning, err)
			continue
		}
		if len(res.Rows) != 1 || len(res.Warnings) != 1 || res.Warnings[0] != warning {
			t.Errorf("rows %v, warnings %q, want one row and %q", res.Rows, res.Warnings, warning)
		}
	}
}

// A parser must not stop at the comma.
func TestDigitsOfAnotherLocaleAreNoOtherFigures(t *testing.T) {
	point := regexp.MustCompile(`([0-9])\.([0-9])`)
	for dir, parse := range localeParsers() {
		files, err := filepath.Glob("testdata/" + dir + "/*")
		if err != nil || len(files) == 0 {
			t.Fatalf("no outputs of %s: %v", dir, err)
		}
		refused := 0
		for _, file := range files {
			in := readFile(t, file)
			want, err := parse(in)
			if err != nil {
				continue
			}
			got, err := parse(point.ReplaceAll(in, []byte("$1,$2")))
			if err != nil {
				refused++
				continue
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s gives other figures with commas (-want +got):\n%s", file, diff)
			}
		}
		if refused == 0 && dir != "7-zip" { // its figures are whole numbers
			t.Errorf("%s: of %d outputs with commas none is refused", dir, len(files))
		}
	}
}

func localeParsers() map[string]func([]byte) ([]bench.Figure, error) {
	all := maps.Clone(parsers)
	all["iperf3"] = func(in []byte) ([]bench.Figure, error) {
		res, err := ParseIperf3(in)
		if err != nil {
			return nil, err
		}
		return res.Figures(), nil
	}
	all["perftest"] = func(in []byte) ([]bench.Figure, error) {
		res, err := ParsePerftest(in)
		if err != nil {
			return nil, err
		}
		return res.Figures(), nil
	}
	return all
}
