// Package document reads studies from their file and analyses them, for all outputs.
package document

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/steps"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/record"
	"github.com/rackless/rackless/study/store"
)

// Open opens the database of studies for reading.
func Open(ctx context.Context, path string) (*store.DB, error) {
	db, err := store.OpenReader(ctx, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, None(err)
	}
	return db, err
}

// None is the error for a missing database.
func None(err error) error {
	return fmt.Errorf("no study has been run: %w; run one with: rackless study run STUDY.yaml", err)
}

// Load reads and analyses a study. repeat is the command that repeats it, or "". file, if set, names the levels.
func Load(ctx context.Context, db *store.DB, name, repeat string, file *study.Spec) (*study.Document, error) {
	rec, err := conduct.Load(ctx, db, name)
	if err != nil {
		return nil, err
	}
	if file != nil {
		rec.Data.Spec.NameLevels(file)
	}
	result, err := study.Analyse(rec.Data)
	if err != nil {
		return nil, fmt.Errorf("study %s: %w", name, err)
	}
	// A newer rackless judges old studies by its own rules.
	doc := &study.Document{Result: result, Data: rec.Data, Emulated: rec.Emulated, Repeat: repeat,
		Environment: rec.Study.Environment, Generated: time.Now().UTC().Truncate(time.Second),
		Rackless: rec.Study.Rackless}
	if rec.Study.Survey != nil {
		doc.Lab = new(record.Record)
		if err := json.Unmarshal(rec.Study.Survey, doc.Lab); err != nil {
			return nil, fmt.Errorf("study %s: survey: %w", name, err)
		}
	}
	for _, s := range rec.Invocations {
		if s.Command == "" {
			continue // an imported one has no command line
		}
		doc.Commands = append(doc.Commands, study.Command{Test: s.Test, Client: s.Command, Server: s.ServerCommand,
			Tool: strings.TrimSpace(s.Tool + " " + s.Version)})
	}
	return doc, nil
}

// A List is the JSON output of study ls; see docs/json.md.
type List struct {
	Studies []Entry `json:"studies"`
}

// An Entry is a study with its runs by outcome.
type Entry struct {
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Lab       string    `json:"lab"` // lab file
	Done      int       `json:"done"`
	Failed    int       `json:"failed"`
	Disturbed int       `json:"disturbed"`
}

// Entries returns all studies, the oldest first.
func Entries(ctx context.Context, db *store.DB) ([]Entry, error) {
	studies, err := db.Studies(ctx)
	if err != nil {
		return nil, err
	}
	outcomes, err := conduct.Outcomes(ctx, db)
	if err != nil {
		return nil, err
	}
	all := []Entry{}
	for _, s := range studies {
		// The lab file's name is only in the spec.
		var spec study.Spec
		if err := json.Unmarshal(s.Spec, &spec); err != nil {
			return nil, fmt.Errorf("study %s: %w", s.Name, err)
		}
		o := outcomes[s.ID]
		all = append(all, Entry{Name: s.Name, Created: s.Created, Lab: cmp.Or(spec.Lab, spec.Simulation), Done: o.Done,
			Failed:    o.Failed,
			Disturbed: o.Disturbed})
	}
	return all, nil
}

// ReadSpec reads and checks a study file. Runs are stored with the digest of the text.
func ReadSpec(file string) (spec *study.Spec, text []byte, err error) {
	if text, err = userfile.Read(file, userfile.Text); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s: no such study file; %s", file,
			cmp.Or(strictyaml.Others(file, []string{filepath.Dir(file), "examples/studies"}, specs),
				"rackless study --help says what is in one"))
	}
	if err == nil {
		if spec, err = study.Parse(file, text); err != nil {
			err = inspect.Misplaced(file, text, "the file of a study", err)
		}
	}
	return spec, text, err
}

func specs(dir string) []string {
	entries, _ := os.ReadDir(dir) // suggestions are optional
	var names []string
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".yaml" || !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if text, err := userfile.Read(path, userfile.Text); err == nil {
			if _, err = study.Parse(path, text); err == nil {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// Evidence reads the named studies, or all that have figures.
func Evidence(ctx context.Context, db *store.DB, names []string) ([]recommend.Study, error) {
	all := len(names) == 0
	if all {
		found, err := db.Studies(ctx)
		if err != nil {
			return nil, err
		}
		names = append(names, lists.Map(found, func(s *store.Study) string { return s.Name })...)
	}
	var out []recommend.Study
	for _, name := range names {
		s, err := evidence(ctx, db, name)
		if err != nil {
			return nil, err
		}
		if all && !s.Measured() {
			continue
		}
		out = append(out, *s)
	}
	return out, nil
}

func evidence(ctx context.Context, db *store.DB, name string) (*recommend.Study, error) {
	rec, err := conduct.Load(ctx, db, name)
	if err != nil {
		return nil, err
	}
	s := &recommend.Study{Name: name, Data: rec.Data, Environment: rec.Study.Environment, Emulated: rec.Emulated}
	if rec.Study.Lab != "" { // not for imported studies
		// An older version's lab file may not be valid now; the study is usable without it.
		if l, err := lab.Parse("lab of study "+name, []byte(rec.Study.Lab)); err == nil {
			s.Lab = l
		}
	}
	return s, nil
}

// ShowProgress displays a run as a step; doing is its activity. After the first block of a study with a budget, it
// notes how many blocks fit and the smallest effect they can show.
func ShowProgress(to *steps.Progress, s *study.Spec, p conduct.Progress, doing *atomic.Value) {
	if p.Status != "" {
		var err error
		if p.Status != study.StatusDone {
			to.Note("%s: %s", p.Status, p.Error)
		}
		// Marks of failure are for rackless and the lab.
		if p.Status == study.StatusFailed { // a disturbed run is no failure
			err = errors.New(p.Status)
		}
		to.End(err)
		return
	}
	step := fmt.Sprintf("block %d run %d: %s", p.Run.Block, p.Run.Place, p.Cell)
	if p.Attempt > 1 {
		step += fmt.Sprintf(", attempt %d", p.Attempt)
	}
	to.Begin(step)
	what, began := words.Count(p.Done, "run")+" done", time.Now()
	if p.Total > 0 {
		what = fmt.Sprintf("%d of %d", p.Done+1, p.Total)
	}
	to.WatchLeft(func() string { return fmt.Sprint(what, doing.Load()) },
		func() time.Duration { return p.Left - time.Since(began) })
	if blocks := p.Total / max(1, len(s.Block(1))); s.Budget > 0 && p.Status == "" && p.Run.Block == 2 &&
		p.Run.Place == 1 && p.Attempt == 1 && blocks > 0 {
		to.Note("by the first block, %v hold about %s, which find %s", s.Budget, words.Count(blocks, "block"),
			study.SmallestEffects(s, blocks))
	}
}
