cmdline=$root/etc/kernel/cmdline

# reinstall writes the boot entries again, for each kernel that is installed.
reinstall() {
    found=0
    for image in "$root"/usr/lib/modules/*/vmlinuz "$root"/boot/vmlinuz-*; do
        [ -e "$image" ] || continue
        case $image in
        */vmlinuz) version=${image%/vmlinuz} version=${version##*/} ;;
        *) version=${image##*/vmlinuz-} ;;
        esac
        [ -d "$root/usr/lib/modules/$version" ] || continue
        kernel-install add "$version" "$image"
        found=1
    done
    [ "$found" = 1 ] || fail "no kernel found to write boot entries for: run kernel-install add VERSION IMAGE for yours"
}

apply() {
    if command -v kernelstub >/dev/null 2>&1; then # Pop!_OS
        mkdir -p "$state"
        [ -e "$state/kernelstub" ] || replaced "$(get "$root/proc/cmdline")" >"$state/kernelstub"
        old=$(get "$state/kernelstub")
        [ -z "$old" ] || kernelstub --delete-options "$old"
        kernelstub --add-options "$args"
        return
    fi
    command -v kernel-install >/dev/null 2>&1 ||
        fail "no kernel-install: add the arguments to the line \"options\" of the entries in loader/entries of the boot partition (bootctl list shows them): $args"
    line=
    for source in "$cmdline" "$root/usr/lib/kernel/cmdline"; do
        [ -z "$line" ] || continue
        # kernel-install joins lines and skips comments.
        line=$(sed '/^[[:space:]]*#/d' "$source" 2>/dev/null | tr '\n' ' ' || :)
    done
    if [ -z "$line" ]; then
        # What the boot loader put there itself is not ours to repeat.
        set -f
        for word in $(get "$root/proc/cmdline"); do
            case $word in
            BOOT_IMAGE=* | initrd=*) ;;
            *) line="$line${line:+ }$word" ;;
            esac
        done
        set +f
    fi
    line="$(others "$line") $args"
    fits "$line"
    mkdir -p "$state" "${cmdline%/*}"
    if [ ! -e "$state/cmdline" ] && [ ! -e "$state/no-cmdline" ]; then
        if [ -e "$cmdline" ]; then cp -p "$cmdline" "$state/cmdline"; else : >"$state/no-cmdline"; fi
    fi
    printf '%s\n' "$line" >"$cmdline"
    reinstall
}

undo() {
    if [ -e "$state/kernelstub" ]; then
        kernelstub --delete-options "$args"
        old=$(get "$state/kernelstub")
        [ -z "$old" ] || kernelstub --add-options "$old"
        rm -f "$state/kernelstub"
        return
    fi
    if [ -e "$state/cmdline" ]; then
        cp -p "$state/cmdline" "$cmdline"
    elif [ -e "$state/no-cmdline" ]; then
        rm -f "$cmdline"
    else
        fail "nothing to undo: $state has no record of apply"
    fi
    rm -f "$state/cmdline" "$state/no-cmdline"
    reinstall
}
