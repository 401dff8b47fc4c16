CREATE TABLE output (
	run    INTEGER NOT NULL,
	n      INTEGER NOT NULL, -- of the invocation
	stream TEXT NOT NULL,    -- 'client stdout' and so on
	data   BLOB NOT NULL,    -- what was printed there, byte by byte, in gzip's format
	PRIMARY KEY (run, n, stream),
	FOREIGN KEY (run, n) REFERENCES invocation(run, n) ON DELETE CASCADE
) STRICT;
