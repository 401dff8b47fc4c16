SELECT study, sum(status = 'done'), sum(status = 'failed'), sum(status = 'disturbed'),
	(SELECT count(*) FROM (
		SELECT max(status = 'done') AS done,
			sum(status <> 'running' AND coalesce(error, '') NOT LIKE ? || '%') AS tries
		FROM run AS of WHERE of.study = run.study GROUP BY block, place
	) WHERE NOT done AND tries >= ?),
	total(seconds) FILTER (WHERE status = 'done'), total(seconds), started, iif(status = 'running', cell, NULL),
	study IN (SELECT run.study FROM invocation JOIN run ON run.id = invocation.run
		WHERE json_extract(raw, '$.emulated')), max(id)
FROM run GROUP BY study
