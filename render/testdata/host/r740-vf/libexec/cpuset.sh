#!/bin/sh
# rackless test plan of lab r740 (r740.yaml) for r740
# Keeps everything but guests off the CPUs of the lab nodes by cgroups, without a reboot: system.slice,
# user.slice and init.scope may use housekeeping CPUs only, and the kernel's work queues run there. Guests are
# in machine.slice, which may use all. This is the alternative to isolcpus; what it cannot do is to stop the
# timer tick (nohz_full) and to move RCU callbacks (rcu_nocbs), which only the kernel's command line can.
# Where the host keeps CPUs of its own and has no other virtual machines, machine.slice is a partition of
# cgroup v2, with the CPUs of the lab nodes and of QEMU's own threads: nobody else uses its CPUs. Take the
# line partition out to go without, or say isolated for root: no load is balanced then, which is right for
# pinned virtual CPUs, but QEMU's own threads pile up on one CPU. stop brings the old limits back.

lab='r740'
# What is changed, in order: the functions below say what the words are.
changes='slice system.slice 0-1,46-49,94-95 [Slice]\nAllowedCPUs=\nAllowedCPUs=0-1,46-49,94-95
slice user.slice 0-1,46-49,94-95 [Slice]\nAllowedCPUs=\nAllowedCPUs=0-1,46-49,94-95
slice init.scope 0-1,46-49,94-95 [Scope]\nAllowedCPUs=\nAllowedCPUs=0-1,46-49,94-95
value may mask /sys/devices/virtual/workqueue/cpumask c0000000,0003c000,00000003 - the kernel refuses it'
# Below it is remembered how things were.
memory='/run/rackless'
part='cpuset'
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

# within LIST SET is true where all CPUs of a list ("2-3,34") are in a set that is written in the same way.
# It starts no process, since interrupts are many.
within() {
    IFS=,
    for part in $1; do
        for range in $2; do
            [ "${part%-*}" -lt "${range%-*}" ] || [ "${part#*-}" -gt "${range#*-}" ] || continue 2
        done
        unset IFS
        return 1
    done
    unset IFS
}

# irqs CPUS NODE=CPUS... moves interrupts to CPUs of the host: those of a device to ones of its NUMA node, where the host has any there.
irqs() {
    cpus=$1
    shift
    moved=0 fixed=0
    for dir in "$root"/proc/irq/[0-9]*; do
        file=$dir/smp_affinity_list
        [ -e "$file" ] || continue
        now=$(get "$file") actions=$(get "$root/sys/kernel/irq/${dir##*/}/actions")
        case $do in
        start)
            ! within "$now" "$cpus" || continue
            first=1
            ! kept "$dir" || first=0
            keep "$dir" "$now $actions"
            if move "$@"; then
                moved=$((moved + 1))
            else
                # Managed interrupts (NVMe, some NICs) and those of one CPU cannot be moved: isolcpus=managed_irq is what keeps them away.
                fixed=$((fixed + 1))
                [ "$first" = 0 ] || forget "$dir"
            fi
            ;;
        stop)
            kept "$dir" || continue
            was=$(old "$dir")
            # A number that was given to another device since has no place to go back to.
            if [ "${was#* }" != "$actions" ] || put "${was%% *}" "$file"; then
                forget "$dir"
            else
                amiss "interrupt ${dir##*/} does not go back to CPUs ${was%% *}"
            fi
            ;;
        status)
            [ -z "$now" ] || within "$now" "$cpus" || {
                say "interrupt ${dir##*/} may run on CPUs $now"
                wrong=1
            }
            ;;
        esac
    done
    [ "$do" != start ] || say "$moved interrupts moved to CPUs $cpus, $fixed cannot be moved"
}

# move NODE=CPUS... writes where the interrupt of $file may be served, anywhere on the host's CPUs where those near have no room.
move() {
    node=$(get "$dir/node")
    for near in "$@"; do
        if [ "${near%%=*}" = "$node" ] && put "${near#*=}" "$file"; then
            return
        fi
    done
    put "$cpus" "$file"
}
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
