package document

import (
	"context"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/study/conduct"
	"github.com/rackless/rackless/study/recommend"
	"github.com/rackless/rackless/study/store"
)

// Evidence reads studies for package recommend: those that are named, or all. Studies that have no figures yet are
// left out unless they are named.
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

// evidence reads one study as evidence. Its lab file is optional: imported studies have none.
func evidence(ctx context.Context, db *store.DB, name string) (*recommend.Study, error) {
	rec, err := conduct.Load(ctx, db, name)
	if err != nil {
		return nil, err
	}
	s := &recommend.Study{Name: name, Data: rec.Data, Environment: rec.Study.Environment, Emulated: rec.Emulated}
	if rec.Study.Lab != "" { // imported ones have none
		// A file that an older version wrote may be wrong by now: the study is good without it.
		if l, err := lab.Parse("lab of study "+name, []byte(rec.Study.Lab)); err == nil {
			s.Lab = l
		}
	}
	return s, nil
}
