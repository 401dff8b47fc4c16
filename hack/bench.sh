#!/usr/bin/env bash
# Runs the Go benchmarks of the packages whose speed users feel, five times each, in the format that benchstat reads:
#
#   hack/bench.sh > old.txt; (change something); hack/bench.sh > new.txt; benchstat old.txt new.txt
#
# GO names the go command; arguments go on to "go test", e.g. -bench=Switch.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

packages=()
for package in fabric lab bench; do
	if compgen -G "$package/*.go" >/dev/null; then packages+=("./$package"); fi
done
exec "${GO:-go}" test -run='^$' -bench=. -benchmem -count=5 "$@" "${packages[@]}"
