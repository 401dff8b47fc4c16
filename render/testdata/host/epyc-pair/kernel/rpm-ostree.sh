#!/bin/sh
# rackless test plan of lab epyc-pair (epyc-pair.yaml) for epyc-7551p.ttar
# Kernel arguments for Fedora CoreOS, Silverblue and others with rpm-ostree. apply changes nothing but the
# boot loader's settings, undo takes that back, and show says what the running kernel was started with.

lab='epyc-pair'
# What the kernel has to be started with, and why:
# - iommu=pt: devices that the host keeps are not slowed down by the IOMMU
# - isolcpus=managed_irq,domain,2-29,34-61: nothing of the host is scheduled on the CPUs of the lab nodes, nor
# its managed interrupts
# - nohz_full=2-29,34-61: no timer tick while a virtual CPU runs alone
# - rcu_nocbs=2-29,34-61: the kernel's callbacks run on housekeeping CPUs
# - hugepagesz=1G: the size of the pages that are set aside next
# - hugepages=0:16,1:16,2:16,3:16: pages are set aside while memory is still in one piece
args='iommu=pt isolcpus=managed_irq,domain,2-29,34-61 nohz_full=2-29,34-61 rcu_nocbs=2-29,34-61 hugepagesz=1G hugepages=0:16,1:16,2:16,3:16'
# What they set. Other values of the same go, and come back with undo.
keys='iommu isolcpus nohz_full rcu_nocbs hugepagesz hugepages'
# COMMAND_LINE_SIZE of this architecture.
limit='2048'

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
# What has to outlive the reboot, for undo.
# shellcheck disable=SC2034
state=$root/var/lib/rackless/$lab/kernel

# is_ours WORD says whether a word of a command line sets one of our parameters. It has to see the words in order, with size empty before the first: a
# count of hugepages belongs to the size before it, and pages of a size that the plan does not use are not ours to remove.
is_ours() {
    case " $keys " in
    *" ${1%%=*} "*) ;;
    *) return 1 ;;
    esac
    case $1 in
    hugepagesz=* | hugepages=*)
        [ "${1%%=*}" = hugepages ] || size=${1#*=}
        case " $args " in
        *" hugepagesz=$size "*) ;;
        *) [ -z "$size" ] ;;
        esac
        ;;
    esac
}

# others LINE prints the words of a command line that set none of our parameters.
others() {
    kept='' size=''
    set -f
    for word in $1; do
        is_ours "$word" || kept="$kept${kept:+ }$word"
    done
    set +f
    printf '%s\n' "$kept"
}

# replaced LINE prints the words that set one of our parameters to something else. Both at once is wrong: of two isolcpus= the kernel takes the
# first, of two hugepagesz= of one size it refuses the second.
replaced() {
    gone='' size=''
    set -f
    for word in $1; do
        is_ours "$word" || continue
        case " $args " in
        *" $word "*) ;;
        *) gone="$gone${gone:+ }$word" ;;
        esac
    done
    set +f
    printf '%s\n' "$gone"
}

# fits LINE refuses a command line that the kernel would cut off.
fits() {
    [ "${#1}" -lt "$limit" ] || fail "the command line would have ${#1} characters, and the kernel reads $((limit - 1)): take something off first"
}

# show says which of the arguments the running kernel was started with.
show() {
    missing=0
    line=" $(get "$root/proc/cmdline") "
    set -f
    for word in $args; do
        case $line in
        *" $word "*) say "in force  $word" ;;
        *)
            say "missing   $word"
            missing=1
            ;;
        esac
    done
    set +f
    return "$missing"
}
apply() {
    line=$(rpm-ostree kargs)
    fits "$(others "$line") $args"
    old=$(replaced "$line")
    mkdir -p "$state"
    [ -e "$state/rpm-ostree" ] || printf '%s\n' "$old" >"$state/rpm-ostree"
    change "$old" "$args"
}

undo() {
    change "$args" "$(get "$state/rpm-ostree")"
    rm -f "$state/rpm-ostree"
}

# change GONE NEW makes one new deployment, so that there is one to go back to.
change() {
    set -f
    set -- "$1" "$2" rpm-ostree kargs
    gone=$1 new=$2
    shift 2
    for word in $gone; do
        set -- "$@" "--delete-if-present=$word"
    done
    for word in $new; do
        set -- "$@" "--append-if-missing=$word"
    done
    set +f
    "$@"
}

case ${1-} in
apply | undo)
    "$1"
    say "reboot for this to take effect, then: $0 show"
    ;;
show) show ;;
*)
    printf 'usage: %s apply|undo|show\n' "$name" >&2
    exit 2
    ;;
esac
