# mstconfig (package mstflint) and mlxconfig (MFT) are the same tool for our purpose.
tool=
for program in mstconfig mlxconfig; do
    if command -v "$program" >/dev/null 2>&1; then
        tool=$program
        break
    fi
done
[ -n "$tool" ] || fail "install mstflint (mstconfig) or NVIDIA's MFT (mlxconfig) first"
state=$root/var/lib/rackless/$lab/firmware

# value CARD NAME prints a parameter as it will be at the next boot, as a number; nothing where the card does not have it. The tool prints
# "SRIOV_EN   True(1)" and "NUM_OF_VFS   8", and a star before what is changed.
value() {
    "$tool" -d "$1" query "$2" 2>/dev/null |
        sed -n "s/^[*[:space:]]*$2[[:space:]][[:space:]]*\([^[:space:]]*\).*/\1/p" |
        sed -n 's/^[^(]*(\([0-9]*\)).*/\1/p; t
s/^\([0-9][0-9]*\)$/\1/p'
}

# wanted prints a line "CARD NAME VALUE" for each parameter that has to change.
wanted() {
    while read -r card vfs; do
        if [ "$vfs" -gt 0 ]; then
            now=$(value "$card" SRIOV_EN)
            [ -n "$now" ] || fail "$card has no parameter SRIOV_EN: is it there, and a ConnectX-4 or later?"
            [ "$now" = 1 ] || say "$card SRIOV_EN 1"
            # Never fewer than there are: others may use them.
            now=$(value "$card" NUM_OF_VFS)
            [ "${now:-0}" -ge "$vfs" ] || say "$card NUM_OF_VFS $vfs"
        fi
        # Only cards that can do InfiniBand too have these; 2 is Ethernet.
        for port in LINK_TYPE_P1 LINK_TYPE_P2; do
            now=$(value "$card" "$port")
            [ -z "$now" ] || [ "$now" = 2 ] || say "$card $port 2"
        done
    done <<EOF
$cards
EOF
}

query() {
    while read -r card vfs; do
        say "$card: SRIOV_EN=$(value "$card" SRIOV_EN) NUM_OF_VFS=$(value "$card" NUM_OF_VFS) LINK_TYPE_P1=$(value "$card" LINK_TYPE_P1) LINK_TYPE_P2=$(value "$card" LINK_TYPE_P2)"
    done <<EOF
$cards
EOF
    changes=$(wanted)
    if [ -z "$changes" ]; then
        say "nothing to change"
    else
        say "to change:"
        say "$changes"
    fi
}

apply() {
    changes=$(wanted)
    if [ -z "$changes" ]; then
        say "nothing to change"
        return
    fi
    while read -r card parameter new; do
        keep "$card.$parameter" "$(value "$card" "$parameter")"
        "$tool" -d "$card" --yes set "$parameter=$new"
    done <<EOF
$changes
EOF
    reset_hint
}

undo() {
    for file in "$state"/*; do
        [ -e "$file" ] || continue
        parameter=${file##*.}
        card=${file##*/}
        card=${card%."$parameter"}
        "$tool" -d "$card" --yes set "$parameter=$(get "$file")"
        rm -f "$file"
    done
    reset_hint
}

reset_hint() {
    say "The cards take this at their next reset: reboot (a BlueField: switch the power off and on), or, with no driver or guest using the card, mstfwreset -d CARD reset"
}

case ${1-} in
query | apply | undo) "$1" ;;
*)
    printf 'usage: %s query|apply|undo\n' "$name" >&2
    exit 2
    ;;
esac
