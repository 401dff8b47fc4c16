package studyview

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/record"
)

// CSV writes one line for each run and figure. A run without figures has one line, so that no run is missing.
func CSV(w io.Writer, d *study.Document) error {
	if err := checkDocument(d); err != nil {
		return err
	}
	out := csv.NewWriter(w)
	head := []string{"study", "run", "block", "place", "attempt"}
	head = append(head, lists.Map(d.Data.Spec.Factors, func(f study.Factor) string { return f.Name })...)
	// Checking once per run avoids formatting a million lines for a failed writer.
	write := func(record []string) { _ = out.Write(record) }
	write(append(head, "status", "started", "test", "metric", "bytes", "value", "unit"))
	for i := range d.Data.Runs {
		if out.Error() != nil {
			break
		}
		o := &d.Data.Runs[i]
		run := []string{d.Data.Spec.Name, strconv.FormatInt(o.Run, 10), strconv.Itoa(o.Block), strconv.Itoa(o.Place),
			strconv.Itoa(o.Attempt)}
		run = append(run, lists.Map(d.Data.Spec.Factors, func(f study.Factor) string { return o.Cell[f.Name] })...)
		run = append(run, o.Status, o.Started.UTC().Format(time.RFC3339))
		run = run[:len(run):len(run)] // so that append copies
		// Programs that count runs by lines must see this one.
		if len(o.Values) == 0 {
			write(append(run, "", "", "", "", ""))
		}
		for _, v := range o.Values {
			// Empty: programs would take 0 or NaN for a measurement.
			size, value := "", ""
			if v.Bytes > 0 {
				size = strconv.FormatInt(v.Bytes, 10)
			}
			if finite(v.Value) {
				value = show.Exact(v.Value)
			}
			write(append(run, v.Test, v.Metric, size, value, v.Unit))
		}
	}
	out.Flush()
	return show.Wrapf(out.Error(), "write study %q as CSV", d.Data.Spec.Name)
}

// finite is false for NaN and infinite values, as of too few runs.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// A number is null in JSON if it is NaN or infinite.
type number float64

// MarshalJSON implements json.Marshaler.
func (n number) MarshalJSON() ([]byte, error) {
	if !finite(float64(n)) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// These types shadow fields that may be NaN or infinite.
type (
	jsonDocument struct {
		Schema    string     `json:"schema"`
		Emulated  bool       `json:"emulated"`
		Generated time.Time  `json:"generated"`
		Rackless  string     `json:"rackless,omitempty"`
		Repeat    string     `json:"repeat,omitempty"`
		Spec      any        `json:"spec"`
		Result    jsonResult `json:"result"`
		// Lab is as in rackless bench, without figures.
		Lab         *record.Record  `json:"lab,omitempty"`
		Environment []study.Fact    `json:"environment,omitempty"`
		Commands    []study.Command `json:"commands,omitempty"`
		Runs        []jsonRun       `json:"runs"`
	}
	jsonResult struct {
		*study.Result
		Series []jsonSeries `json:"series"`
	}
	jsonSeries struct {
		study.Series
		Median number   `json:"median"`
		Low    number   `json:"min"`
		High   number   `json:"max"`
		Values []number `json:"values"`
	}
	jsonRun struct {
		study.Observation
		Values []jsonValue `json:"values"`
	}
	figure    study.Value // an embedded Value would hide the field
	jsonValue struct {
		figure
		Value number `json:"value"`
	}
)

// Encode writes the whole document in a form for programs.
func Encode(w io.Writer, form string, d *study.Document) error {
	if err := checkDocument(d); err != nil {
		return err
	}
	out := jsonDocument{Schema: Schema, Emulated: d.Emulated, Generated: d.Generated, Rackless: d.Rackless,
		Repeat: d.Repeat, Spec: d.Data.Spec, Result: jsonResult{Result: d.Result, Series: []jsonSeries{}}, Lab: d.Lab,
		Environment: d.Environment, Commands: d.Commands, Runs: []jsonRun{}}
	for _, s := range d.Result.Series {
		x := jsonSeries{Series: s, Median: number(s.Median), Low: number(s.Low), High: number(s.High),
			Values: []number{}}
		x.Values = append(x.Values, lists.Map(s.Values, func(v float64) number { return number(v) })...)
		out.Result.Series = append(out.Result.Series, x)
	}
	for _, o := range d.Data.Runs {
		x := jsonRun{Observation: o, Values: []jsonValue{}}
		for _, v := range o.Values {
			x.Values = append(x.Values, jsonValue{figure(v), number(v.Value)})
		}
		out.Runs = append(out.Runs, x)
	}
	return show.Wrapf(show.Encode(w, form, out), "write study %q", d.Data.Spec.Name)
}
