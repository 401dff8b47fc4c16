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
