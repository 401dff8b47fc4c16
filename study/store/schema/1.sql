CREATE TABLE study (
	id       INTEGER PRIMARY KEY,
	name     TEXT NOT NULL UNIQUE,
	spec     TEXT NOT NULL,   -- JSON, with defaults
	digest   TEXT NOT NULL,   -- SHA-256 of the study file and the lab file, in hexadecimal
	lab      TEXT NOT NULL,   -- the lab file with its defaults
	created  TEXT NOT NULL,   -- UTC, RFC 3339
	rackless TEXT NOT NULL,   -- version
	environment TEXT          -- JSON: names and values of what the first run was made on
) STRICT;
CREATE TABLE run (
	id          INTEGER PRIMARY KEY,
	study       INTEGER NOT NULL REFERENCES study(id) ON DELETE CASCADE,
	block       INTEGER NOT NULL, -- from 1
	place       INTEGER NOT NULL, -- in the block, from 1
	attempt     INTEGER NOT NULL, -- from 1
	cell        TEXT NOT NULL,    -- JSON: factor to level
	status      TEXT NOT NULL CHECK (status IN ('running','done','failed','disturbed')),
	started     TEXT NOT NULL,    -- UTC, RFC 3339
	seconds     REAL,
	error       TEXT,             -- why it failed, or what disturbed it
	before      TEXT,             -- JSON: state of the host before it
	after       TEXT,             -- JSON: and after it
	UNIQUE (study, block, place, attempt)
) STRICT;
CREATE TABLE series (
	id     INTEGER PRIMARY KEY,
	test   TEXT NOT NULL,
	metric TEXT NOT NULL,
	bytes  INTEGER NOT NULL, -- message size; 0 where there is none
	unit   TEXT NOT NULL,
	UNIQUE (test, metric, bytes, unit)
) STRICT;
CREATE TABLE value (
	run    INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
	n      INTEGER NOT NULL, -- in the run, from 0
	series INTEGER NOT NULL REFERENCES series(id),
	value  REAL NOT NULL,
	PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
CREATE TABLE invocation (
	run    INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
	n      INTEGER NOT NULL, -- of its first value
	raw    TEXT NOT NULL,    -- JSON: a sample as bench writes it, with tool, version and commands
	PRIMARY KEY (run, n)
) STRICT, WITHOUT ROWID;
CREATE VIEW sample AS
	SELECT study.name AS study, run.id AS run, block, place, attempt, cell, status, test, metric, bytes, value, unit
	FROM value JOIN series ON series.id = value.series
		JOIN run ON run.id = value.run JOIN study ON study.id = run.study;
CREATE TABLE histogram (
	run    INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE,
	test   TEXT NOT NULL,
	metric TEXT NOT NULL,
	bytes  INTEGER NOT NULL DEFAULT 0,
	data   BLOB NOT NULL              -- HdrHistogram, V2 compressed, in ns
) STRICT;
CREATE INDEX histogram_run ON histogram (run);
