#!/usr/bin/env bash
# Records docs/pair.svg: a lab goes up, is verified, measured and taken down, in a terminal of 90 x 30. What is seen was
# printed by those commands. It takes termtosvg (pip install termtosvg setuptools), script (util-linux) and a warm cache.
#
#   make build && hack/cast.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" != inside ]; then
	TERM=xterm-256color script -qec "stty cols 90 rows 30; termtosvg docs/pair.svg -c '$0 inside' -g 90x30 -M 2000 -m 150 -D 3000 -t window_frame" /dev/null
	exit
fi

PATH=$PWD/bin:$PATH
cd examples
# say types a command word by word, runs it, and leaves its output for so many seconds.
say() {
	printf '\033[32m$\033[0m '
	for word in $1; do
		printf '%s ' "$word"
		sleep 0.15
	done
	echo
	eval "$1"
	sleep "$2"
}
say 'cat pair.yaml' 1
say 'rackless up pair.yaml' 1.5
say 'rackless exec vm00 -- ibstat mlx5_0' 2
say 'rackless verify pair' 2
say 'rackless bench pair --quick' 3
say 'rackless down pair' 1
