cgroup=$root/sys/fs/cgroup

# slice UNIT CPUS SETTINGS... limits a unit of systemd to CPUs by a drop-in until the next boot. SETTINGS are its lines, with \n between them.
slice() {
    dropin=$root/run/systemd/system/$1.d/99-rackless.conf unit=$1 cpus=$2
    shift 2
    case $do in
    check)
        case " $(get "$cgroup/cgroup.controllers") " in
        *' cpuset '*) ;;
        *) fail "no cpuset controller in cgroup v2: boot with systemd.unified_cgroup_hierarchy=1, or use the kernel arguments (kernel/)" ;;
        esac
        ;;
    start)
        mkdir -p "${dropin%/*}"
        printf '%b\n' "$*" >"$dropin"
        systemctl daemon-reload
        # A unit that is not there yet gets the limit when it is started.
        [ ! -d "$cgroup/$unit" ] || wait_for confined || fail "$unit may still use CPUs $(get "$cgroup/$unit/cpuset.cpus.effective"), wanted $cpus: see systemctl cat $unit (systemd has to be 244 or later)"
        say "$unit: CPUs $cpus"
        ;;
    stop)
        [ -e "$dropin" ] || return 0
        rm -f "$dropin"
        rmdir "${dropin%/*}" 2>/dev/null || :
        systemctl daemon-reload
        # The kernel refuses an empty cpuset.cpus where the cgroup has processes, and the limit would stay (systemd 252 on Linux 6.1).
        if [ -z "$(systemctl show --property=AllowedCPUs --value -- "$unit")" ] && [ -n "$(get "$cgroup/$unit/cpuset.cpus")" ]; then
            put "$(get "$root/sys/devices/system/cpu/possible")" "$cgroup/$unit/cpuset.cpus" || amiss "$unit keeps its CPUs"
        fi
        ;;
    status)
        now=$(get "$cgroup/$unit/cpuset.cpus.effective")
        say "$unit: CPUs $now, wanted $cpus"
        [ ! -d "$cgroup/$unit" ] || confined || wrong=1
        ;;
    esac
}
confined() { within "$(get "$cgroup/$unit/cpuset.cpus.effective")" "$cpus" && [ -n "$(get "$cgroup/$unit/cpuset.cpus.effective")" ]; }

# partition SLICE KIND makes a slice a partition of CPUs: nobody else uses them, and the kernel balances load inside of it only.
partition() {
    [ "$do" != start ] || [ -e "$cgroup/$1/cpuset.cpus.partition" ] || systemctl start -- "$1"
    value must same "/sys/fs/cgroup/$1/cpuset.cpus.partition" "$2" - "another cgroup may have CPUs of it"
    # An invalid partition would become one at whatever time it can.
    [ "$do$wrong" != start1 ] || {
        put member "$cgroup/$1/cpuset.cpus.partition" || :
        fail "$1 does not become a partition"
    }
}
