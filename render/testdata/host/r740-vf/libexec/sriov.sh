#!/bin/sh
# rackless test plan of lab r740 (r740.yaml) for r740
# Makes the virtual functions that the plan hands out, gives them their MAC addresses and leaves them to
# vfio-pci. A change of the number goes by way of 0 and is refused while a function is in use. stop makes the
# number what it was.

lab='r740'
# Physical function, virtual functions that it has to have.
pfs='0000:3b:00.0 4'
# Physical function, number of the virtual one, its MAC address, and the GUID made of it for InfiniBand
# (EUI-64).
vfs='0000:3b:00.0 3 52:54:00:08:24:38 50:54:00:ff:fe:08:24:38'
# The fabric's MTU: the port of the physical function drops larger frames.
mtu='9000'
# on lets a guest change its MAC address and listen to everything (tcpdump, bridges in the guest); set it to
# off for guests that are not yours.
trust='on'
# on drops frames that a guest sends with another MAC address than its own; the same choice.
spoofchk='off'

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
state=$root/run/rackless/$lab/sriov
pci=$root/sys/bus/pci

driver() {
    [ ! -L "$pci/devices/$1/driver" ] || basename "$(readlink "$pci/devices/$1/driver")"
}
is_bound() { [ "$(driver "$1")" = "$2" ]; }
is_free() { [ -z "$(driver "$1")" ]; }

# netdev PF prints the network device of a physical function, not those that stand for its virtual ones (pf0vf3).
netdev() {
    for dir in "$pci/devices/$1"/net/*; do
        [ -e "$dir" ] || continue
        case $(get "$dir/phys_port_name") in
        *vf* | *sf*) continue ;;
        esac
        say "${dir##*/}"
        return
    done
    return 1
}
has_netdev() { netdev "$1" >/dev/null; }

# vf PF INDEX prints the address of a virtual function.
vf() { basename "$(readlink "$pci/devices/$1/virtfn$2")"; }
has_vf() { [ -L "$pci/devices/$1/virtfn$2" ]; }

# in_use ADDRESS says why a virtual function may not be taken away or changed.
in_use() {
    case $(driver "$1") in
    '') return 1 ;;
    vfio-pci)
        node=$root/dev/vfio/$(basename "$(readlink "$pci/devices/$1/iommu_group")")
        # Without fuser nobody can tell whether a guest runs: then it counts as running.
        if command -v fuser >/dev/null 2>&1 && [ -z "$(fuser "$node" 2>/dev/null || :)" ]; then
            return 1
        fi
        say "it is with vfio-pci, where a guest has it"
        ;;
    *)
        for dir in "$pci/devices/$1"/net/*; do
            case $(get "$dir/operstate") in
            up)
                say "${dir##*/} is up on the host"
                return 0
                ;;
            esac
        done
        return 1
        ;;
    esac
}

# set_count PF COUNT makes the number of virtual functions.
set_count() {
    dir=$pci/devices/$1
    now=$(get "$dir/sriov_numvfs")
    [ "$now" != "$2" ] || return 0
    i=0
    while [ "$i" -lt "${now:-0}" ]; do
        why=$(in_use "$(vf "$1" "$i")") && fail "$1 has $now virtual functions and needs $2; number $i is in use: $why. The number only changes by way of 0: stop its users first"
        i=$((i + 1))
    done
    # The kernel refuses to go from one number to another (EBUSY); it has to be 0 in between.
    if [ "${now:-0}" != 0 ]; then
        put 0 "$dir/sriov_numvfs" || fail "$1 does not give up its $now virtual functions: see dmesg"
    fi
    put "$2" "$dir/sriov_numvfs" || :
    if [ "$(get "$dir/sriov_numvfs")" != "$2" ]; then
        put "${now:-0}" "$dir/sriov_numvfs" || :
        fail "$1 does not make $2 virtual functions. See the end of dmesg: \"not enough MMIO resources\" asks for SR-IOV and 64-bit addresses (above 4G) in the firmware, or for pci=realloc"
    fi
    [ "$2" = 0 ] || wait_for has_vf "$1" $(($2 - 1)) || fail "$1: virtual function $(($2 - 1)) does not appear"
}

# address_of PF INDEX MAC GUID sets what a virtual function is known by. It has to be there before the function gets a driver: RDMA takes its node
# GUID from it, and rdma_cm fails with a GUID of zeros.
address_of() {
    dev=$(netdev "$1")
    # 32 is ARPHRD_INFINIBAND: there GUIDs stand for MAC addresses.
    if [ "$(get "$root/sys/class/net/$dev/type")" = 32 ]; then
        ip link set dev "$dev" vf "$2" node_guid "$4" || fail "$dev: virtual function $2 takes no node GUID"
        ip link set dev "$dev" vf "$2" port_guid "$4" || fail "$dev: virtual function $2 takes no port GUID"
        ip link set dev "$dev" vf "$2" state auto || warn "$dev: virtual function $2 takes no link state"
        return
    fi
    ip link set dev "$dev" vf "$2" mac "$3" || fail "$dev: virtual function $2 does not take MAC address $3"
    # Not every driver knows these two; RDMA works without.
    ip link set dev "$dev" vf "$2" trust "$trust" || warn "$dev: virtual function $2: trust cannot be set"
    ip link set dev "$dev" vf "$2" spoofchk "$spoofchk" || warn "$dev: virtual function $2: spoofchk cannot be set"
}

# to_vfio ADDRESS hands a virtual function to vfio-pci, so that nothing on the host uses it and the guest finds it fresh.
to_vfio() {
    put vfio-pci "$pci/devices/$1/driver_override" || fail "$1 takes no driver_override"
    if ! is_free "$1"; then
        put "$1" "$pci/devices/$1/driver/unbind" || :
        wait_for is_free "$1" || fail "$1 stays with $(driver "$1")"
    fi
    put "$1" "$pci/drivers_probe" || :
    wait_for is_bound "$1" vfio-pci || fail "$1 does not go to vfio-pci: see dmesg"
}

start() {
    modprobe vfio-pci || [ -d "$pci/drivers/vfio-pci" ] || fail "the kernel has no vfio-pci"
    while read -r pf count; do
        dir=$pci/devices/$pf
        [ -d "$dir" ] || fail "$pf is not there: has the machine changed since the plan was made?"
        [ -e "$dir/sriov_totalvfs" ] || fail "$pf offers no SR-IOV: switch it on in the NIC's firmware (firmware/nic.sh) and in the BIOS (firmware/bios.md)"
        total=$(get "$dir/sriov_totalvfs")
        [ "$total" -ge "$count" ] || fail "$pf offers $total virtual functions, $count are needed: raise NUM_OF_VFS (firmware/nic.sh)"
        wait_for has_netdev "$pf" || fail "$pf has no network device: its driver is not loaded, or it is given to a guest itself"
    done <<EOF
$pfs
EOF
    while read -r pf count; do
        dir=$pci/devices/$pf
        keep "$pf.numvfs" "$(get "$dir/sriov_numvfs")"
        dev=$(netdev "$pf")
        keep "$pf.mtu" "$(get "$root/sys/class/net/$dev/mtu")"
        probe=$(get "$dir/sriov_drivers_autoprobe")
        # Without drivers at first, so that none of them sees an address of zeros.
        [ -z "$probe" ] || put 0 "$dir/sriov_drivers_autoprobe" || :
        set_count "$pf" "$count"
        [ -z "$probe" ] || put "$probe" "$dir/sriov_drivers_autoprobe" || :
        # The port drops frames that are larger than what the physical function is set to.
        if [ "$(get "$root/sys/class/net/$dev/mtu")" -lt "$mtu" ]; then
            ip link set dev "$dev" mtu "$mtu" || fail "$dev does not take MTU $mtu"
        fi
        ip link set dev "$dev" up || fail "$dev does not come up"
    done <<EOF
$pfs
EOF
    while read -r pf index mac guid; do
        address=$(vf "$pf" "$index")
        dev=$(netdev "$pf")
        if is_bound "$address" vfio-pci && ip link show dev "$dev" | grep -qiE "vf $index .*($mac|$guid)"; then
            say "$pf virtual function $index: $address, $mac, as before"
            continue
        fi
        why=$(in_use "$address") && fail "virtual function $index of $pf ($address) has another address, and is in use: $why"
        address_of "$pf" "$index" "$mac" "$guid"
        to_vfio "$address"
        say "$pf virtual function $index: $address, $mac"
    done <<EOF
$vfs
EOF
    # The rest are the host's: they get their drivers where the host gives them any.
    while read -r pf count; do
        [ "$(get "$pci/devices/$pf/sriov_drivers_autoprobe")" != 0 ] || continue
        i=0
        while [ "$i" -lt "$count" ]; do
            address=$(vf "$pf" "$i")
            ! is_free "$address" || put "$address" "$pci/drivers_probe" || :
            i=$((i + 1))
        done
    done <<EOF
$pfs
EOF
}

stop() {
    while read -r pf index rest; do
        has_vf "$pf" "$index" || continue
        address=$(vf "$pf" "$index")
        why=$(in_use "$address") && fail "virtual function $index of $pf ($address) is in use: $why: shut the guest down first"
    done <<EOF
$vfs
EOF
    while read -r pf index rest; do
        has_vf "$pf" "$index" || continue
        address=$(vf "$pf" "$index")
        put '' "$pci/devices/$address/driver_override" || :
        if is_bound "$address" vfio-pci; then
            put "$address" "$pci/devices/$address/driver/unbind" || :
            wait_for is_free "$address" || fail "$address stays with vfio-pci"
        fi
    done <<EOF
$vfs
EOF
    while read -r pf count; do
        [ -e "$state/$pf.numvfs" ] || continue
        set_count "$pf" "$(get "$state/$pf.numvfs")"
        dev=$(netdev "$pf")
        ip link set dev "$dev" mtu "$(get "$state/$pf.mtu")" || warn "$dev does not take its old MTU back"
        rm -f "$state/$pf.numvfs" "$state/$pf.mtu"
    done <<EOF
$pfs
EOF
}

status() {
    missing=0
    while read -r pf count; do
        say "$pf: $(get "$pci/devices/$pf/sriov_numvfs") virtual functions, $count wanted"
        [ "$(get "$pci/devices/$pf/sriov_numvfs")" = "$count" ] || missing=1
    done <<EOF
$pfs
EOF
    while read -r pf index mac guid; do
        if ! has_vf "$pf" "$index"; then
            say "$pf virtual function $index: not there"
            missing=1
            continue
        fi
        address=$(vf "$pf" "$index")
        say "$pf virtual function $index: $address, wants $mac, driver $(driver "$address")"
        is_bound "$address" vfio-pci || missing=1
    done <<EOF
$vfs
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
