#!/bin/sh
# rackless test plan of lab h20-vfs (h20-vfs.yaml) for h20
# Kernel arguments for systemd-boot, in its entries and /etc/kernel/cmdline, or by kernelstub where that is
# there. apply changes nothing but the boot loader's settings, undo takes that back, and show says what the
# running kernel was started with.

lab='h20-vfs'
# What the kernel has to be started with, and why:
# - iommu=pt: devices that the host keeps are not slowed down by the IOMMU
# - isolcpus=managed_irq,domain,1-40,49-88,97-136,145-184: nothing of the host is scheduled on the CPUs of the
# lab nodes, nor its managed interrupts
# - nohz_full=1-40,49-88,97-136,145-184: no timer tick while a virtual CPU runs alone
# - rcu_nocbs=1-40,49-88,97-136,145-184: the kernel's callbacks run on housekeeping CPUs
# - hugepagesz=1G: the size of the pages that are set aside next
# - hugepages=0:256,1:256: pages are set aside while memory is still in one piece
args='iommu=pt isolcpus=managed_irq,domain,1-40,49-88,97-136,145-184 nohz_full=1-40,49-88,97-136,145-184 rcu_nocbs=1-40,49-88,97-136,145-184 hugepagesz=1G hugepages=0:256,1:256'
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
# files prints the files with a command line in them: the boot entries of this machine that start Linux (The Boot Loader Specification, type 1),
# and what kernel-install makes the next ones of. They are edited in place, as rackless prepare does: grubby takes iommu=pt for a part of
# intel_iommu=pt in some versions and cannot keep pages of two sizes apart, and kernel-install builds each initrd anew.
files() {
    for file in "$root"/boot/loader/entries/*.conf "$root"/efi/loader/entries/*.conf "$root"/boot/efi/loader/entries/*.conf; do
        id=$(sed -n 's/^machine-id[[:space:]]*//p' "$file" 2>/dev/null || :)
        case $id in
        '' | "$(get "$root/etc/machine-id")") ! grep -q '^linux[[:space:]]' "$file" 2>/dev/null || say "$file" ;;
        esac
    done
    [ ! -e "$root/etc/kernel/cmdline" ] || say "$root/etc/kernel/cmdline"
}

# key FILE prints what stands before the command line.
key() {
    case $1 in
    *cmdline) ;;
    *) printf 'options ' ;;
    esac
}

# line FILE prints the command line of a file.
line() { sed -n "/^[[:space:]]*#/d; s/^$(key "$1")[[:space:]]*//p" "$1" | tr '\n' ' ' | sed 's/ *$//'; }

# rewrite FILE LINE gives a file another command line, in one step.
rewrite() {
    cp -p "$1" "$1.rackless-new"
    { sed "/^[[:space:]]*#/b
/^$(key "$1")/d" "$1" && printf '%s%s\n' "$(key "$1")" "$2"; } >"$1.rackless-new"
    mv "$1.rackless-new" "$1"
}

# with LINE prints a command line with our arguments. One that has them by way of GRUB's variable loses what it has of its own instead.
with() {
    case $1 in
    *"\$kernelopts"*) others "$1" ;;
    *) say "$(others "$1") $args" | sed 's/^ //' ;;
    esac
}

# variable prints kernelopts of GRUB's environment, which entries of RHEL 8 refer to.
variable() { grub2-editenv - list 2>/dev/null | sed -n 's/^kernelopts=//p' || :; }
saved() { printf '%s/%s\n' "$state" "$(printf '%s' "$1" | tr / +)"; }

apply() {
    [ -n "$(files)" ] || fail "no boot entries in loader/entries of /boot, /efi or /boot/efi: another boot loader? A unified kernel image has the arguments of /etc/kernel/cmdline when it is built"
    while read -r file; do
        fits "$(with "$(line "$file")")"
    done <<EOF
$(files)
EOF
    mkdir -p "$state"
    environment=$(variable)
    if [ -n "$environment" ]; then
        new=$(with "$environment")
        # It is a block of 1024 bytes; other variables and the header need about 100 of them.
        [ "${#new}" -lt 900 ] || fail "GRUB's environment block (1024 bytes) would overflow: take something off the command line first"
        [ -e "$state/kernelopts" ] || say "$environment" >"$state/kernelopts"
        grub2-editenv - set "kernelopts=$new"
    fi
    while read -r file; do
        [ -e "$(saved "$file")" ] || cp -p "$file" "$(saved "$file")"
        rewrite "$file" "$(with "$(line "$file")")"
    done <<EOF
$(files)
EOF
}

# undo brings each file back as it was. Of one that somebody has changed since, or that came with another kernel, our arguments are taken off, and
# those of before are put back.
undo() {
    [ -d "$state" ] || fail "nothing to undo: $state has no record of apply"
    before=
    while read -r file; do
        was=$(saved "$file") now=$(line "$file")
        [ ! -e "$was" ] || before=$(replaced "$(line "$was")")
        if [ -e "$was" ] && [ "$now" = "$(with "$(line "$was")")" ]; then
            cp -p "$was" "$file.rackless-new"
            mv "$file.rackless-new" "$file"
        else
            rewrite "$file" "$(others "$now")${before:+ $before}"
        fi
        rm -f "$was"
    done <<EOF
$(files)
EOF
    [ ! -e "$state/kernelopts" ] || grub2-editenv - set "kernelopts=$(get "$state/kernelopts")"
    rm -rf "$state"
}
# On Pop!_OS a program writes the entries from settings of its own.
if command -v kernelstub >/dev/null 2>&1; then
    apply() {
        mkdir -p "$state"
        [ -e "$state/kernelstub" ] || replaced "$(get "$root/proc/cmdline")" >"$state/kernelstub"
        before=$(get "$state/kernelstub")
        [ -z "$before" ] || kernelstub --delete-options "$before"
        kernelstub --add-options "$args"
    }
    undo() {
        kernelstub --delete-options "$args"
        before=$(get "$state/kernelstub")
        [ -z "$before" ] || kernelstub --add-options "$before"
        rm -f "$state/kernelstub"
    }
fi

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
