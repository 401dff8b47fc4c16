package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// WriteSamples writes one line of JSON a sample. All samples are checked before the first is written, so that
// a bad one does not leave half a file.
func WriteSamples(w io.Writer, samples []Sample) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // command lines stay readable
	for i := range samples {
		err := samples[i].check()
		if err == nil {
			err = enc.Encode(&samples[i])
		}
		if err != nil {
			return fmt.Errorf("write samples: sample %d: %w", i+1, err)
		}
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// ReadSamples reads what WriteSamples wrote. Blank lines are skipped; members of a later version are ignored.
// An error names the line, and no sample is returned with it: a result file is good or it is not.
func ReadSamples(r io.Reader) ([]Sample, error) {
	var samples []Sample
	// No bufio.Scanner, which refuses lines over 64 KiB: samples carry command lines and what a failed tool printed.
	in := bufio.NewReader(r)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		last := err == io.EOF
		if last {
			err = nil
		}
		if err == nil && len(bytes.TrimSpace(line)) > 0 {
			var s Sample
			if err = json.Unmarshal(line, &s); err == nil {
				err = s.check()
			}
			samples = append(samples, s)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("read samples: line %d: %w", number, err)
		case last:
			return samples, nil
		}
	}
}

// check refuses a sample that says nothing, or that would be published as a figure and is none.
func (s *Sample) check() error {
	if s.Test == "" {
		return errors.New("test is empty")
	}
	if err := checkNumber(s.Seconds); err != nil {
		return fmt.Errorf("seconds %v: %w", s.Seconds, err)
	}
	if s.Error != "" {
		// A reader that takes the mean of all values must not meet a figure of a run that failed.
		if s.Metric != "" || s.Value != 0 {
			return fmt.Errorf("a failed measurement has a metric %q and a value %v", s.Metric, s.Value)
		}
		return nil
	}
	if s.Metric == "" || s.Unit == "" {
		return errors.New("metric or unit is empty and there is no error")
	}
	if err := CheckValue(s.Metric, s.Value); err != nil {
		return fmt.Errorf("%s %v: %w", s.Metric, s.Value, err)
	}
	return nil
}
