#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Keeps everything but guests off the CPUs of the lab nodes by cgroups, without a reboot: system.slice,
# user.slice and init.scope may use housekeeping CPUs only, and the kernel's work queues run there. Guests are
# in machine.slice, which may use all. This is the alternative to isolcpus; what it cannot do is to stop the
# timer tick (nohz_full) and to move RCU callbacks (rcu_nocbs), which only the kernel's command line can. stop
# brings the old limits back.

lab='h20-vfs'
# What the host keeps, as list and as mask.
housekeeping='0,41-48,89-96,137-144,185-191'
housekeeping_mask='fe000000,0001fe00,00000001,fe000000,0001fe00,00000001'
# What the lab nodes have, idle siblings too.
lab_cpus='1-40,49-88,97-136,145-184'
# no, root or isolated. root also makes machine.slice a partition of cgroup v2: the kernel lets nobody else
# use its CPUs, and balances load inside of it only. isolated balances no load at all: right for pinned
# virtual CPUs, but QEMU's own threads then pile up on one CPU.
partition='no'
# For a partition: the CPUs of the lab nodes and of QEMU's own threads. Empty where the host would be left
# with none, or has other virtual machines.
machine='0-40,48-88,96-136,144-184'
# What the host keeps beside a partition.
host_only='41-47,89-95,137-143,185-191'

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
state=$root/run/rackless/$lab/cpuset
cgroup=$root/sys/fs/cgroup
workqueue=$root/sys/devices/virtual/workqueue/cpumask

# allow UNIT CPUS limits a slice, until the next boot or stop.
allow() {
    systemctl set-property --runtime -- "$1" "AllowedCPUs=$2" || fail "systemd does not limit $1 to CPUs $2"
}

start() {
    case " $(get "$cgroup/cgroup.controllers") " in
    *' cpuset '*) ;;
    *) fail "no cpuset controller in cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, or use the kernel arguments (kernel/)" ;;
    esac
    [ "$partition" = no ] || [ -n "$machine" ] ||
        fail "a partition would take all housekeeping CPUs, or those of other virtual machines: leave partition=no"
    for unit in system.slice user.slice init.scope; do
        # A unit without a limit has an empty one; what an administrator set comes back on stop.
        keep "$unit" "$(systemctl show --property=AllowedCPUs --value -- "$unit")"
        allow "$unit" "$housekeeping"
    done
    # Kernel threads that run work for anybody are no part of a slice.
    if [ -e "$workqueue" ]; then
        keep workqueue "$(get "$workqueue")"
        put "$housekeeping_mask" "$workqueue" || warn "the kernel's work queues stay where they are"
    fi
    [ "$partition" = no ] || start_partition
    say "host on CPUs $housekeeping; CPUs $lab_cpus are left to the guests"
}

# start_partition takes the CPUs of the guests, and of QEMU's own threads, away from everybody else and balances load on neither side across the border.
start_partition() {
    keep machine.slice "$(systemctl show --property=AllowedCPUs --value -- machine.slice)"
    for unit in system.slice user.slice init.scope; do
        allow "$unit" "$host_only"
    done
    systemctl start machine.slice
    allow machine.slice "$machine"
    put "$machine" "$cgroup/machine.slice/cpuset.cpus.exclusive" || : # from Linux 6.7 on
    put "$partition" "$cgroup/machine.slice/cpuset.cpus.partition" || :
    now=$(get "$cgroup/machine.slice/cpuset.cpus.partition")
    if [ "$now" != "$partition" ]; then
        stop
        fail "machine.slice does not become a partition ($now): everything is as before"
    fi
}

stop() {
    if [ -e "$state/machine.slice" ]; then
        put member "$cgroup/machine.slice/cpuset.cpus.partition" || :
        put '' "$cgroup/machine.slice/cpuset.cpus.exclusive" || :
    fi
    for unit in machine.slice system.slice user.slice init.scope; do
        [ -e "$state/$unit" ] || continue
        allow "$unit" "$(get "$state/$unit")"
        rm -f "$state/$unit"
    done
    if [ -e "$state/workqueue" ]; then
        put "$(get "$state/workqueue")" "$workqueue" || :
        rm -f "$state/workqueue"
    fi
}

status() {
    astray=0
    want=$housekeeping
    [ "$partition" = no ] || want=$host_only
    for unit in system.slice user.slice init.scope; do
        now=$(get "$cgroup/$unit/cpuset.cpus.effective")
        say "$unit: CPUs $now"
        [ "$now" = "$want" ] || astray=1
    done
    [ "$partition" = no ] || say "machine.slice: CPUs $(get "$cgroup/machine.slice/cpuset.cpus.effective"), partition $(get "$cgroup/machine.slice/cpuset.cpus.partition")"
    return "$astray"
}

case ${1-} in
start | stop | status) "$1" ;;
*)
    printf 'usage: %s start|stop|status\n' "$name" >&2
    exit 2
    ;;
esac
