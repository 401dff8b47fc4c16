# mstconfig (package mstflint) and mlxconfig (MFT) are the same tool for our purpose.
tool=
for program in mstconfig mlxconfig; do
    [ -n "$tool" ] || ! command -v "$program" >/dev/null 2>&1 || tool=$program
done
[ -n "$tool" ] || fail "install mstflint (mstconfig) or NVIDIA's MFT (mlxconfig) first"

# setting CARD NAME prints a parameter as it will be at the next boot, as a number; nothing where the card does not have it. The tool prints
# "SRIOV_EN   True(1)" and "NUM_OF_VFS   8", and a star before what is changed.
setting() {
    "$tool" -d "$1" query "$2" 2>/dev/null |
        sed -n "s/^[*[:space:]]*$2[[:space:]][[:space:]]*\([^[:space:]]*\).*/\1/p" |
        sed -n 's/^[^(]*(\([0-9]*\)).*/\1/p; t
s/^\([0-9][0-9]*\)$/\1/p'
}

# firmware CARD NAME VALUE TEST NEED sets a parameter in the firmware of a NIC. Where NEED is may, a card without it needs nothing.
firmware() {
    now=$(setting "$1" "$2")
    case $do in
    check) [ -n "$now" ] || [ "$5" = may ] || fail "$1 has no parameter $2: is it there, and a ConnectX-4 or later?" ;;
    start)
        [ -n "$now" ] && ! is "$4" "$now" "$3" || return 0
        keep "$1.$2" "$now"
        "$tool" -d "$1" --yes set "$2=$3"
        ;;
    stop)
        ! kept "$1.$2" || "$tool" -d "$1" --yes set "$2=$(old "$1.$2")"
        forget "$1.$2"
        ;;
    status)
        [ -z "$now" ] || is "$4" "$now" "$3" || now="$now, to be changed to $3"
        say "$1 $2: ${now:-not there}"
        ;;
    esac
}
