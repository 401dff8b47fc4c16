#!/bin/sh
# rackless test plan of lab r740 (r740.yaml) for r740
# Settings in the firmware of ConnectX and BlueField NICs: SR-IOV with room for one more virtual function than
# the plan hands out on the card, because one is the physical function's; Ethernet instead of InfiniBand on
# cards that can do both. query shows what is set and what would be changed, apply sets it, undo brings the
# old values back. Nothing takes effect before the card's next reset.

lab='r740'
# Card, and the least NUM_OF_VFS; 0 where the plan uses none.
cards='0000:3b:00.0 5'

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
# mstconfig (package mstflint) and mlxconfig (MFT) are the same tool for our purpose.
tool=
for program in mstconfig mlxconfig; do
    if command -v "$program" >/dev/null 2>&1; then
        tool=$program
        break
    fi
done
[ -n "$tool" ] || fail "install mstflint (mstconfig) or NVIDIA's MFT (mlxconfig) first"
state=$root/var/lib/rackless/$lab/firmware

# value CARD NAME prints a parameter as it will be at the next boot, as a number; nothing where the card does not have it. The tool prints
# "SRIOV_EN   True(1)" and "NUM_OF_VFS   8", and a star before what is changed.
value() {
    "$tool" -d "$1" query "$2" 2>/dev/null |
        sed -n "s/^[*[:space:]]*$2[[:space:]][[:space:]]*\([^[:space:]]*\).*/\1/p" |
        sed -n 's/^[^(]*(\([0-9]*\)).*/\1/p; t
s/^\([0-9][0-9]*\)$/\1/p'
}

# wanted prints a line "CARD NAME VALUE" for each parameter that has to change.
wanted() {
    while read -r card vfs; do
        if [ "$vfs" -gt 0 ]; then
            now=$(value "$card" SRIOV_EN)
            [ -n "$now" ] || fail "$card has no parameter SRIOV_EN: is it there, and a ConnectX-4 or later?"
            [ "$now" = 1 ] || say "$card SRIOV_EN 1"
            # Never fewer than there are: others may use them.
            now=$(value "$card" NUM_OF_VFS)
            [ "${now:-0}" -ge "$vfs" ] || say "$card NUM_OF_VFS $vfs"
        fi
        # Only cards that can do InfiniBand too have these; 2 is Ethernet.
        for port in LINK_TYPE_P1 LINK_TYPE_P2; do
            now=$(value "$card" "$port")
            [ -z "$now" ] || [ "$now" = 2 ] || say "$card $port 2"
        done
    done <<EOF
$cards
EOF
}

query() {
    while read -r card vfs; do
        say "$card: SRIOV_EN=$(value "$card" SRIOV_EN) NUM_OF_VFS=$(value "$card" NUM_OF_VFS) LINK_TYPE_P1=$(value "$card" LINK_TYPE_P1) LINK_TYPE_P2=$(value "$card" LINK_TYPE_P2)"
    done <<EOF
$cards
EOF
    changes=$(wanted)
    if [ -z "$changes" ]; then
        say "nothing to change"
    else
        say "to change:"
        say "$changes"
    fi
}

apply() {
    changes=$(wanted)
    if [ -z "$changes" ]; then
        say "nothing to change"
        return
    fi
    while read -r card parameter new; do
        keep "$card.$parameter" "$(value "$card" "$parameter")"
        "$tool" -d "$card" --yes set "$parameter=$new"
    done <<EOF
$changes
EOF
    reset_hint
}

undo() {
    for file in "$state"/*; do
        [ -e "$file" ] || continue
        parameter=${file##*.}
        card=${file##*/}
        card=${card%."$parameter"}
        "$tool" -d "$card" --yes set "$parameter=$(get "$file")"
        rm -f "$file"
    done
    reset_hint
}

reset_hint() {
    say "The cards take this at their next reset: reboot (a BlueField: switch the power off and on), or, with no driver or guest using the card, mstfwreset -d CARD reset"
}

case ${1-} in
query | apply | undo) "$1" ;;
*)
    printf 'usage: %s query|apply|undo\n' "$name" >&2
    exit 2
    ;;
esac
