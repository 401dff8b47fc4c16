package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
)

// DefaultDir has to survive reboots.
const DefaultDir = "/var/lib/rackless/host"

// A Store is the directory with the preparation of a host.
type Store struct {
	Dir string // "" is DefaultDir
}

func (s Store) dir() string { return cmp.Or(s.Dir, DefaultDir) }

// Journal returns the path of the journal.
func (s Store) Journal() string { return filepath.Join(s.dir(), "journal") }

// Adopted returns the directory with the journals of adopted domains.
func (s Store) Adopted() string { return filepath.Join(s.dir(), "adopted") }

func (s Store) file() string { return filepath.Join(s.dir(), "prepared.json") }

const schema = "rackless/prepared/v1"

// Prepared is a preparation of a host.
type Prepared struct {
	Lab  *lab.Lab
	Plan *plan.Plan
	// Host is the host as it was before any change.
	Host    *topology.Host
	Choices Choices
	Made    time.Time
	By      string // version of rackless
}

// prepared is the file.
type prepared struct {
	Schema string         `json:"schema"`
	Made   time.Time      `json:"made"`
	By     string         `json:"by"`
	Lab    string         `json:"lab"` // as YAML with its defaults
	Plan   *plan.Plan     `json:"plan"`
	Host   *topology.Host `json:"host"`
	Choices
}

// ErrNotPrepared is returned if a host is prepared for nothing.
var ErrNotPrepared = errors.New("this host is not prepared for a lab")

// Load reads the preparation, or returns [ErrNotPrepared].
func (s Store) Load() (*Prepared, error) {
	data, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotPrepared
	}
	if err != nil {
		return nil, err
	}
	var f prepared
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w; rackless rollback needs only the journal beside it", s.file(), err)
	}
	if f.Schema != schema || f.Plan == nil || f.Host == nil {
		return nil, fmt.Errorf("%s: schema %q, want %q: it was written by another version (%s); run rackless "+
			"rollback of that one", s.file(), f.Schema, schema, f.By)
	}
	l, err := lab.Parse(s.file(), []byte(f.Lab))
	if err != nil {
		return nil, err
	}
	f.Host.Complete()
	return &Prepared{Lab: l, Plan: f.Plan, Host: f.Host, Choices: f.Choices, Made: f.Made, By: f.By}, nil
}

// Save must be called before anything is changed. The file is on the disk when Save returns.
func (s Store) Save(p *Prepared) error {
	if err := os.MkdirAll(s.dir(), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(prepared{Schema: schema, Made: p.Made, By: p.By, Lab: string(p.Lab.YAML()), Plan: p.Plan,
		Host: p.Host, Choices: p.Choices})
	if err != nil {
		return err
	}
	// It names tenants and addresses: for its owner alone.
	sys := change.System{Root: "/"}
	return sys.Replace(s.file(), data, 0o600, os.Getuid(), os.Getgid())
}

// Open opens the journal and saves p. It fails, and takes nothing, if the preparation has changed since p was loaded or
// planned.
func (s Store) Open(p *Prepared, loaded bool) (*change.Journal, error) {
	j, err := change.Open(s.Journal(), Kinds())
	if err != nil {
		return nil, err
	}
	have, err := s.Load()
	switch {
	case loaded && errors.Is(err, ErrNotPrepared):
		return nil, errors.Join(fmt.Errorf("%w any more: it was undone in the meantime", ErrNotPrepared),
			s.Clear(j))
	case errors.Is(err, ErrNotPrepared):
		err = nil
	case err == nil && (!loaded || !have.Made.Equal(p.Made)):
		err = fmt.Errorf("this host has been prepared for lab %s in the meantime: rackless rollback first",
			have.Lab.Name)
	}
	if err == nil {
		err = s.Save(p)
	}
	if err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Clear forgets the preparation, and closes the journal, which no other process can open before.
func (s Store) Clear(j *change.Journal) error {
	err := os.Remove(s.file())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err := errors.Join(err, j.Close()); err != nil {
		return err
	}
	s.Tidy()
	return nil
}

// Tidy removes the directories of the store if they are empty, as after an operation that needed the journal alone.
func (s Store) Tidy() {
	// Directories with something else in them stay.
	if os.Remove(s.dir()) == nil && s.Dir == "" {
		_ = os.Remove(filepath.Dir(s.dir()))
	}
}

// An UnfitError says why a lab cannot run on this host as it is, and how to prepare it.
type UnfitError struct{ error }

// Unwrap returns the reason.
func (e *UnfitError) Unwrap() error { return e.error }

// For returns the preparation if it is for lab l of the file, and the host still is so, or else an [UnfitError].
func (s Store) For(ctx context.Context, sys *change.System, m Machine, l *lab.Lab, file string) (*Prepared, error) {
	unfit := func(format string, args ...any) error { return &UnfitError{fmt.Errorf(format, args...)} }
	p, err := s.Load()
	switch {
	case errors.Is(err, ErrNotPrepared):
		return nil, unfit("%w: rackless prepare %s", err, file)
	case err != nil:
		return nil, err
	// As YAML with its defaults, so that comments and the order of keys do not count.
	case !bytes.Equal(p.Lab.YAML(), l.YAML()):
		var changes strings.Builder
		for _, c := range lab.Diff(p.Lab, l) {
			changes.WriteString("\n  " + c.String())
		}
		return nil, unfit("this host is prepared for lab %s as it was on %s, and %s says something else: "+
			"rackless rollback, then rackless prepare %s%s",
			p.Lab.Name, p.Made.Format(time.DateTime), file, file, changes.String())
	}
	// Nodes on pages or devices that are gone would fail one by one.
	survey, err := Survey(ctx, sys, p, m)
	if err != nil {
		return nil, err
	}
	for _, r := range survey {
		if r.Status != change.InPlace {
			return nil, unfit("this host is not as lab %s needs it (%s: %s): rackless prepare", l.Name, r.What,
				r.Status)
		}
	}
	return p, nil
}
