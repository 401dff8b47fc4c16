package measure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
)

// A journal stores results as they come, so that an interrupted measurement can continue. Its first line is the
// request; further lines have one test's results on two nodes, one, or all.
type journal struct {
	path string
	file *os.File // nil: nothing is stored
	made []entry  // entries of the interrupted measurement
	done int
}

// An entry lacks single latencies, which JSON omits.
type entry struct {
	Samples   []bench.Sample `json:"samples"`
	Latencies [][]float64    `json:"latencies"`
}

// openJournal creates or continues a journal; path "" stores nothing.
func openJournal(path, asked string, goOn bool) (*journal, error) {
	j := &journal{path: path}
	if path == "" {
		return j, nil
	}
	if goOn {
		if err := j.read(asked); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	var err error
	if j.file, err = os.Create(path); err != nil {
		return nil, err
	}
	if err = j.line(asked); err == nil {
		for _, e := range j.made {
			err = errors.Join(err, j.line(e))
		}
	}
	return j, err
}

func (j *journal) read(asked string) error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("no measurement of this lab was cut off: leave out --continue")
	}
	if err != nil {
		return err
	}
	in := bufio.NewReader(bytes.NewReader(text))
	first, err := in.ReadBytes('\n')
	var was string
	if err != nil || json.Unmarshal(first, &was) != nil || was != asked {
		return fmt.Errorf("what was cut off was another measurement: %s; give the same options, or leave out "+
			"--continue", bytes.TrimSpace(first))
	}
	for {
		line, err := in.ReadBytes('\n')
		var e entry
		if err != nil || json.Unmarshal(line, &e) != nil || len(e.Samples) != len(e.Latencies) {
			return nil // or a line truncated by a kill
		}
		for i := range e.Samples {
			e.Samples[i].Latencies = e.Latencies[i]
		}
		j.made = append(j.made, e)
	}
}

func (j *journal) line(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = j.file.Write(append(text, '\n'))
	}
	return err
}

// next returns stored samples, or stores new ones of measure.
func (j *journal) next(measure func() ([]bench.Sample, error), warn func(error)) ([]bench.Sample, error) {
	j.done++
	if j.done <= len(j.made) {
		return j.made[j.done-1].Samples, nil
	}
	samples, err := measure()
	if err != nil {
		j.done--
		return samples, err
	}
	if j.file != nil {
		e := entry{samples, lists.Map(samples, func(s bench.Sample) []float64 { return s.Latencies })}
		if failed := j.line(e); failed != nil { // a full disk ends no measurement
			warn(failed)
			j.end()
		}
	}
	return samples, nil
}

// cut adds to the error how to continue.
func (j *journal) cut(err error) error {
	if j.file != nil {
		j.file.Close()
		if j.done > 0 {
			err = fmt.Errorf("%w; %d measured before are kept: the same command with --continue goes on", err, j.done)
		}
	}
	return err
}

func (j *journal) end() {
	if j.file != nil {
		j.file.Close()
		os.Remove(j.path)
		j.file = nil
	}
}
