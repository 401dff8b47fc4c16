package bench

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func goodSample() Sample {
	return Sample{
		Run: "20260102T030405.000000-1", Test: "ib_write_bw", Client: "n2", Server: "n1",
		Metric: MetricBWAverage, Bytes: 65536, Iterations: 350, Value: 0.23, Unit: UnitGbps,
		Tool: "perftest", Version: "6.06", Command: "ib_write_bw -d rxe0 '<&>' 10.0.0.1",
		ServerCommand: "ib_write_bw -d rxe0",
		Accelerator:   "tcg", Emulated: true, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Seconds: 1.5,
		Attempt: 1,
	}
}

func TestSamplesSurviveWritingAndReading(t *testing.T) {
	failed := goodSample()
	failed.Metric, failed.Unit, failed.Value, failed.Bytes, failed.Iterations = "", "", 0, 0, 0
	failed.Error = "attempt 1: no result\nwithin 3m0s"
	derived := goodSample()
	derived.Derived = true
	none := goodSample()
	none.Metric, none.Unit, none.Value = MetricRetransmits, UnitSegments, 0
	want := []Sample{goodSample(), failed, derived, none}
	var buf bytes.Buffer
	if err := WriteSamples(&buf, want); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(buf.String(), "\n"); n != len(want) {
		t.Errorf("%d lines, want %d", n, len(want))
	}
	got, err := ReadSamples(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The format is that of docs/measuring.md.
func TestTheLineOfASampleIsStable(t *testing.T) {
	var buf bytes.Buffer
	if err := WriteSamples(&buf, []Sample{goodSample()}); err != nil {
		t.Fatal(err)
	}
	const want = `{"run":"20260102T030405.000000-1","test":"ib_write_bw","client":"n2","server":"n1",` +
		`"metric":"bw_average","bytes":65536,"iterations":350,"value":0.23,"unit":"Gb/s",` +
		`"tool":"perftest","version":"6.06",` +
		`"command":"ib_write_bw -d rxe0 '<&>' 10.0.0.1","server_command":"ib_write_bw -d rxe0",` +
		`"accelerator":"tcg","emulated":true,"started":"2026-01-02T03:04:05Z","seconds":1.5,"attempt":1}` + "\n"
	if diff := cmp.Diff(want, buf.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSamplesThatWouldPublishNonsenseAreNotWritten(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Sample)
		want   string
	}{
		{"not a number", func(s *Sample) {
			s.Value = math.NaN()
		}, "write samples: sample 2: bw_average NaN: the value is not a finite number"},
		{"infinite", func(s *Sample) {
			s.Value = math.Inf(1)
		}, "write samples: sample 2: bw_average +Inf: the value is not a finite number"},
		{"zero", func(s *Sample) {
			s.Value = 0
		}, "write samples: sample 2: bw_average 0: a value of zero is a failed measurement"},
		{"negative", func(s *Sample) { s.Value = -1 }, "write samples: sample 2: bw_average -1: the value is negative"},
		{"no metric and no error", func(s *Sample) {
			s.Metric = ""
		}, "write samples: sample 2: metric or unit is empty and there is no error"},
		{"an error and a value", func(s *Sample) {
			s.Error = "x"
		}, `write samples: sample 2: a failed measurement has a metric "bw_average" and a value 0.23`},
		{"no test", func(s *Sample) { s.Test = "" }, "write samples: sample 2: test is empty"},
		{"seconds not a number", func(s *Sample) {
			s.Seconds = math.NaN()
		}, "write samples: sample 2: seconds NaN: the value is not a finite number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := goodSample()
			tt.change(&s)
			var buf bytes.Buffer
			err := WriteSamples(&buf, []Sample{goodSample(), s})
			if err == nil || err.Error() != tt.want {
				t.Errorf("got error %v, want %s", err, tt.want)
			}
			if buf.Len() > 0 {
				t.Error("the good sample before it was written")
			}
		})
	}
}

func TestReadingNamesTheBadLine(t *testing.T) {
	var buf bytes.Buffer
	if err := WriteSamples(&buf, []Sample{goodSample()}); err != nil {
		t.Fatal(err)
	}
	good := buf.String()
	tests := []struct{ name, in, want string }{
		{"a cut last line", good + good[:50], "read samples: line 2: unexpected end of JSON input"},
		{"not JSON", good + "\nbw 5\n", "read samples: line 3: invalid character 'b' looking for beginning of value"},
		{"a zero", strings.Replace(good, "0.23", "0", 1),
			"read samples: line 1: bw_average 0: a value of zero is a failed measurement"},
		{"too large a number", good + strings.Replace(good, "0.23", "1e999", 1),
			"read samples: line 2: json: cannot unmarshal number 1e999 into Go struct field Sample.value of " +
				"type float64"},
		{"another object", "{}\n", "read samples: line 1: test is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ReadSamples(strings.NewReader(tt.in))
			if err == nil || err.Error() != tt.want {
				t.Errorf("got error %v, want %s", err, tt.want)
			}
			if got != nil {
				t.Errorf("%d samples come with the error", len(got))
			}
		})
	}
	if _, err := ReadSamples(brokenReader{}); err == nil || err.Error() != "read samples: line 1: pipe broke" {
		t.Errorf("a broken reader: error %v", err)
	}
}

func TestReadingSkipsBlankLinesAndMembersOfLaterVersions(t *testing.T) {
	var buf bytes.Buffer
	if err := WriteSamples(&buf, []Sample{goodSample()}); err != nil {
		t.Fatal(err)
	}
	in := "\n" + strings.Replace(buf.String(), "{", `{"colour":"red",`, 1) + "\n" + strings.TrimSpace(buf.String())
	got, err := ReadSamples(strings.NewReader(in))
	if err != nil || len(got) != 2 {
		t.Errorf("%d samples, error %v, want 2", len(got), err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorsAreReturned(t *testing.T) {
	if err := WriteSamples(brokenWriter{}, []Sample{goodSample()}); err == nil ||
		err.Error() != "write samples: disk full" {
		t.Errorf("error %v", err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("pipe broke") }
