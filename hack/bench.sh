#!/usr/bin/env bash
# Measures rackless: first the Go benchmarks of the packages whose speed users feel, in the format that benchstat reads, then whole labs.
#
#   hack/bench.sh                 all
#   hack/bench.sh packages [ARG]  go test -bench, ARG goes on to it
#   hack/bench.sh hosts [ARG]     inspect against hwloc's lstopo, ARG goes on to go test, e.g. -benchtime=51x
#   hack/bench.sh plans [ARG]     the planner: cases, machines, a large host; ARG goes on to the benchmarks of planbench, e.g. -test.bench=Large
#   hack/bench.sh studies [ARG]   a million figures into the store and out of it as a report, ARG goes on to go test
#   hack/bench.sh adapters [ARG]  emulated ConnectX adapters against soft RoCE, ARG goes on to the benchmarks of labbench
#   hack/bench.sh simulations [ARG]  packets over links in a second, and memory of idle ports and queue pairs, ARG goes on to go test
#   hack/bench.sh labs [ARG]      labs, ARG goes on to the benchmarks of labbench, e.g. -test.bench='Lab/(pair|sixteen)$'
#
# GO names the go command, and ROUNDS how often plans and labs measure each case (5). Where virtme-ng is installed (pip install virtme-ng; apt-get install kmod), one of its nodes is timed in the same run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go=${GO:-go}

packages() {
	"$go" test -run='^$' -bench=. -benchmem -count=5 "$@" ./rdma/fabric ./lab ./bench/tool ./machine/inspect/... ./report/hostview ./machine/diagnose ./plan/...
}

# fetch_kernel prints the path of the kernel of the nodes, unpacked as virtme-ng wants it, or nothing.
fetch_kernel() {
	command -v vng >/dev/null || return 0
	local dir=${RACKLESS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rackless}/vng package
	package=$(apt-cache depends --important linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
	if [ ! -e "$dir/boot/vmlinuz-${package#linux-image-}" ]; then
		mkdir -p "$dir"
		(cd "$dir" && apt-get -q -o APT::Sandbox::User= download "$package" && dpkg-deb -x "$package"_*.deb . && rm -- "$package"_*.deb) >&2
	fi
	echo "$dir/boot/vmlinuz-${package#linux-image-}"
}

hosts() {
	RACKLESS_BENCH=$PWD/bin/rackless "$go" test -run='^$' -bench='AgainstLstopo/(live|directory)' -benchtime=21x "$@" ./machine/inspect
	RACKLESS_BENCH=$PWD/bin/rackless "$go" test -run='^$' -bench='AgainstLstopo/snapshots' -benchtime=5x "$@" ./machine/inspect
}

plans() {
	local rackless=$PWD/bin/rackless
	"$go" test -c -o bin/planbench.test ./plan/planbench
	(cd plan/planbench && ../../bin/planbench.test -test.run='^$' -test.bench=. -test.benchtime=1x -test.count="${ROUNDS:-5}" -test.timeout=0 \
		-rackless "$rackless" "$@")
}

studies() {
	"$go" test -run='^$' -bench='BenchmarkSamples|OfAMillion' -benchtime=1x -count=5 "$@" ./study/store ./study/stats ./study/conduct
}

simulations() {
	"$go" test -run='^$' -bench=. -benchtime=1x -count="${ROUNDS:-5}" "$@" ./rdma/simulate
}

labs() {
	local kernel rackless=$PWD/bin/rackless
	kernel=$(fetch_kernel)
	"$go" test -c -o bin/labbench.test ./rack/labbench
	# All cases once, and again, and not one case after the other: a busy minute falls on all of them.
	for ((round = 0; round < ${ROUNDS:-5}; round++)); do
		(cd rack/labbench && ../../bin/labbench.test -test.run='^$' -test.bench=Lab -test.benchtime=1x -test.timeout=0 -rackless "$rackless" \
			-vng-kernel "$kernel" "$@")
	done
}

# adapters measures all cases in each round, as labs does. The server alone, without guests: go test -bench=Write ./rdma/connectx
adapters() {
	local rackless=$PWD/bin/rackless
	"$go" test -c -o bin/labbench.test ./rack/labbench
	for ((round = 0; round < ${ROUNDS:-5}; round++)); do
		(cd rack/labbench && ../../bin/labbench.test -test.run='^$' -test.bench=Adapters -test.benchtime=1x -test.timeout=0 \
			-rackless "$rackless" "$@")
	done
}

what=${1:-all}
[ $# -eq 0 ] || shift
case $what in
packages) packages "$@" ;;
hosts) hosts "$@" ;;
plans) plans "$@" ;;
studies) studies "$@" ;;
simulations) simulations "$@" ;;
labs) labs "$@" ;;
adapters) adapters "$@" ;;
all)
	packages "$@"
	hosts "$@"
	plans "$@"
	studies "$@"
	simulations "$@"
	labs "$@"
	adapters "$@"
	;;
*)
	echo "usage: hack/bench.sh [packages|hosts|plans|studies|simulations|labs|adapters] [ARGUMENT]..." >&2
	exit 2
	;;
esac
