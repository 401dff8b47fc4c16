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

mkdir -p "$cache"
[ $# -gt 0 ] || set -- ansible reframe nova kubevirt apiserver kubelet axe incus
for judge; do
	case $judge in
	ansible) install ansible 'ansible-core==2.19.14' ;;
	reframe) install reframe 'ReFrame-HPC==4.10.4' ;;
	nova) install nova 'nova==34.0.0' ;;
	kubevirt)
		(cd / && "${GO:-go}" mod download kubevirt.io/kubevirt@v1.6.0)
		build kubevirt render/export
		;;
	axe)
		# One file of it is read, in the browser of the tests.
		if [ ! -s "$cache/axe/package/axe.min.js" ]; then
			mkdir -p "$cache/axe"
			(cd "$cache/axe" && tar xzf "$(npm pack --silent axe-core@4.14.1)")
		fi
		;;
	incus)
		# Debian's packages with what they need, unpacked; Debian 12 has them in its backports.
		if [ ! -x "$cache/incus/usr/libexec/incus/incusd" ]; then
			debs=$(mktemp -d)
			# shellcheck source=/dev/null
			release=$(. /etc/os-release && echo "$VERSION_CODENAME-backports")
			apt-cache policy | grep -q -F "a=$release" || release=
			packages=$(apt-get install --no-install-recommends -s ${release:+-t "$release"} incus-base incus-client |
				awk '/^Inst/ && $2 !~ /^(login|passwd)$/ { print $2 }')
			# shellcheck disable=SC2086
			(cd "$debs" && apt-get -q -o APT::Sandbox::User= ${release:+-t "$release"} download $packages)
			for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$cache/incus"; done
			rm -r "$debs"
		fi
		;;
	apiserver)
		(cd / && "${GO:-go}" mod download kubevirt.io/kubevirt@v1.6.0 \
			github.com/k8snetworkplumbingwg/network-attachment-definition-client@v1.7.7 \
			github.com/k8snetworkplumbingwg/sriov-network-operator@v1.6.0)
		build apiserver render/export
		;;
	kubelet) build kubelet plan/rivals ;;
	*)
		echo "judges.sh: $judge: want kubelet, ansible, reframe, nova, kubevirt, apiserver, axe or incus" >&2
		exit 2
		;;
	esac
done
