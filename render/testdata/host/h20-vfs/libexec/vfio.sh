#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Hands the PCI functions of the lab nodes to vfio-pci by driver_override, which names functions one by one: a
# list of vendor and device numbers (vfio-pci ids=) would take every card of that model. start looks at
# everything before it changes anything. stop gives the functions back to their drivers.

lab='h20-vfs'
# What is changed, in order: the functions below say what the words are.
changes='module vfio_iommu_type1 vfio
module vfio_pci vfio_pci_core vfio_virqfd irqbypass vfio
gone nvidia_drm
gone nvidia_modeset
gone nvidia_uvm
gone nvidia_peermem
gone nvidia
vfio 0000:08:00.0 0x10de 0x2329
vfio 0000:0e:00.0 0x10de 0x2329
vfio 0000:1c:00.0 0x10de 0x2329
vfio 0000:2a:00.0 0x10de 0x2329
vfio 0000:87:00.0 0x10de 0x2329
vfio 0000:8d:00.0 0x10de 0x2329
vfio 0000:9b:00.0 0x10de 0x2329
vfio 0000:a8:00.0 0x10de 0x2329
vfio 0000:a1:00.0 0x15b3 0x1021'
# Below it is remembered how things were.
memory='/run/rackless'
part='vfio'
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

# vfio ADDRESS VENDOR DEVICE hands a function to vfio-pci for a guest.
vfio() {
    case $do in
    check)
        card "$@"
        viable "$1"
        is_bound "$1" vfio-pci || unused "$1"
        ;;
    refuse) ! is_bound "$1" vfio-pci || unused "$1" ;;
    start)
        # With vfio-pci by our udev rule: then stop gives it to the driver that a boot would load. By somebody else: then it is not ours to give.
        if ! is_bound "$1" vfio-pci || [ -e "$root/etc/udev/rules.d/10-rackless-$lab.rules" ]; then
            keep "$1" "$(driver "$1")"
        fi
        give "$1"
        say "$1: vfio-pci"
        ;;
    stop)
        kept "$1" || return 0
        was=$(old "$1")
        if [ "$was" = vfio-pci ]; then
            back "$1" ''
            modprobe -b "$(get "$pci/devices/$1/modalias")" || warn "no module for $1"
            put "$1" "$pci/drivers_probe" || :
        else
            back "$1" "$was"
        fi
        forget "$1"
        ;;
    status)
        say "$1: $(driver "$1")"
        is_bound "$1" vfio-pci || wrong=1
        ;;
    esac
    # A card in D3cold may not come back when the guest starts.
    [ ! -e "$pci/devices/$1/d3cold_allowed" ] || value may same "/sys/bus/pci/devices/$1/d3cold_allowed" 0 - "D3cold cannot be forbidden"
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
