#!/usr/bin/env bash
# Prints the changes since the last release, or, with a version, moves them into CHANGELOG.md under its heading.
# Each change is a file in docs/changelog/unreleased: KIND-SUBJECT.md with the text of one entry, so that two changes
# never conflict.
set -eu
cd "$(dirname "$0")/.."

entries() {
	for kind in added changed removed fixed; do
		first=1
		for f in docs/changelog/unreleased/"$kind"-*.md; do
			[ -e "$f" ] || continue
			[ -z "$first" ] || printf '\n### %s\n\n' "${kind^}"
			first=
			# The text is the entry of a list: its other lines are indented.
			sed -e '1s/^/- /' -e '2,$s/^\(.\)/  \1/' "$f"
		done
	done
}

if [ $# -eq 0 ]; then
	entries
	exit
fi
version=$1
{
	sed '/^## /,$d' CHANGELOG.md
	printf '## [%s] - %s\n' "$version" "$(date -u +%F)"
	entries
	echo
	sed -n '/^## /,$p' CHANGELOG.md
} >CHANGELOG.md.new
mv CHANGELOG.md.new CHANGELOG.md
rm -f docs/changelog/unreleased/*.md
