#!/bin/sh
# rackless test plan of lab r740 (r740.yaml) for r740
# Kernel arguments by /etc/default/grub.d: Debian, Ubuntu and others with GRUB and without grubby. apply
# changes nothing but the boot loader's settings, undo takes that back, and show says what the running kernel
# was started with.

lab='r740'
# What the kernel has to be started with, and why:
# - intel_iommu=on: the IOMMU of Intel is off unless the kernel was built otherwise
# - iommu=pt: devices that the host keeps are not slowed down by the IOMMU
# - isolcpus=managed_irq,domain,2-45,50-93: nothing of the host is scheduled on the CPUs of the lab nodes, nor
# its managed interrupts
# - nohz_full=2-45,50-93: no timer tick while a virtual CPU runs alone
# - rcu_nocbs=2-45,50-93: the kernel's callbacks run on housekeeping CPUs
# - hugepagesz=2M: the size of the pages that are set aside next
# - hugepages=0:36864,1:36864: pages are set aside while memory is still in one piece
args='intel_iommu=on iommu=pt isolcpus=managed_irq,domain,2-45,50-93 nohz_full=2-45,50-93 rcu_nocbs=2-45,50-93 hugepagesz=2M hugepages=0:36864,1:36864'
# What they set. Other values of the same go, and come back with undo.
keys='intel_iommu iommu isolcpus nohz_full rcu_nocbs hugepagesz hugepages'
# COMMAND_LINE_SIZE of this architecture.
limit='2048'
# The name of grub.cfg in /etc/default/grub.d.
file='rackless-r740.cfg'

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
snippet=$root/etc/default/grub.d/$file
defaults=$root/etc/default/grub

regenerate() {
    if command -v update-grub >/dev/null 2>&1; then
        update-grub
    elif command -v grub2-mkconfig >/dev/null 2>&1; then
        grub2-mkconfig -o "$root/boot/grub2/grub.cfg"
    elif command -v grub-mkconfig >/dev/null 2>&1; then
        grub-mkconfig -o "$root/boot/grub/grub.cfg"
    else
        fail "neither update-grub nor grub2-mkconfig nor grub-mkconfig is there: is GRUB the boot loader?"
    fi
}

# reads_snippets says whether this GRUB reads /etc/default/grub.d by itself: Debian's and Ubuntu's do.
reads_snippets() {
    for program in grub-mkconfig grub2-mkconfig; do
        path=$(command -v "$program" 2>/dev/null) || continue
        ! grep -q 'default/grub\.d' "$path" || return 0
    done
    return 1
}

apply() {
    # There the entries in /boot/loader/entries have command lines of their own, which grub2-mkconfig leaves as they are.
    if command -v grubby >/dev/null 2>&1 && grep -q '^GRUB_ENABLE_BLSCFG=.*true' "$defaults" 2>/dev/null; then
        fail "this system boots by entries in /boot/loader/entries: use grubby.sh"
    fi
    fits "$(others "$(get "$root/proc/cmdline")") $args"
    mkdir -p "${snippet%/*}"
    cp "$(dirname "$0")/grub.cfg" "$snippet"
    chmod 0644 "$snippet"
    if ! reads_snippets && ! grep -qF "/etc/default/grub.d/$file" "$defaults" 2>/dev/null; then
        printf '. /etc/default/grub.d/%s # rackless\n' "$file" >>"$defaults"
    fi
    regenerate
}

undo() {
    rm -f "$snippet"
    if grep -qF "/etc/default/grub.d/$file # rackless" "$defaults" 2>/dev/null; then
        without=$(grep -vF "/etc/default/grub.d/$file # rackless" "$defaults" || :)
        printf '%s\n' "$without" >"$defaults"
    fi
    regenerate
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
