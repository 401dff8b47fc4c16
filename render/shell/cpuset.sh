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
