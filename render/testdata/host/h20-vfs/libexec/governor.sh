#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Sets the frequency governor of all CPUs to performance: latencies come out up to twice as long, and never
# twice the same, while frequencies follow the load. stop brings the old governors back.

lab='h20-vfs'

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
state=$root/run/rackless/$lab/governor

start() {
    found=0
    for file in "$root"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ -e "$file" ] || continue
        found=$((found + 1))
        cpu=${file%/cpufreq/*}
        cpu=${cpu##*/}
        old=$(get "$file")
        [ "$old" != performance ] || continue
        keep "$cpu" "$old"
        put performance "$file" || :
        now=$(get "$file")
        [ "$now" = performance ] ||
            fail "$cpu stays with governor $now; it offers: $(get "${file%/*}/scaling_available_governors")"
    done
    if [ "$found" = 0 ]; then
        say "this kernel scales no frequencies: the firmware does, or a hypervisor; see firmware/bios.md"
    else
        say "$found CPUs with governor performance"
    fi
}

stop() {
    for file in "$state"/cpu[0-9]*; do
        [ -e "$file" ] || continue
        cpu=${file##*/}
        put "$(get "$file")" "$root/sys/devices/system/cpu/$cpu/cpufreq/scaling_governor" ||
            fail "$cpu does not take governor $(get "$file") back"
        rm -f "$file"
    done
}

status() {
    other=0
    for file in "$root"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ -e "$file" ] || continue
        now=$(get "$file")
        [ "$now" = performance ] || { other=1 && say "${file#"$root"}: $now"; }
    done
    return "$other"
}

case ${1-} in
start | stop | status) "$1" ;;
*)
    printf 'usage: %s start|stop|status\n' "$name" >&2
    exit 2
    ;;
esac
