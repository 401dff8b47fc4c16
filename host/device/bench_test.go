package device

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/machinetest"
)

type bench struct {
	t       testing.TB
	s       *change.System
	kinds   change.Kinds
	journal string
}

// newBench rolls the journal back at the end, even if the test fails.
func newBench(t testing.TB, s *change.System, kinds change.Kinds) *bench {
	b := &bench{t, s, maps.Clone(kinds), filepath.Join(machinetest.MemoryDir(t), "journal")}
	maps.Copy(b.kinds, change.BasicKinds())
	t.Cleanup(func() {
		if err := b.rollback(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) with(use func(*change.Journal) error) error {
	b.t.Helper()
	j, err := change.Open(b.journal, b.kinds)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	return use(j)
}

func (b *bench) make(steps []change.Step) error {
	b.t.Helper()
	return b.with(func(j *change.Journal) error {
		results, err := change.Make(context.Background(), b.s, j, steps, nil)
		for _, r := range results {
			if err == nil && r.Status != change.Made && r.Status != change.InPlace {
				err = fmt.Errorf("%s: %s", r.What, r.Status)
			}
		}
		return err
	})
}

func (b *bench) rollback() error {
	b.t.Helper()
	return b.with(func(j *change.Journal) error {
		_, err := change.Rollback(context.Background(), b.s, j, nil)
		return err
	})
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) refuses(steps []change.Step, want ...string) {
	b.t.Helper()
	err := b.make(steps)
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			b.t.Errorf("refusal: %v\nwant %q", err, w)
		}
	}
	entries, err := change.ReadJournal(b.journal, b.kinds)
	if err != nil || len(entries) > 0 {
		b.t.Errorf("%d steps were begun, %v", len(entries), err)
	}
}

func (b *bench) inPlace(steps []change.Step) {
	b.t.Helper()
	results, err := change.Survey(context.Background(), b.s, steps)
	b.must(err)
	for _, r := range results {
		if r.Status != change.InPlace {
			b.t.Fatalf("%s: %s, want in place", r.What, r.Status)
		}
	}
}
