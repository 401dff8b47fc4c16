// Package document reads studies from their file and analyses them, for whoever shows them.
package document

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rackless/rackless/inspect"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/report"
	"github.com/rackless/rackless/report/show"
	"github.com/rackless/rackless/report/studyview"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/store"
)

// Open opens the file of studies for questions alone.
func Open(ctx context.Context, path string) (*store.DB, error) {
	db, err := store.OpenReader(ctx, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, None(err)
	}
	return db, err
}

// None is the error of a file of studies that is not there.
func None(err error) error {
	return fmt.Errorf("no study has been run: %w; run one with: rackless study run STUDY.yaml", err)
}

// Load analyses a study. repeat is the command that makes it again; "" where that is not known.
func Load(ctx context.Context, db *store.DB, name, repeat string) (*studyview.Document, error) {
	rec, err := conduct.Load(ctx, db, name)
	if err != nil {
		return nil, err
	}
	result, err := study.Analyse(rec.Data)
	if err != nil {
		return nil, fmt.Errorf("study %s: %w", name, err)
	}
	// The analysis is made anew from the raw runs each time, so that a newer rackless judges old studies by its own
	// rules.
	doc := &studyview.Document{Result: result, Data: rec.Data, Emulated: rec.Emulated, Repeat: repeat,
		Environment: rec.Study.Environment, Generated: time.Now().UTC().Truncate(time.Second),
		Rackless: rec.Study.Rackless}
	if rec.Study.Survey != nil {
		doc.Lab = new(report.Data)
		if err := json.Unmarshal(rec.Study.Survey, doc.Lab); err != nil {
			return nil, fmt.Errorf("study %s: survey: %w", name, err)
		}
	}
	for _, s := range rec.Invocations {
		if s.Command == "" {
			continue // imported: with which command it was measured is not known
		}
		doc.Commands = append(doc.Commands, studyview.Command{Test: s.Test, Client: s.Command, Server: s.ServerCommand,
			Tool: strings.TrimSpace(s.Tool + " " + s.Version)})
	}
	return doc, nil
}

// A List is what study ls prints as JSON, see docs/json.md.
type List struct {
	Studies []Entry `json:"studies"`
}

// Grid has one row a study.
func (l List) Grid() *show.Grid {
	g := show.NewGrid("study", "begun", "lab", "done>", "failed>", "disturbed>")
	for _, s := range l.Studies {
		g.Add(s.Name, s.Created.Local().Format(time.DateTime), s.Lab, fmt.Sprint(s.Done), fmt.Sprint(s.Failed),
			fmt.Sprint(s.Disturbed))
	}
	return g
}

// An Entry is a study, with its runs by how they ended.
type Entry struct {
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Lab       string    `json:"lab"` // file
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
		// The name of the lab file is in the study as it was asked for; the table has the text of the file.
		var spec study.Spec
		if err := json.Unmarshal(s.Spec, &spec); err != nil {
			return nil, fmt.Errorf("study %s: %w", s.Name, err)
		}
		o := outcomes[s.ID]
		all = append(all, Entry{Name: s.Name, Created: s.Created, Lab: spec.Lab, Done: o.Done, Failed: o.Failed,
			Disturbed: o.Disturbed})
	}
	return all, nil
}

// ReadSpec reads and checks the file of a study. It returns the text too, whose digest runs are kept with.
func ReadSpec(file string) (spec *study.Spec, text []byte, err error) {
	if text, err = userfile.Read(file, userfile.Text); err == nil {
		if spec, err = study.Parse(file, text); err != nil {
			err = inspect.Misplaced(file, text, "the file of a study", err)
		}
	}
	return spec, text, err
}
