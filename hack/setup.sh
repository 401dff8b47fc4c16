#!/usr/bin/env bash
# Installs what rackless needs on this machine: only what is missing, after saying what and why.
# It serves Debian 12 and newer; anywhere else it names what is missing and stops.
#
#   hack/setup.sh lab    what "make lab" needs
#   hack/setup.sh emulate  that, and what "rackless emulate" needs
#   hack/setup.sh cluster  that, and what "make cluster-demo" needs
#   hack/setup.sh test   that, and what "make test" needs
#   hack/setup.sh race   that, and what "make race" needs
#   hack/setup.sh go     prints the go command to use, installs nothing
#
# GO names a go command to prefer. Every package is justified in docs/dependencies.md.
# shellcheck disable=SC2016 # $(NAME) in single quotes is apt's
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
min_go=1.21  # the oldest Go that fetches the toolchain that go.mod names, by GOTOOLCHAIN=auto
min_qemu=8.0 # the first with the igb NIC; what is tested is 10.0

die() {
	printf 'setup.sh: %s\n' "$*" >&2
	exit 1
}

# at_least reports whether version $1 is $2 or newer.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# mod_go prints the Go version that go.mod asks for.
mod_go() { sed -n 's/^go //p' "$here/../go.mod"; }
# find_go prints the path of a go command: one that is as new as go.mod asks for if there is one, else one that
# can fetch it. Debian's versioned packages put theirs beside PATH, in /usr/lib/go-1.N/bin.
find_go() {
	local go have usable='' want
	want=$(mod_go)
	# shellcheck disable=SC2012 # Debian chose the names: nothing odd is in them
	for go in ${GO:+"$GO"} "$(command -v go || true)" /usr/local/go/bin/go \
		$(ls -d /usr/lib/go-1.*/bin/go 2>/dev/null | sort -rV); do
		[ -x "$go" ] || continue
		# Outside the checkout and with GOTOOLCHAIN=local, or go would start fetching to answer.
		have=$(cd / && GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null | sed 's/^.*go//') || continue
		if at_least "${have:-0}" "$want"; then
			echo "$go"
			return
		fi
		if at_least "${have:-0}" "$min_go"; then usable=${usable:-$go}; fi
	done
	[ -n "$usable" ] && echo "$usable"
}
have_qemu() {
	local have
	have=$(qemu-system-x86_64 --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9.]*\).*/\1/p') || return 1
	at_least "${have:-0}" "$min_qemu"
}
have_certificates() {
	local file
	for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
		if [ -s "$file" ]; then return; fi
	done
	return 1
}
# have_lists reports whether apt knows any package. It asks no apt command: without a cache they take seconds.
have_lists() { compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }
have() { command -v "$1" >/dev/null; }

# HiGHS is a solver that judges the planner in tests. Debian has no package of it for Python, so it is in an
# environment of its own, in the cache where the tests look.
highs=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/highs
install_highs() {
	if ! for_tests "$mode" || "$highs/bin/python" -c 'import highspy' 2>/dev/null; then return; fi
	echo "installing HiGHS in $highs, which takes 110 MB with NumPy: it judges the planner in tests"
	if ! { python3 -m venv "$highs" && "$highs/bin/pip" install --quiet 'highspy==1.16.0'; }; then
		echo "HiGHS could not be installed: the test that needs it is skipped" >&2
	fi
}

# Slurm judges what is written for it in tests, which run its daemons by themselves: it is unpacked and not installed.
slurm=${XDG_CACHE_HOME:-$HOME/.cache}/rackless/slurm
unpack_slurm() {
	if ! for_tests "$mode" || [ -x "$slurm/usr/sbin/slurmctld" ]; then return; fi
	echo "unpacking Slurm in $slurm, which takes 13 MB: it judges what is written for it in tests; nothing is installed"
	rm -rf "$slurm.new"
	mkdir -p "$slurm.new/debs"
	# What is installed already is not among them.
	# shellcheck disable=SC2046 # a word is the name of a package
	if (cd "$slurm.new/debs" && apt-get --quiet=2 -o APT::Sandbox::User= download $(apt-get --simulate \
		--no-install-recommends install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge |
		sed -n 's/^Inst \([^ ]*\) .*(\([^ ]*\) .*/\1=\2/p') && for deb in *.deb; do dpkg-deb -x "$deb" ..; done); then
		rm -rf "$slurm.new/debs" "$slurm"
		# The packages' scripts would make these links.
		for program in slurmctld slurmd slurmstepd; do
			[ -e "$slurm.new/usr/sbin/$program" ] || ln -s "$program-wlm" "$slurm.new/usr/sbin/$program"
		done
		mv "$slurm.new" "$slurm"
	else
		rm -rf "$slurm.new"
		echo "Slurm could not be unpacked: the tests that need it are skipped" >&2
	fi
}

# for_tests reports whether the mode $1 is one that runs tests.
for_tests() { [ "$1" = test ] || [ "$1" = race ]; }

# need notes that Debian's package $1 is missing, which elsewhere is called $2 and is wanted because of $3.
packages=() reports=() # reports hold what people read
need() {
	packages+=("$1")
	reports+=("$(printf '%-16s %s: %s' "$1" "$2" "$3")")
}

# survey notes what the mode $1 needs and is not there.
survey() {
	have_certificates || need ca-certificates "TLS root certificates" "go and apt fetch over https"
	find_go >/dev/null || need golang-1.N-go "Go $min_go or newer" \
		"compiles rackless; go.mod asks for $(mod_go), which an older Go fetches itself"
	[ "$(uname -m)" = aarch64 ] || have_qemu || need qemu-system-x86 "QEMU $min_qemu or newer" "runs the nodes of a lab"
	if [ "$(uname -m)" = aarch64 ] || for_tests "$1"; then
		have qemu-system-aarch64 || need qemu-system-arm "QEMU for Arm" "runs arm64 nodes; in tests, libvirt asks it what Arm domains may have"
	fi
	if [ "$1" != lab ]; then
		have mmdebstrap || need mmdebstrap "mmdebstrap" "builds the disk of emulated hosts"
		have qemu-img || need qemu-utils "qemu-img" "the same, and the disk of each host over it"
		have mke2fs || need e2fsprogs "mke2fs" "makes the disk that has rackless on emulated hosts"
		have newuidmap || need uidmap "newuidmap" "lets mmdebstrap work for users other than root"
	fi
	if [ "$1" = cluster ] || for_tests "$1"; then
		python3 -m pip --version >/dev/null 2>&1 || need python3-pip "pip" "downloads wheels into images of nodes with Mooncake and NIXL"
	fi
	if for_tests "$1"; then
		have xz || need xz-utils "xz" "makes compressed kernels and modules for tests"
		have tshark || need tshark "Wireshark's tshark" "judges the RoCE packets and captures in tests"
		have chromium || need chromium "Chromium" "opens the HTML report in tests"
		have lstopo-no-graphics || need hwloc-nox "hwloc's lstopo" "judges what inspect finds in tests"
		have lspci || need pciutils "lspci" "its output is read by tests"
		have virsh || need libvirt-clients "libvirt's virsh and schema" "define tenants and judge domains in tests"
		have libvirtd || need libvirt-daemon "libvirt's daemon" "takes the domains of plans in tests"
		compgen -G '/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so' >/dev/null ||
			need libvirt-daemon-driver-qemu "libvirt's QEMU driver" "takes the domains of plans in tests"
		have grub-mkconfig || need grub-common "GRUB's grub-mkconfig" "judges kernel arguments that are prepared, in tests"
		have kernel-install || need systemd "systemd's kernel-install" "the same, for boot entries, and units are run by it in tests"
		have stress-ng || need stress-ng "stress-ng" "the load of studies on the host"
		have ssh-keygen || need openssh-client "OpenSSH's client" "libvirt reaches other hosts by it in tests"
		python3 -c "import ensurepip" 2>/dev/null || need python3-venv "Python with venv" "installs HiGHS, which judges the planner in tests"
		have gcc || need gcc "a C compiler" "compiles the libraries of emulated GPUs in tests; Go's race detector is linked with it"
		[ -e /usr/include/stdlib.h ] || need libc6-dev "the C library's headers" "the same"
		have shellcheck || need shellcheck "shellcheck" "judges the program that plans give to guests"
		have xmllint || need libxml2-utils "xmllint" "libvirt's virt-xml-validate runs it"
		[ -d /usr/share/OVMF ] || need ovmf "UEFI for x86_64" "domains of plans boot by it; libvirt looks for it in tests"
		[ -d /usr/share/AAVMF ] || need qemu-efi-aarch64 "UEFI for Arm" "the same, of plans for Arm hosts"
	fi
}

# become_root stops with the command to run if as_root cannot work.
become_root() {
	if [ "$(id -u)" -eq 0 ]; then return; fi
	if have sudo && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then return; fi
	die "this needs root, and sudo is missing or refuses; run this as root, then make again:

    $here/setup.sh $mode
"
}
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
# apt_get is apt-get as root: it asks nothing, prints errors only, waits for another apt and keeps the proxy for sudo.
apt_get() {
	echo "apt-get $*"
	as_root env DEBIAN_FRONTEND=noninteractive ${http_proxy:+"http_proxy=$http_proxy"} \
		${https_proxy:+"https_proxy=$https_proxy"} ${no_proxy:+"no_proxy=$no_proxy"} \
		apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold "$@" </dev/null >/dev/null
}

# A source that has nothing to do with rackless may be broken: what the others gave will show whether it is enough.
update() { apt_get update || echo "apt-get update failed in part: going on with the lists there are" >&2; }
# has_suite reports whether apt's sources have the suite $1, be it as oldstable-backports or the like.
has_suite() {
	apt-get indextargets --format '$(RELEASE) $(CODENAME)' 'Created-By: Packages' | tr ' ' '\n' | grep -x "$1" >/dev/null
}

# enable_backports adds the suite $1 of the release $2 at the mirror, and with the key, that serve the release now.
# It needs apt's lists: only they tell Debian's own mirror from another archive with a suite of the same name.
enable_backports() {
	local uri entry file key='' added=/etc/apt/sources.list.d/rackless-backports.sources
	read -r uri entry < <(apt-get indextargets --format '$(REPO_URI) $(SOURCESENTRY)' 'Created-By: Packages' \
		'Origin: Debian' "Codename: $2" 'Component: main' | grep -v '^cdrom:') ||
		die "no mirror of Debian $2 in apt's sources, so none for $1: add $1 to them and run this again"
	file=${entry%:*}
	case $file in
	*.sources) key=$(awk -v RS= -v suite="$2" '$0 ~ "(^|\n)Suites:[^\n]*" suite' "$file" |
		sed -n 's/^Signed-By: *//p' | head -n 1) ;;
	*) key=$(sed -n "${entry##*:}p" "$file" | sed -n 's/.*signed-by=\([^] ]*\).*/\1/p') ;;
	esac
	echo "enabling $1 at $uri in $added"
	{
		printf '# Added by rackless, for a QEMU and a Go that are new enough.\n'
		printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$1"
		case $key in /*) printf 'Signed-By: %s\n' "$key" ;; esac # a key written into the stanza itself: apt's own keys
	} | as_root tee "$added" >/dev/null
	update
	if ! compgen -G "/var/lib/apt/lists/*_${1}_*_Packages*" >/dev/null; then
		as_root rm "$added"
		die "$uri does not serve $1 ($added is removed again): add a mirror that does to apt's sources and run this again"
	fi
}

# install_packages installs the missing packages on Debian $1, with $2 the suite of backports, or empty if none is needed.
install_packages() {
	local name others=()
	update
	if [ -n "$2" ] && ! has_suite "$2"; then enable_backports "$2" "$1"; fi
	for name in "${packages[@]}"; do
		if [ "$name" = golang-1.N-go ]; then
			# A versioned package, as it leaves /usr/bin/go to the one that is there.
			name=$(apt-cache search --names-only '^golang-1\.[0-9]+-go$' | sed 's/ .*//' | sort -V | tail -n 1)
			echo "golang-1.N-go: the newest N there is, $name"
		fi
		# With -t, QEMU's own libraries come from backports too, and nothing else does.
		case $name in
		qemu-system-*) apt_get install -y --no-install-recommends ${2:+-t "$2"} "$name" ;;
		*) others+=("$name") ;;
		esac
	done
	if [ ${#others[@]} -gt 0 ]; then apt_get install -y --no-install-recommends "${others[@]}"; fi
}

mode=${1:-lab}
case $mode in
go) if find_go; then exit; else die "no Go $min_go or newer found: run make setup"; fi ;;
lab | emulate | cluster | test | race) ;;
*) die "$mode: unknown mode, want lab, emulate, cluster, test, race or go" ;;
esac
ID='' VERSION_ID='' VERSION_CODENAME='' PRETTY_NAME='an unknown system'
# shellcheck source=/dev/null
if [ -r /etc/os-release ]; then . /etc/os-release; fi
survey "$mode"
case $mode-$(uname -m) in
*-x86_64 | lab-aarch64) this_arch=1 ;; # emulated hosts and their tests are x86-64
*) this_arch='' ;;
esac
if [ "$ID" != debian ] || [ -z "$this_arch" ] || ! at_least "${VERSION_ID:-99}" 12; then
	printf '%s\n' ${reports[@]+"${reports[@]}"} >&2
	die "$PRETTY_NAME on $(uname -m): rackless installs its needs, and makes nodes from packages, on Debian 12 or newer only, on x86_64 and for labs also on aarch64
(a virtual machine or a container will do); missing here: ${packages[*]:-nothing but Debian itself}"
fi
if [ -r /dev/kvm ] && [ -w /dev/kvm ]; then
	echo "/dev/kvm: there; a boot decides whether it works"
else
	echo "/dev/kvm: not there, or not for $(id -un): nodes will be emulated"
fi
if [ ${#packages[@]} -eq 0 ] && have_lists; then
	install_highs
	unpack_slurm
	echo "nothing to install"
	exit
fi

backports=''
case $VERSION_ID:" ${packages[*]-} " in
12*:*" golang-1.N-go "* | 12*:*" qemu-system-"*) backports=$VERSION_CODENAME-backports ;; # 12 has Go 1.19 and QEMU 7.2
esac
echo "setup.sh $mode will do, as root, on $PRETTY_NAME:"
echo "  apt-get update   the newest package lists: for this, and for nodes, which are made from Debian's packages"
if [ -n "$backports" ] && ! has_suite "$backports"; then
	echo "  enable $backports   $VERSION_CODENAME's own Go and QEMU are too old"
fi
if [ ${#packages[@]} -gt 0 ]; then printf '  install %s\n' "${reports[@]}"; fi
become_root
install_packages "$VERSION_CODENAME" "$backports"
packages=()
survey "$mode"
if [ ${#packages[@]} -gt 0 ]; then die "still missing after the installation: ${packages[*]}"; fi
install_highs
unpack_slurm
echo "done"
