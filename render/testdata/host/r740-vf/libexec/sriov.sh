#!/bin/sh
# rackless test plan of lab r740 (r740.yaml) for r740
# Makes the virtual functions that the plan hands out, gives them their MAC addresses and leaves them to
# vfio-pci. A change of the number goes by way of 0 and is refused while a function is in use. stop makes the
# number what it was. The last two words of a line vf are trust and spoofchk: on lets a guest change its MAC
# address and listen to everything (tcpdump, bridges in the guest), and drops frames that it sends with
# another MAC address than its own. Set them to off and on for guests that are not yours.

lab='r740'
# What is changed, in order: the functions below say what the words are.
changes='module vfio_iommu_type1 vfio
module vfio_pci vfio_pci_core vfio_virqfd irqbypass vfio
link 0000:3b:00.0 9000
vfs 0000:3b:00.0 0x15b3 0x1021 4
vf 0000:3b:00.0 3 52:54:00:08:24:38 50:54:00:ff:fe:08:24:38 on off
rest 0000:3b:00.0 4'
# Below it is remembered how things were.
memory='/run/rackless'
part='sriov'
usage='start|stop|status'
after=''

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
# Variables are those of the whole script: a function that calls another names its own differently.
#
# Each line of $changes is one change: the function of its first word makes it ($do is start), takes it back (stop), compares it with the
# machine (status), or refuses it before anything is changed (check). wrong becomes 1 where a change is not as it should be.
wrong=0 last=1
state=$root$memory/$lab/$part

# keep NAME VALUE remembers how something was, the first time only: a second start must not take our own setting for the old one.
keep() {
    kept "$1" && return
    place=$state/$1.was
    mkdir -p "${place%/*}"
    printf '%s\n' "$2" >"$place"
}
kept() { [ -e "$state/$1.was" ]; }
old() { get "$state/$1.was"; }
forget() { rm -f "$state/$1.was"; }

# wait_for COMMAND... repeats a test for up to 10 seconds: the kernel binds drivers and makes device files on its own time.
wait_for() {
    waited=0
    until "$@"; do
        waited=$((waited + 1))
        [ "$waited" -lt 100 ] || return 1
        sleep 0.1
    done
}

# amiss TEXT... notes that a change is not as it should be; the others go on. It says so when it is not tried again.
amiss() {
    [ "$last" = 0 ] || warn "$@"
    wrong=1
}

# is TEST HAVE WANT compares two values: the same text, at least a number, or the same mask of CPUs.
is() {
    case $1 in
    least) [ "${2:-0}" -ge "$3" ] ;;
    mask) [ "$(bare "$2")" = "$(bare "$3")" ] ;;
    *) [ "$2" = "$3" ] ;;
    esac
}
bare() { printf '%s\n' "$1" | sed 's/,//g; s/^0*//'; }

# value NEED TEST FILE WANT AGAIN HINT... gives a file of the kernel, or all that a pattern names, a value. Where NEED is may, a kernel without
# the file needs nothing. AGAIN, if it is not -, is a file to which 1 is written before another try.
value() {
    need=$1 test=$2 pattern=$3 want=$4 again=$5 found=0
    shift 5
    IFS=
    for file in $root$pattern; do
        unset IFS
        [ ! -e "$file" ] || found=1
        [ ! -e "$file" ] || settle "$file" "$*"
    done
    unset IFS
    [ "$found" = 1 ] || case $need$do in
    maystart) say "$pattern is not there: nothing to do" ;;
    muststart | muststatus) amiss "$pattern is not there: $*" ;;
    esac
}

# chosen FILE prints a value: of a choice such as "always [madvise] never" the word that is chosen.
chosen() {
    text=$(get "$1")
    case $text in
    *'['*)
        text=${text#*'['}
        text=${text%%']'*}
        ;;
    esac
    say "$text"
}

# settle FILE HINT is value for one file.
settle() {
    now=$(chosen "$1")
    case $do in
    start)
        ! is "$test" "$now" "$want" || return 0
        keep "$1" "$now"
        tries=0
        until put "$want" "$1" || :; now=$(chosen "$1"); is "$test" "$now" "$want"; do
            tries=$((tries + 1))
            if [ "$again" = - ] || [ "$tries" = 3 ]; then
                amiss "${1#"$root"} is $now, wanted $want: $2"
                return
            fi
            put 1 "$root$again" || :
        done
        say "${1#"$root"}: $now"
        ;;
    stop)
        kept "$1" || return 0
        was=$(old "$1") free=$(get "${1%/*}/free_hugepages")
        # Pages in use would become surplus, and go at whatever time their user lets go of them.
        if [ -n "$free" ] && [ $((now - free)) -gt "$was" ]; then
            amiss "${1#"$root"}: $((now - free)) pages are in use, $was were there before: stop the machines that use them, then again"
            return
        fi
        put "$was" "$1" || :
        now=$(chosen "$1")
        if is "$test" "$now" "$was" && is "$test" "$was" "$now"; then
            forget "$1"
            say "${1#"$root"}: $now"
        else
            amiss "${1#"$root"} stays $now, before it was $was"
        fi
        ;;
    status)
        say "${1#"$root"}: $now, wanted $want"
        is "$test" "$now" "$want" || wrong=1
        ;;
    esac
}

# module NAME WITH... loads a module of the kernel, and unloads it and those that came with it where nothing uses them.
module() {
    case $do in
    start)
        [ ! -d "$root/sys/module/$1" ] || return 0
        modprobe "$1" || fail "module $1 cannot be loaded"
        keep "module $1" loaded
        ;;
    stop)
        kept "module $1" || return 0
        forget "module $1"
        for each in "$@"; do
            [ "$(get "$root/sys/module/$each/refcnt")" != 0 ] || rmmod "$each" 2>/dev/null || :
        done
        ;;
    esac
}

# gone NAME unloads a module of the kernel.
gone() {
    case $do in
    start)
        [ -e "$root/sys/module/$1/initstate" ] || return 0
        rmmod "$1" || fail "module $1 cannot be unloaded: lsmod says what uses it"
        keep "gone $1" loaded
        ;;
    stop)
        kept "gone $1" || return 0
        modprobe "$1" || amiss "module $1 cannot be loaded"
        forget "gone $1"
        ;;
    esac
}
pci=$root/sys/bus/pci

# driver ADDRESS prints the driver that a function is bound to, nothing where there is none.
driver() {
    [ ! -L "$pci/devices/$1/driver" ] || basename "$(readlink "$pci/devices/$1/driver")"
}
is_bound() { [ "$(driver "$1")" = "$2" ]; }
is_free() { [ -z "$(driver "$1")" ]; }
group() { basename "$(readlink "$pci/devices/$1/iommu_group")"; }

# override ADDRESS DRIVER sets driver_override, or clears it where DRIVER is empty, and looks whether that took.
override() {
    put "$2" "$pci/devices/$1/driver_override" || return 1
    case $(get "$pci/devices/$1/driver_override") in
    "$2") ;;
    '(null)' | '') [ -z "$2" ] ;;
    *) return 1 ;;
    esac
}

# users ADDRESS prints the processes that have a device file of a function open: taking a GPU from one hangs for ever.
users() {
    case $(driver "$1") in
    vfio-pci) files=$root/dev/vfio/$(group "$1") ;;
    nvidia) files=$root/dev/nvidia$(sed -n 's/^Device Minor:[[:space:]]*//p' "$root/proc/driver/nvidia/gpus/$1/information" 2>/dev/null || :) ;;
    *)
        files=$(for file in "$pci/devices/$1"/*/*/dev "$pci/devices/$1"/*/*/*/dev; do
            case $(basename "$(readlink "${file%/dev}/subsystem" 2>/dev/null)") in
            accel | block | drm | infiniband_mad | infiniband_verbs | nvme | sound | uio) sed -n "s,^DEVNAME=,$root/dev/,p" "${file%/dev}/uevent" ;;
            esac
        done)
        ;;
    esac
    for file in $files; do
        find "$root"/proc/[0-9]*/fd -lname "$file" 2>/dev/null | sed 's,/fd/.*,,; s,.*/,,'
    done | sort -u | tr '\n' ' '
}

# unused ADDRESS TEXT... refuses where somebody uses a function: a process, or the host as a network device with addresses, in a bond or in a bridge.
unused() {
    busy=$(users "$1") address=$1
    shift
    [ -z "$busy" ] || fail "$*$address is in use by processes $busy: shut the guest down first, or end them (a GPU that waits: systemctl stop nvidia-persistenced; nvidia-smi -i $address -pm 0)"
    for net in "$pci/devices/$address"/net/*; do
        [ -e "$net" ] || continue
        if [ -e "$net/master" ] || [ -n "$(ip -o addr show dev "${net##*/}" scope global)" ]; then
            fail "$*$address is in use: ${net##*/} has an address, or is in a bond or bridge"
        fi
    done
}

# card ADDRESS VENDOR DEVICE refuses another card than the plan was made for: addresses move when one is added. A number that the plan does not
# know is given as "-".
card() {
    dir=$pci/devices/$1
    [ -d "$dir" ] || fail "$1 is not there: has the machine changed since the plan was made?"
    [ "$2" = - ] || [ "$(get "$dir/vendor") $(get "$dir/device")" = "$2 $3" ] ||
        fail "$1 is $(get "$dir/vendor") $(get "$dir/device"), and the plan was made for $2 $3: make a new plan"
}

# viable ADDRESS refuses a function whose IOMMU group the host uses too: VFIO takes a group whole or not at all.
viable() {
    [ -L "$pci/devices/$1/iommu_group" ] || fail "$1 is in no IOMMU group: switch the IOMMU on in the firmware and the kernel (kernel/, firmware/bios.md)"
    for member in "$pci/devices/$1"/iommu_group/devices/*; do
        member=${member##*/}
        # A bridge's own driver leaves memory alone.
        case "$(driver "$member") $(get "$pci/devices/$member/class")" in
        ' '* | 'vfio-pci '* | 'pci-stub '* | 'pcieport 0x0604'*) continue ;;
        esac
        case "$changes " in
        *"vfio $member "*) ;;
        *) [ "$member" = "$1" ] || fail "group $(group "$1") of $1 also has $member, which the host uses with $(driver "$member"): the group goes to a guest as a whole or not at all" ;;
        esac
    done
}

# release ADDRESS takes a function from its driver.
release() {
    is_free "$1" || put "$1" "$pci/devices/$1/driver/unbind" || :
    wait_for is_free "$1" || fail "$1 stays with $(driver "$1"): something uses it"
}

# give ADDRESS hands a function to vfio-pci. The override comes first: from then on no other driver can take it, whoever loads one.
give() {
    before=$(driver "$1")
    [ "$before" != vfio-pci ] || return 0
    override "$1" vfio-pci || fail "$1 takes no driver_override"
    release "$1"
    put "$1" "$pci/drivers_probe" || :
    if ! wait_for is_bound "$1" vfio-pci || ! wait_for [ -e "$root/dev/vfio/$(group "$1")" ]; then
        back "$1" "$before"
        fail "$1 does not go to vfio-pci, and is back with $(driver "$1"): see dmesg"
    fi
}

# back ADDRESS DRIVER gives a function back. While that is done the override names the driver, so that no other takes the function.
back() {
    is_bound "$1" "$2" || {
        override "$1" "$2" || fail "$1 keeps its driver_override: write a newline to $pci/devices/$1/driver_override"
        release "$1"
        [ -z "$2" ] || {
            [ -d "$pci/drivers/$2" ] || modprobe "$2" || modprobe -b "$(get "$pci/devices/$1/modalias")" || warn "no module for $2"
            put "$1" "$pci/drivers_probe" || :
            wait_for is_bound "$1" "$2" || warn "$1 is with $(driver "$1"), before with $2"
        }
    }
    override "$1" '' || fail "$1 keeps its driver_override: write a newline to $pci/devices/$1/driver_override"
}

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

# vf_of PF INDEX prints the address of a virtual function.
vf_of() { basename "$(readlink "$pci/devices/$1/virtfn$2")"; }
has_vf() { [ -L "$pci/devices/$1/virtfn$2" ]; }

# link PF MTU has the port of a physical function up, with an MTU of at least that: it drops larger frames of its virtual functions.
link() {
    [ "$do" != check ] || wait_for has_netdev "$1" || fail "$1 has no network device: its driver is not loaded, or it is given to a guest itself"
    dev=$(netdev "$1") || return 0
    value must least "/sys/class/net/$dev/mtu" "$2" - "$dev does not take MTU $2"
    flags=$(get "$root/sys/class/net/$dev/flags")
    case $do in
    start)
        [ $((flags & 1)) = 1 ] || keep "up $1" no
        ip link set dev "$dev" up || fail "$dev does not come up"
        ;;
    stop)
        ! kept "up $1" || ip link set dev "$dev" down
        forget "up $1"
        ;;
    esac
}

# count PF N makes the number of virtual functions, by way of 0: the kernel refuses to go from one number to another.
count() {
    dir=$pci/devices/$1
    now=$(get "$dir/sriov_numvfs") i=0
    [ "${now:-0}" != "$2" ] || return 0
    while [ "$i" -lt "${now:-0}" ]; do
        unused "$(vf_of "$1" "$i")" "$1 has $now virtual functions and is to have $2, which goes by way of 0; number $i cannot go: "
        i=$((i + 1))
    done
    [ "$do" != check ] || return 0
    # Without drivers at first, so that none of them sees an address of zeros; RDMA takes its node GUID from it.
    probe=$(get "$dir/sriov_drivers_autoprobe")
    [ -z "$probe" ] || put 0 "$dir/sriov_drivers_autoprobe" || :
    [ "${now:-0}" = 0 ] || put 0 "$dir/sriov_numvfs" || fail "$1 does not give up its $now virtual functions: see dmesg"
    put "$2" "$dir/sriov_numvfs" || :
    [ -z "$probe" ] || put "$probe" "$dir/sriov_drivers_autoprobe" || :
    if [ "$(get "$dir/sriov_numvfs")" != "$2" ]; then
        put "${now:-0}" "$dir/sriov_numvfs" || :
        fail "$1 does not make $2 virtual functions. See the end of dmesg: \"not enough MMIO resources\" asks for SR-IOV and 64-bit addresses (above 4G) in the firmware, or for pci=realloc"
    fi
    [ "$2" = 0 ] || wait_for has_vf "$1" $(($2 - 1)) || fail "$1: virtual function $(($2 - 1)) does not appear"
}

# vfs PF VENDOR DEVICE COUNT has that many virtual functions.
vfs() {
    dir=$pci/devices/$1
    case $do in
    check)
        card "$1" "$2" "$3"
        [ -e "$dir/sriov_totalvfs" ] || fail "$1 offers no SR-IOV: switch it on in the NIC's firmware (firmware/nic.sh) and in the BIOS (firmware/bios.md)"
        [ "$(get "$dir/sriov_totalvfs")" -ge "$4" ] || fail "$1 offers $(get "$dir/sriov_totalvfs") virtual functions, $4 are needed: raise NUM_OF_VFS (firmware/nic.sh)"
        count "$1" "$4"
        ;;
    start)
        keep "$1" "$(get "$dir/sriov_numvfs")"
        count "$1" "$4"
        ;;
    stop)
        ! kept "$1" || count "$1" "$(old "$1")"
        forget "$1"
        ;;
    status)
        say "$1: $(get "$dir/sriov_numvfs") virtual functions, $4 wanted"
        [ "$(get "$dir/sriov_numvfs")" = "$4" ] || wrong=1
        ;;
    esac
}

# vf PF INDEX MAC GUID TRUST SPOOFCHK gives a virtual function the address of its lab node and hands it to vfio-pci.
vf() {
    address=
    ! has_vf "$1" "$2" || address=$(vf_of "$1" "$2")
    case $do in
    refuse) [ -z "$address" ] || ! is_bound "$address" vfio-pci || unused "$address" ;;
    start)
        dev=$(netdev "$1")
        if ! is_bound "$address" vfio-pci || ! ip link show dev "$dev" | grep -qiE "vf $2 .*($3|$4)"; then
            viable "$address"
            unused "$address"
            keep "vf $address" "$(driver "$address")"
            override "$address" vfio-pci || fail "$address takes no driver_override"
            is_bound "$address" vfio-pci || release "$address"
            known_by "$@"
            give "$address"
        fi
        say "$1 virtual function $2: $address, $3"
        ;;
    stop)
        [ -n "$address" ] || return 0
        ! kept "vf $address" || back "$address" "$(old "vf $address")"
        forget "vf $address"
        ;;
    status)
        say "$1 virtual function $2: ${address:-not there}, wants $3, driver $(driver "$address")"
        is_bound "${address:-none}" vfio-pci || wrong=1
        ;;
    esac
}

# known_by PF INDEX MAC GUID TRUST SPOOFCHK sets what a virtual function is known by. It has to be there before the function gets a driver.
known_by() {
    # 32 is ARPHRD_INFINIBAND: there GUIDs stand for MAC addresses.
    if [ "$(get "$root/sys/class/net/$dev/type")" = 32 ]; then
        ip link set dev "$dev" vf "$2" node_guid "$4" || fail "$dev: virtual function $2 takes no node GUID"
        ip link set dev "$dev" vf "$2" port_guid "$4" || fail "$dev: virtual function $2 takes no port GUID"
    else
        ip link set dev "$dev" vf "$2" mac "$3" || fail "$dev: virtual function $2 does not take MAC address $3"
    fi
    have=$(ip link show dev "$dev" | grep "vf $2 " || :)
    change "$2" "vlan " none vlan 0
    change "$2" "tx rate " none max_tx_rate 0 min_tx_rate 0
    change "$2" "max_tx_rate " none max_tx_rate 0 min_tx_rate 0
    change "$2" "spoof checking " "spoof checking $6" spoofchk "$6"
    change "$2" "trust " "trust $5" trust "$5"
    change "$2" "link-state " "link-state auto" state auto
}

# change INDEX SHOWN GOOD WORDS... makes a setting that is shown and not good. What the driver does not report it does not know.
change() {
    index=$1
    case $have in
    *"$3"*) ;;
    *"$2"*)
        shift 3
        ip link set dev "$dev" vf "$index" "$@" || warn "$dev: virtual function $index does not take $*"
        ;;
    esac
}

# rest PF COUNT leaves the other virtual functions to the host's drivers, where the host gives them any.
rest() {
    [ "$do$(get "$pci/devices/$1/sriov_drivers_autoprobe")" = start1 ] || return 0
    i=0
    while [ "$i" -lt "$2" ]; do
        address=$(vf_of "$1" "$i")
        ! is_free "$address" || put "$address" "$pci/drivers_probe" || :
        i=$((i + 1))
    done
}

# each DO LINES does that with each of the lines.
each() {
    do=$1
    while read -r line; do
        set -f
        # The words of a line are those of a command.
        # shellcheck disable=SC2086
        set -- $line
        set +f
        "$@" </dev/null
    done <<EOF
$2
EOF
}

backwards=$(printf '%s\n' "$changes" | sed '1!G;h;$!d')
case ${1-} in
start | apply)
    each check "$changes"
    each start "$changes"
    ;;
stop | undo)
    each refuse "$backwards"
    # Twice where need be: some values can go back only after one before them has.
    last=0
    each stop "$backwards"
    if [ "$wrong" = 1 ]; then
        wrong=0 last=1
        each stop "$backwards"
    fi
    ;;
status | query) each status "$changes" ;;
*)
    printf 'usage: %s %s\n' "$name" "$usage" >&2
    exit 2
    ;;
esac
[ -z "$after" ] || [ "$1" = query ] || say "$after"
[ "$wrong" = 0 ]
