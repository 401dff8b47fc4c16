package store

import (
	"context"
	"database/sql"
	"time"
)

// An Outcome counts what has come of the runs of a study.
type Outcome struct {
	Done, Failed, Disturbed int
	GivenUp                 int               // places in the order whose run was tried as often as runs are, in vain
	Took                    float64           // seconds of the runs that are done
	Spent                   float64           // and of all others, too
	Last                    time.Time         // when a run was begun last
	Cell                    map[string]string // of that run, where it is under way or was cut off
	Emulated                bool              // a figure was
}

// outcomes has a row for each study with runs. SQL counts: a file of studies may be large, and rackless ui asks every
// second. Beside the one max(), SQLite takes the plain columns from the row that has it: cell, status and start are
// those of the last run.
const outcomes = `
	SELECT study, sum(status = 'done'), sum(status = 'failed'), sum(status = 'disturbed'),
		(SELECT count(*) FROM (
			SELECT max(status = 'done') AS done,
				sum(status <> 'running' AND coalesce(error, '') NOT LIKE ? || '%') AS tries
			FROM run AS of WHERE of.study = run.study GROUP BY block, place
		) WHERE NOT done AND tries >= ?),
		total(seconds) FILTER (WHERE status = 'done'), total(seconds), started, iif(status = 'running', cell, NULL),
		study IN (SELECT run.study FROM invocation JOIN run ON run.id = invocation.run
			WHERE json_extract(raw, '$.emulated')), max(id)
	FROM run GROUP BY study`

// Outcomes counts the runs of all studies, by the number of the study. A run is given up after so many attempts, of
// which those whose error begins with noAttempt are none.
func (d *DB) Outcomes(ctx context.Context, attempts int, noAttempt string) (map[int64]Outcome, error) {
	all := map[int64]Outcome{}
	_, err := query(ctx, d, func(row *sql.Rows, o *Outcome) error {
		var study, last int64
		err := row.Scan(&study, &o.Done, &o.Failed, &o.Disturbed, &o.GivenUp, &o.Took, &o.Spent, stampOf{&o.Last},
			jsonOf{&o.Cell}, &o.Emulated, &last)
		all[study] = *o
		return err
	}, outcomes, noAttempt, attempts)
	return all, err
}
