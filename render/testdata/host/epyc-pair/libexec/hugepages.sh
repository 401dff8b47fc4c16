#!/bin/sh
# rackless test plan of lab epyc-pair (epyc-pair.yaml) for epyc-7551p.ttar
# Hugepages on the NUMA nodes that the lab nodes use. start asks for them, looks what the kernel found, and
# fails where that is too little: a guest with strict memory placement would not start then. It never takes
# pages away. stop gives back what start added.

lab='epyc-pair'
# NUMA node, size in KiB, pages: those of the lab and those that were in use before.
pages='0 1048576 16
1 1048576 16
2 1048576 16
3 1048576 16'

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
state=$root/run/rackless/$lab/hugepages

pool() { printf '%s\n' "$root/sys/devices/system/node/node$1/hugepages/hugepages-${2}kB"; }

start() {
    short=0
    while read -r node kb want; do
        dir=$(pool "$node" "$kb")
        if [ ! -d "$dir" ]; then
            # The directory is missing where the kernel does not know this size, or the node is not there.
            warn "node $node has no pool of $kb KiB pages: boot with hugepagesz= of that size (kernel/), and look for pdpe1gb in /proc/cpuinfo if it is 1 GiB"
            short=1
            continue
        fi
        have=$(get "$dir/nr_hugepages")
        keep "$node-$kb" "$have"
        # Never fewer than there are: others may use them.
        tries=0
        while [ "${have:-0}" -lt "$want" ] && [ "$tries" -lt 3 ]; do
            tries=$((tries + 1))
            put "$want" "$dir/nr_hugepages" || :
            have=$(get "$dir/nr_hugepages")
            # The kernel takes what it can get and reports no error. Where memory is in pieces, compaction may find more.
            [ "${have:-0}" -ge "$want" ] || put 1 "$root/proc/sys/vm/compact_memory" || :
        done
        if [ "${have:-0}" -lt "$want" ]; then
            warn "node $node has ${have:-0} of $want pages of $kb KiB: its memory is in use or in pieces. Reserve them at boot (kernel/), or stop what uses node $node"
            short=1
        else
            say "node $node: $have pages of $kb KiB"
        fi
    done <<EOF
$pages
EOF
    [ "$short" = 0 ] || exit 1
}

stop() {
    while read -r node kb want; do
        old=$(get "$state/$node-$kb")
        [ -n "$old" ] || continue
        dir=$(pool "$node" "$kb")
        put "$old" "$dir/nr_hugepages" || :
        have=$(get "$dir/nr_hugepages")
        if [ "$have" != "$old" ]; then
            fail "node $node still has $have pages of $kb KiB, $old before: stop the machines that use them, then again"
        fi
        rm -f "$state/$node-$kb"
        say "node $node: $old pages of $kb KiB"
    done <<EOF
$pages
EOF
}

status() {
    short=0
    while read -r node kb want; do
        dir=$(pool "$node" "$kb")
        have=$(get "$dir/nr_hugepages")
        say "node $node, $kb KiB: ${have:-none} pages, $(get "$dir/free_hugepages") free, $want wanted"
        [ "${have:-0}" -ge "$want" ] || short=1
    done <<EOF
$pages
EOF
    return "$short"
}

case ${1-} in
start | stop | status) "$1" ;;
*)
    printf 'usage: %s start|stop|status\n' "$name" >&2
    exit 2
    ;;
esac
