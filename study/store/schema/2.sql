-- References of values are looked at when a transaction ends. Looked at with each statement, they have SQLite keep
-- what every page was before it.
CREATE TABLE later (
	run    INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
	n      INTEGER NOT NULL, -- in the run, from 0
	series INTEGER NOT NULL REFERENCES series(id) DEFERRABLE INITIALLY DEFERRED,
	value  REAL NOT NULL,
	PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
INSERT INTO later SELECT run, n, series, value FROM value;
DROP VIEW sample;
DROP TABLE value;
ALTER TABLE later RENAME TO value;
CREATE VIEW sample AS
	SELECT study.name AS study, run.id AS run, block, place, attempt, cell, status, test, metric, bytes, value, unit
	FROM value JOIN series ON series.id = value.series
		JOIN run ON run.id = value.run JOIN study ON study.id = run.study;
