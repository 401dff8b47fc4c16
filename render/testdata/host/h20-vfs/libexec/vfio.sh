#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Hands the PCI functions of the lab nodes to vfio-pci by driver_override, which names functions one by one: a
# list of vendor and device numbers (vfio-pci ids=) would take every card of that model. start looks at
# everything before it changes anything. stop gives the functions back to their drivers.

lab='h20-vfs'
# Address, vendor and device, as the plan found them.
devices='0000:08:00.0 0x10de 0x2329
0000:0e:00.0 0x10de 0x2329
0000:1c:00.0 0x10de 0x2329
0000:2a:00.0 0x10de 0x2329
0000:87:00.0 0x10de 0x2329
0000:8d:00.0 0x10de 0x2329
0000:9b:00.0 0x10de 0x2329
0000:a8:00.0 0x10de 0x2329
0000:a1:00.0 0x15b3 0x1021'
# The udev rule that may have bound them already, at boot.
rules='10-rackless-h20-vfs.rules'

set -eu
# RACKLESS_ROOT moves everything that is read and written below another directory, to try this script on a copy. On a machine leave it unset.
root=${RACKLESS_ROOT-}
name=${0##*/}

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "$name" "$*" >&2; }
fail() { warn "$@"; exit 1; }

# put VALUE FILE writes a value and is false where the kernel refuses it.
put() { { printf '%s\n' "$1" >"$2"; } 2>/dev/null; }

# get FILE prints what is in a file, nothing where it cannot be read.
get() { cat "$1" 2>/dev/null || :; }

# keep NAME VALUE remembers how something was, the first time only: a second start must not take our own setting for the old one.
keep() {
    mkdir -p "$state"
    [ -e "$state/$1" ] || printf '%s\n' "$2" >"$state/$1"
}

# wait_for COMMAND... repeats a test for up to 10 seconds: the kernel binds drivers and makes device files on its own time.
wait_for() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || return 1
        sleep 0.1
    done
}
state=$root/run/rackless/$lab/vfio
pci=$root/sys/bus/pci

# driver ADDRESS prints the driver that a function is bound to, nothing where there is none.
driver() {
    [ ! -L "$pci/devices/$1/driver" ] || basename "$(readlink "$pci/devices/$1/driver")"
}
is_bound() { [ "$(driver "$1")" = "$2" ]; }
is_free() { [ -z "$(driver "$1")" ]; }

group() { basename "$(readlink "$pci/devices/$1/iommu_group")"; }

# listed ADDRESS says whether the plan gives the function away.
listed() {
    while read -r other rest; do
        [ "$other" != "$1" ] || return 0
    done <<EOF
$devices
EOF
    return 1
}

# override ADDRESS DRIVER sets driver_override, or clears it where DRIVER is empty, and looks whether that took.
override() {
    put "$2" "$pci/devices/$1/driver_override" || return 1
    case $(get "$pci/devices/$1/driver_override") in
    "$2") ;;
    '(null)' | '') [ -z "$2" ] ;;
    *) return 1 ;;
    esac
}

# holders FILE prints the processes that have a device file open; nothing where that cannot be found out.
holders() {
    [ -e "$1" ] || return 0
    ! command -v fuser >/dev/null 2>&1 || fuser "$1" 2>/dev/null || :
}

# check ADDRESS VENDOR DEVICE refuses whatever could hurt the host, before anything is touched.
check() {
    dir=$pci/devices/$1
    [ -d "$dir" ] || fail "$1 is not there: has the machine changed since the plan was made?"
    # Addresses move when a card is added. A number that the plan does not know is given as "-".
    if [ "$2" != - ] && [ "$(get "$dir/vendor") $(get "$dir/device")" != "$2 $3" ]; then
        fail "$1 is $(get "$dir/vendor") $(get "$dir/device"), and the plan was made for $2 $3: make a new plan"
    fi
    [ -L "$dir/iommu_group" ] || fail "$1 is in no IOMMU group: switch the IOMMU on in the firmware and the kernel (kernel/, firmware/bios.md)"
    for member in "$dir"/iommu_group/devices/*; do
        member=${member##*/}
        # Bridges stay with their driver: VFIO does not count them.
        case $(get "$pci/devices/$member/class") in
        0x0604*) continue ;;
        esac
        case $(driver "$member") in
        '' | vfio-pci | pci-stub) continue ;;
        esac
        listed "$member" ||
            fail "group $(group "$1") of $1 also has $member, which the host uses with $(driver "$member"): the group goes to a guest as a whole or not at all"
    done
    case $(driver "$1") in
    nvidia)
        # Taking a GPU from a driver that a process uses hangs for ever.
        minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$root/proc/driver/nvidia/gpus/$1/information" 2>/dev/null || :)
        busy=$(holders "$root/dev/nvidia$minor")
        [ -z "$busy" ] || fail "$1 is in use by processes $busy: systemctl stop nvidia-persistenced; nvidia-smi -i $1 -pm 0"
        ;;
    esac
}

bind() {
    was=$(driver "$1")
    if [ "$was" = vfio-pci ]; then
        # By our udev rule: then stop gives it back. By somebody else: then it is not ours to give.
        [ ! -e "$root/etc/udev/rules.d/$rules" ] || keep "$1" ''
        say "$1: vfio-pci"
        return
    fi
    keep "$1" "$was"
    # The override first: from here on no other driver can take the function, whoever loads one.
    override "$1" vfio-pci || fail "$1 takes no driver_override"
    if [ -n "$was" ]; then
        put "$1" "$pci/devices/$1/driver/unbind" || :
        wait_for is_free "$1" || fail "$1 stays with $was: something uses it"
    fi
    put "$1" "$pci/drivers_probe" || :
    if ! wait_for is_bound "$1" vfio-pci || ! wait_for [ -e "$root/dev/vfio/$(group "$1")" ]; then
        unbind "$1"
        fail "$1 does not go to vfio-pci, and is back with its own driver: see dmesg"
    fi
    # A card in D3cold may not come back when the guest starts.
    if [ -e "$pci/devices/$1/d3cold_allowed" ]; then
        keep "$1.d3cold" "$(get "$pci/devices/$1/d3cold_allowed")"
        put 0 "$pci/devices/$1/d3cold_allowed" || warn "$1: D3cold cannot be forbidden"
    fi
    say "$1: vfio-pci, before ${was:-no driver}"
}

unbind() {
    override "$1" '' || fail "$1 keeps its driver_override: write a newline to $pci/devices/$1/driver_override"
    if [ "$(driver "$1")" = vfio-pci ]; then
        put "$1" "$pci/devices/$1/driver/unbind" || :
        wait_for is_free "$1" || fail "$1 stays with vfio-pci"
    fi
    was=$(get "$state/$1")
    # Without a driver of before, what a boot would load: the kernel names it by an alias.
    [ -n "$was" ] || was=$(get "$pci/devices/$1/modalias")
    [ -z "$was" ] || modprobe -b "$was" || warn "no module for $1: $was"
    put "$1" "$pci/drivers_probe" || :
}

start() {
    # Everything is looked at before anything is changed.
    while read -r address vendor device; do
        check "$address" "$vendor" "$device"
    done <<EOF
$devices
EOF
    modprobe vfio-pci || [ -d "$pci/drivers/vfio-pci" ] || fail "the kernel has no vfio-pci"
    while read -r address vendor device; do
        bind "$address" </dev/null
    done <<EOF
$devices
EOF
}

stop() {
    while read -r address rest; do
        if [ "$(driver "$address")" = vfio-pci ]; then
            busy=$(holders "$root/dev/vfio/$(group "$address")")
            [ -z "$busy" ] || fail "$address is in use by process $busy: shut the guest down first"
        fi
    done <<EOF
$devices
EOF
    while read -r address rest; do
        [ -e "$state/$address" ] || continue # it was with vfio-pci before us
        if [ -e "$state/$address.d3cold" ]; then
            put "$(get "$state/$address.d3cold")" "$pci/devices/$address/d3cold_allowed" || :
        fi
        unbind "$address" </dev/null
        was=$(get "$state/$address")
        [ -z "$was" ] || wait_for is_bound "$address" "$was" || warn "$address is with $(driver "$address"), before with $was"
        rm -f "$state/$address" "$state/$address.d3cold"
    done <<EOF
$devices
EOF
}

status() {
    missing=0
    while read -r address rest; do
        now=$(driver "$address")
        say "$address: ${now:-no driver}"
        [ "$now" = vfio-pci ] || missing=1
    done <<EOF
$devices
EOF
    return "$missing"
}

case ${1-} in
start | stop | status) "$1" ;;
*)
    printf 'usage: %s start|stop|status\n' "$name" >&2
    exit 2
    ;;
esac
