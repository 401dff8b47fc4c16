#!/usr/bin/env bash
# Puts the benchmark of Mooncake's transfer engine on nodes of a lab, from its wheel in PyPI. The wheel (46 MB) is fetched
# once, and what the benchmark needs of it is kept in the cache. Nothing is installed on this machine.
#
#   hack/mooncake.sh cluster vm00 vm01
set -euo pipefail

wheel=mooncake-transfer-engine-non-cuda==0.3.13.post1
python=311 # that of Debian 12, which the nodes have
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/mooncake
packed=$cache/${wheel##*==}.tar.gz
rackless=$(dirname "$0")/../bin/rackless
lab=$1
shift

if [ ! -s "$packed" ]; then
	echo "downloading $wheel from PyPI, 46 MB"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version "$python" --dest "$work" "$wheel"
	python3 -m zipfile -e "$work"/*.whl "$work/mooncake"
	chmod 755 "$work/mooncake/mooncake/transfer_engine_bench"
	mkdir -p "$cache"
	(cd "$work/mooncake" && tar -c mooncake/transfer_engine_bench ./*.libs ./*.dist-info | gzip >"$packed.new")
	mv "$packed.new" "$packed"
fi
for node; do
	if "$rackless" exec -n "$lab/$node" -- test -x /usr/local/bin/transfer_engine_bench; then continue; fi
	"$rackless" cp "$packed" "$lab/$node:/root/mooncake.tar.gz"
	"$rackless" exec -n "$lab/$node" -- sh -ec 'mkdir -p /opt/mooncake && tar -C /opt/mooncake -xzf /root/mooncake.tar.gz
		rm /root/mooncake.tar.gz
		ln -sf /opt/mooncake/mooncake/transfer_engine_bench /usr/local/bin/'
done
