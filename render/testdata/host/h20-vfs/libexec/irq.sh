#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Moves interrupts to housekeeping CPUs, those of a device to ones of its own NUMA node where the host has any
# there. Managed interrupts (NVMe, some NICs) cannot be moved: isolcpus=managed_irq keeps them away from the
# CPUs of the lab nodes. stop moves them back.

lab='h20-vfs'
# What the host keeps, as list, mask and one by one.
housekeeping='0,41-48,89-96,137-144,185-191'
housekeeping_mask='fe000000,0001fe00,00000001,fe000000,0001fe00,00000001'
housekeeping_each='0 41 42 43 44 45 46 47 48 89 90 91 92 93 94 95 96 137 138 139 140 141 142 143 144 185 186 187 188 189 190 191'
# The same by NUMA node.
by_node='0 0,41-47,96,137-143
1 48,89-95,144,185-191'

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
state=$root/run/rackless/$lab/irq

# near NODE prints the housekeeping CPUs of a NUMA node, or all where it has none.
near() {
    while read -r node list; do
        if [ "$node" = "$1" ]; then
            say "$list"
            return
        fi
    done <<EOF
$by_node
EOF
    say "$housekeeping"
}

# within LIST is true where a list of CPUs ("2-3,34") has only housekeeping CPUs.
within() {
    for part in $(printf '%s\n' "$1" | tr , ' '); do
        first=${part%-*}
        last=${part#*-}
        while [ "$first" -le "$last" ]; do
            case " $housekeeping_each " in
            *" $first "*) ;;
            *) return 1 ;;
            esac
            first=$((first + 1))
        done
    done
}

start() {
    # Interrupts that are asked for later start here: those of VFIO among them.
    keep default "$(get "$root/proc/irq/default_smp_affinity")"
    put "$housekeeping_mask" "$root/proc/irq/default_smp_affinity" || warn "the default affinity cannot be set"
    first=0
    [ -e "$state/irqs" ] || first=1
    moved=0 fixed=0 kept=0
    for dir in "$root"/proc/irq/[0-9]*; do
        file=$dir/smp_affinity_list
        [ -e "$file" ] || continue
        old=$(get "$file")
        if [ -z "$old" ] || within "$old"; then
            kept=$((kept + 1))
            continue
        fi
        if put "$(near "$(get "$dir/node")")" "$file"; then
            moved=$((moved + 1))
            [ "$first" = 0 ] || say "${dir##*/} $old" >>"$state/irqs"
        else
            # Managed interrupts (NVMe, some NICs) and those of one CPU cannot be moved: isolcpus=managed_irq is what keeps them away.
            fixed=$((fixed + 1))
        fi
    done
    say "$moved interrupts moved to CPUs $housekeeping, $kept were there already, $fixed cannot be moved"
    if [ -z "$root" ] && systemctl is-active --quiet irqbalance 2>/dev/null; then
        warn "irqbalance runs and may move them back: install systemd/irqbalance.service.d, or stop it"
    fi
}

stop() {
    while read -r irq old; do
        # An interrupt that is gone needs no place.
        [ ! -e "$root/proc/irq/$irq" ] || put "$old" "$root/proc/irq/$irq/smp_affinity_list" || warn "interrupt $irq does not go back to CPUs $old"
    done <<EOF
$(get "$state/irqs")
EOF
    [ ! -e "$state/default" ] || put "$(get "$state/default")" "$root/proc/irq/default_smp_affinity" || :
    rm -f "$state/irqs" "$state/default"
}

status() {
    astray=0
    for dir in "$root"/proc/irq/[0-9]*; do
        now=$(get "$dir/effective_affinity_list")
        [ -n "$now" ] || now=$(get "$dir/smp_affinity_list")
        if [ -n "$now" ] && ! within "$now"; then
            say "interrupt ${dir##*/} may run on CPUs $now"
            astray=1
        fi
    done
    return "$astray"
}

case ${1-} in
start | stop | status) "$1" ;;
*)
    printf 'usage: %s start|stop|status\n' "$name" >&2
    exit 2
    ;;
esac
