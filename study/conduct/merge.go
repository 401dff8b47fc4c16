package conduct

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/study"
	"github.com/rackless/rackless/study/store"
)

// Merged counts what Merge has found in the files of parts.
type Merged struct {
	Files, Added int
	Known        int // runs that the study has already
	Unended      int // runs that were begun and did not end
}

// Merge adds the runs in the files of parts to a study. Nothing is added if one of them has a study of other files, or
// a run that the design does not have.
func Merge(ctx context.Context, db *store.DB, s *store.Study, spec *study.Spec, files []string) (Merged, error) {
	m := Merged{Files: len(files)}
	have, err := db.Runs(ctx, s.ID)
	if err != nil {
		return m, err
	}
	known := make(map[place]bool)
	for _, r := range have {
		known[place{r.Block, r.Place}] = true
	}
	var all []*store.ImportedRun
	environment := s.Environment
	for _, file := range files {
		found, from, err := readPart(ctx, file, s, spec)
		if err != nil {
			return m, fmt.Errorf("%s: %w", file, err)
		}
		if environment == nil {
			environment = from.Environment
		}
		added := make(map[place]bool) // all attempts at a run are in one file
		for _, r := range found {
			p := place{r.Block, r.Place}
			switch {
			case r.Status == study.StatusRunning:
				m.Unended++
			case known[p]:
				m.Known++
			default:
				added[p] = true
				all = append(all, r)
			}
		}
		maps.Copy(known, added)
	}
	if err := db.Add(ctx, s.ID, all); err != nil {
		return m, err
	}
	m.Added = len(all)
	if s.Environment == nil && environment != nil {
		s.Environment = environment
		return m, db.SetEnvironment(ctx, s)
	}
	return m, nil
}

// readPart returns the runs of a part, which have to be in the design.
func readPart(ctx context.Context, file string, s *store.Study, spec *study.Spec) ([]*store.ImportedRun, *store.Study,
	error) {
	db, err := store.OpenFixed(ctx, file)
	if err != nil {
		return nil, nil, err
	}
	defer db.Close()
	from, err := db.Find(ctx, s.Name)
	if err != nil {
		return nil, nil, err
	}
	if from.Digest != s.Digest {
		return nil, nil, &ChangedError{s.Name, from.Created}
	}
	runs, err := db.Whole(ctx, from.ID)
	if err != nil {
		return nil, nil, err
	}
	blocks := make(map[int][]study.Run)
	for _, r := range runs {
		if r.Block < 1 || spec.Blocks > 0 && r.Block > spec.Blocks {
			return nil, nil, fmt.Errorf("it has a run of block %d, and the study has %s", r.Block,
				words.Count(spec.Blocks, "block"))
		}
		if blocks[r.Block] == nil {
			blocks[r.Block] = spec.Block(r.Block)
		}
		block := blocks[r.Block]
		if r.Place < 1 || r.Place > len(block) || !maps.Equal(spec.Settings(block[r.Place-1].Cell), r.Cell) {
			return nil, nil, fmt.Errorf("it has a run at place %d of block %d with %s, which is not in the study's "+
				"order", r.Place, r.Block, spec.SettingsText(r.Cell))
		}
	}
	return runs, from, nil
}

// PartFiles returns the files of parts in a directory, as the script for Slurm leaves them.
func PartFiles(dir string) (files []string, err error) {
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if filepath.Ext(f.Name()) == ".db" && !strings.HasPrefix(f.Name(), ".") {
			files = append(files, filepath.Join(dir, f.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no parts of a study (NUMBER.db)", dir)
	}
	return files, nil
}
