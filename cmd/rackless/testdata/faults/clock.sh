#!/bin/sh
# Sets the clock back by a minute, again and again, until a run of the study was disturbed by it.
until rackless study query "SELECT run.status FROM run JOIN study ON study.id = run.study WHERE study.name = 'clock'" | grep -q disturbed; do
	date -s "@$(($(date +%s) - 60))"
	sleep 3
done
