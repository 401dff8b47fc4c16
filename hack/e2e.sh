#!/usr/bin/env bash
# Runs the tests that "make test" leaves out, and prints a summary: make test-e2e. docs/testing.md says what they are.
#
#   hack/e2e.sh run      runs them; it changes no file that git knows
#   hack/e2e.sh record   the same, and notes date, commit, result and minutes in docs/testing.md
#   hack/e2e.sh minutes  prints the minutes that docs/testing.md notes of a run that passed, or nothing
#
# GO_TEST is the command of go test with its flags.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/.."

page=docs/testing.md
tally=$PWD/out/tally-e2e

minutes() {
	# The columns of the table: date, commit, result, minutes, cores.
	awk -F ' *[|] *' '/^[|] [0-9]+-[0-9]+-[0-9]+ [|]/ && $4 == "passed" { print $5 }' "$page" | tail -n 1
}

# run sets result and took.
run() {
	local packages began=$SECONDS
	mapfile -t packages < <(grep -rl --include='*_test.go' '^func TestE2E' . | xargs -n 1 dirname | sort -u)
	rm -rf "$tally"
	mkdir -p "$tally"
	printf 'running the tests of make test-e2e in %s\n' "${packages[*]}"
	result=passed
	# shellcheck disable=SC2086 # GO_TEST is a command with its arguments
	env RACKLESS_TALLY="$tally" ${GO_TEST:-go test} -timeout 90m -run '^TestE2E' "${packages[@]}" -e2e || result=FAILED
	took=$(((SECONDS - began + 59) / 60))
	echo "What the tests of make test-e2e counted:"
	find "$tally" -type f | sort | xargs -r cat
	echo "make test-e2e: $(ended passed) tests passed, $(ended FAILED) failed and $(ended skipped) were skipped, in" \
		"$took minutes: $result"
}

# ended prints how many tests noted the result $1.
ended() { grep -rlE "^TestE2E[A-Za-z0-9]+: $1 after " "$tally" | wc -l; }

# record replaces the row of the table in the page.
record() {
	local row head
	if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
		echo "e2e.sh: there are changes that are not committed: the row would name a commit that was not tested" >&2
		exit 1
	fi
	head=$(git rev-parse --short=8 HEAD)
	run
	row="| $(date -u +%Y-%m-%d) | $head | $result | $took | $(nproc) |"
	sed -i -E "/^\| date \| commit \|/,/^$/ { /^\| ([0-9]+-|none)/ d; /^\| --- /a $row
	}" "$page"
	echo "noted in $page: $row"
}

result='' took=0
case ${1:-run} in
run) run ;;
record) record ;;
minutes)
	minutes
	exit
	;;
*)
	echo "e2e.sh: $1: want run, record or minutes" >&2
	exit 2
	;;
esac
[ "$result" = passed ]
