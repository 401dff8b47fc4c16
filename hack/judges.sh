#!/usr/bin/env bash
# Installs what judges the formats of rackless export, and its pages: the tools that read them, each in a Python environment of its own
# in the cache, and the source of KubeVirt in that of Go modules. Nothing is installed on the machine. docs/export.md says what each one judges.
#
#   hack/judges.sh          all of them
#   hack/judges.sh ansible  one
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/judges

# install makes environment $1 with the packages that follow, unless it has them already.
install() {
	local name=$1
	shift
	if [ "$(cat "$cache/$name/packages" 2>/dev/null)" = "$*" ]; then return; fi
	echo "installing $* in $cache/$name"
	rm -rf "${cache:?}/$name"
	python3 -m venv "$cache/$name"
	"$cache/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
	echo "$*" >"$cache/$name/packages"
}

# build makes the program $1 beside the tests of package $2, a module of its own.
build() {
	mkdir -p "$cache/$1"
	(cd "$(dirname "$0")/../$2/testdata/$1" && CGO_ENABLED=0 "${GO:-go}" build -o "$cache/$1/$1" .)
}

# unpack puts Debian's package $3 and its dependencies into environment $1, unless program $2 is there already.
unpack() {
	local name=$1 program=$2 debs packages
	if [ -x "$cache/$name/$program" ]; then return; fi
	debs=$(mktemp -d)
	# What is installed need not be unpacked.
	packages=$(apt-get install --no-install-recommends -s "$3" | awk '/^Inst/ && $2 !~ /^(login|passwd)$/ { print $2 }')
	# shellcheck disable=SC2086
	(cd "$debs" && apt-get -q -o APT::Sandbox::User= download $packages)
	for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$cache/$name"; done
	rm -r "$debs"
}

mkdir -p "$cache"
[ $# -gt 0 ] || set -- ansible nova kubevirt apiserver kubelet axe openmpi
for judge; do
	case $judge in
	ansible) install ansible 'ansible-core==2.19.14' ;;
	nova) install nova 'nova==34.0.0' ;;
	kubevirt)
		(cd / && "${GO:-go}" mod download kubevirt.io/kubevirt@v1.6.0)
		build kubevirt plan/render/export
		;;
	axe)
		# One file of it is read, in the browser of the tests.
		if [ ! -s "$cache/axe/package/axe.min.js" ]; then
			mkdir -p "$cache/axe"
			(cd "$cache/axe" && tar xzf "$(npm pack --silent axe-core@4.14.1)")
		fi
		;;
	openmpi) unpack openmpi usr/bin/mpirun.openmpi openmpi-bin ;;
	apiserver)
		(cd / && "${GO:-go}" mod download kubevirt.io/kubevirt@v1.6.0 \
			github.com/k8snetworkplumbingwg/network-attachment-definition-client@v1.7.7 \
			github.com/k8snetworkplumbingwg/sriov-network-operator@v1.6.0)
		build apiserver plan/render/export
		;;
	kubelet) build kubelet plan/render/export ;;
	nccl)
		# Not among all: it takes a checkout of github.com/NVIDIA/nccl, which NCCL_SOURCE names (v2.30.7 was tried), and g++.
		install cuda nvidia-cuda-runtime-cu12==12.4.127 nvidia-cuda-nvcc-cu12==12.4.131 nvidia-cuda-cccl-cu12==12.9.27
		cuda=$(echo "$cache"/cuda/lib/python3*/site-packages/nvidia)
		mkdir -p "$cache/nccl/include"
		# shellcheck disable=SC2016
		sed 's/${nccl:Major}/2/; s/${nccl:Minor}/30/; s/${nccl:Patch}/7/; s/${nccl:Suffix}//; s/${nccl:Version}/23007/' \
			"$NCCL_SOURCE/src/nccl.h.in" >"$cache/nccl/include/nccl.h"
		sources=$(printf "$NCCL_SOURCE/src/%s " graph/{xml,topo,paths}.cc misc/{utils,param}.cc os/linux.cc)
		# What is not there is about GPUs, and is not called.
		# shellcheck disable=SC2086
		g++ -std=c++17 -w -fpermissive -no-pie -DNCCL_OS_LINUX=1 -I"$cache/nccl/include" -I"$NCCL_SOURCE/src/include" \
			-I"$NCCL_SOURCE/src/include/plugin" -I"$NCCL_SOURCE/src/graph" -I"$cuda/cuda_runtime/include" \
			-I"$cuda/cuda_nvcc/include" -I"$cuda/cuda_cccl/include" -o "$cache/nccl/nccl" \
			"$(dirname "$0")/../plan/render/testdata/nccl/main.cc" $sources -Wl,--unresolved-symbols=ignore-all -lpthread
		;;
	*)
		echo "judges.sh: $judge: want kubelet, ansible, nova, kubevirt, apiserver, axe, openmpi or nccl" >&2
		exit 2
		;;
	esac
done
