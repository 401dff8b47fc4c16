# lines prints the command line of every boot entry. On RHEL 8 an entry refers to $kernelopts, which is in GRUB's environment.
lines() {
    environment=$(grub2-editenv - list 2>/dev/null | sed -n 's/^kernelopts=//p' || :)
    grubby --info=ALL | sed -n 's/^args="\(.*\)"$/\1/p' | while read -r line; do
        case $line in
        *"\$kernelopts"*) printf '%s %s\n' "$line" "$environment" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
}

apply() {
    all=$(lines)
    [ -n "$all" ] || fail "grubby lists no boot entries: another boot loader?"
    old=$(replaced "$all")
    while read -r line; do
        fits "$(others "$line") $args"
        case " $args | $(others "$line") " in
        *" hugepagesz="*" | "*hugepagesz=*)
            # grubby knows one value for a name and would change both.
            fail "an entry sets aside hugepages of another size too, which grubby cannot keep apart: edit the entries in /boot/loader/entries by hand: $line"
            ;;
        esac
    done <<EOF
$all
EOF
    # GRUB's environment is a block of 1024 bytes; with kernelopts in it, other variables and the header need about 100 of them.
    case $(grub2-editenv - list 2>/dev/null || :) in
    *kernelopts=*)
        line=$(others "$(grub2-editenv - list | sed -n 's/^kernelopts=//p')")
        [ $((${#line} + ${#args})) -lt 900 ] || fail "GRUB's environment block (1024 bytes) would overflow: take something off the command line first"
        ;;
    esac
    mkdir -p "$state"
    [ -e "$state/grubby" ] || unique "$old" >"$state/grubby"
    grubby --update-kernel=ALL --remove-args="$(unique "$old")" --args="$args"
    # Early versions mistake intel_iommu= for iommu=; so look.
    while read -r line; do
        set -f
        for word in $args; do
            case " $line " in
            *" $word "*) ;;
            *) fail "an entry did not take $word; it is: $line" ;;
            esac
        done
        set +f
    done <<EOF
$(lines)
EOF
}

# unique LINE prints each word once.
unique() {
    once=
    set -f
    for word in $1; do
        case " $once " in
        *" $word "*) ;;
        *) once="$once${once:+ }$word" ;;
        esac
    done
    set +f
    printf '%s\n' "$once"
}

undo() {
    grubby --update-kernel=ALL --remove-args="$args" --args="$(get "$state/grubby")"
    rm -f "$state/grubby"
}
