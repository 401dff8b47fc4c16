#!/usr/bin/env bash
# Puts a library that moves the caches of language models on nodes of a lab, from its wheel in PyPI: Mooncake's transfer
# engine with its benchmark, or NIXL. The wheel is fetched once, and what a test needs of it is kept in the cache. Nothing
# is installed on this machine.
#
#   hack/wheels.sh mooncake cluster vm00 vm01
#   hack/wheels.sh nixl cluster vm00 vm01
# shellcheck disable=SC2016 # nodes expand what is in single quotes
set -euo pipefail

die() {
	printf 'wheels.sh: %s\n' "$*" >&2
	exit 1
}
[ $# -ge 3 ] || die "want mooncake or nixl, a lab and its nodes"
tool=$1 lab=$2
shift 2
rackless=$(dirname "$0")/../bin/rackless

# What a test needs of the wheel, and what each node does when it has that in /opt/TOOL.
case $tool in
mooncake)
	wheel=mooncake-transfer-engine-non-cuda==0.3.13.post1
	pack() { tar -c mooncake/transfer_engine_bench ./*.libs ./*.dist-info; }
	after='chmod 755 mooncake/transfer_engine_bench && ln -sf "$PWD/mooncake/transfer_engine_bench" /usr/local/bin/'
	;;
nixl)
	wheel=nixl-cu12==1.5.1
	pack() { # UCX is the one plugin; the others bring the clients of clouds
		tar -c --exclude='*aws*' --exclude='*azure*' --exclude='libplugin_[!U]*' --exclude='*_cuda.so*' \
			nixl_cu12 nixl_cu12.libs .nixl_cu12.mesonpy.libs ./*.dist-info
	}
	# The wheel brings a libibverbs of its own, which has the driver of mlx5 and of no other device.
	after='for l in ibverbs mlx5; do for f in *.libs/lib$l-*.so*; do
		ln -sf "/usr/lib/$(uname -m)-linux-gnu/lib$l.so.1" "$f"; done; done'
	;;
*) die "no wheel for $tool: want mooncake or nixl" ;;
esac

# A wheel is made for one Python.
python=$("$rackless" exec -n "$lab/$1" -- python3 -c 'import sys; print("%d%d" % sys.version_info[:2])') ||
	die "$lab/$1 has no Python: say image: debian-12+ai in the lab file"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/$tool
packed=$cache/${wheel##*==}-$python.tar.gz

if [ ! -s "$packed" ]; then
	echo "downloading $wheel for Python $python from PyPI"
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--python-version "$python" --dest "$work" "$wheel" || die "PyPI has no $wheel for Python $python, which $lab/$1 has"
	python3 -m zipfile -e "$work"/*.whl "$work/wheel"
	mkdir -p "$cache"
	(cd "$work/wheel" && pack | gzip >"$packed.new")
	mv "$packed.new" "$packed"
fi
for node; do
	if "$rackless" exec -n "$lab/$node" -- test -e "/opt/$tool/done"; then continue; fi
	"$rackless" cp "$packed" "$lab/$node:/root/wheel.tar.gz"
	"$rackless" exec -n "$lab/$node" -- sh -ec "mkdir -p /opt/$tool && cd /opt/$tool && tar -xzf /root/wheel.tar.gz
		rm /root/wheel.tar.gz
		$after
		touch done"
done
