package measure

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rackless/rackless/bench"
)

// After the second test, it continues with the third.
func TestAMeasurementGoesOnWhereItWasCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lab", "x")
	var made []string
	run := func(goOn bool, asked, cutAt string) ([]bench.Sample, error) {
		j, err := openJournal(path, asked, goOn)
		if err != nil {
			return nil, err
		}
		var all []bench.Sample
		for _, test := range []string{"a", "b", "c"} {
			samples, err := j.next(func() ([]bench.Sample, error) {
				if test == cutAt {
					return nil, errors.New("interrupted")
				}
				made = append(made, test)
				return []bench.Sample{{Test: test, Metric: "m", Value: 1, Unit: "us", Latencies: []float64{1, 2}}}, nil
			}, func(err error) { t.Error(err) })
			if err != nil {
				return nil, j.cut(err)
			}
			all = append(all, samples...)
		}
		j.end()
		return all, nil
	}
	want := func(err error, text string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("%v, want %s", err, text)
		}
	}
	_, err := run(true, "q", "")
	want(err, "no measurement of this lab was cut off: leave out --continue")
	if _, err = run(false, "q", "a"); err == nil || err.Error() != "interrupted" {
		t.Fatal(err)
	}
	_, err = run(false, "q", "c")
	want(err, "interrupted; 2 measured before are kept: the same command with --continue goes on")
	_, err = run(true, "r", "")
	want(err, `what was cut off was another measurement: "q"`)
	// A kill can truncate a line.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(`{"samples":[{"test":"c"`)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	made = nil
	if _, err = run(true, "q", "c"); len(made) != 0 {
		t.Errorf("made %q again", made)
	}
	want(err, "2 measured before are kept")
	all, err := run(true, "q", "")
	if err != nil || len(all) != 3 || !reflect.DeepEqual(made, []string{"c"}) ||
		!reflect.DeepEqual(all[0].Latencies, []float64{1, 2}) {
		t.Errorf("%+v, made %q, %v", all, made, err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the journal of a measurement that has ended is there")
	}
}

// A full disk does not end a measurement.
func TestAJournalOnAFullDisk(t *testing.T) {
	t.Parallel()
	j, err := openJournal(filepath.Join(t.TempDir(), "x"), "q", false)
	if err != nil {
		t.Fatal(err)
	}
	j.file.Close() // makes writes fail
	warned := 0
	for range 2 {
		samples, err := j.next(func() ([]bench.Sample, error) { return []bench.Sample{{Test: "a"}}, nil },
			func(error) { warned++ })
		if err != nil || len(samples) != 1 {
			t.Errorf("%+v, %v", samples, err)
		}
	}
	if err := j.cut(errors.New("interrupted")); warned != 1 || err.Error() != "interrupted" {
		t.Errorf("warned %d times; %v", warned, err)
	}
}
