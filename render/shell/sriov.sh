
# netdev PF prints the network device of a physical function, not those that stand for its virtual ones (pf0vf3).
netdev() {
    for dir in "$pci/devices/$1"/net/*; do
        [ -e "$dir" ] || continue
        case $(get "$dir/phys_port_name") in
        *vf* | *sf*) continue ;;
        esac
        say "${dir##*/}"
        return
    done
    return 1
}
has_netdev() { netdev "$1" >/dev/null; }

# vf_of PF INDEX prints the address of a virtual function.
vf_of() { basename "$(readlink "$pci/devices/$1/virtfn$2")"; }
has_vf() { [ -L "$pci/devices/$1/virtfn$2" ]; }

# link PF MTU has the port of a physical function up, with an MTU of at least that: it drops larger frames of its virtual functions.
link() {
    [ "$do" != check ] || wait_for has_netdev "$1" || fail "$1 has no network device: its driver is not loaded, or it is given to a guest itself"
    dev=$(netdev "$1") || return 0
    value must least "/sys/class/net/$dev/mtu" "$2" - "$dev does not take MTU $2"
    flags=$(get "$root/sys/class/net/$dev/flags")
    case $do in
    start)
        [ $((flags & 1)) = 1 ] || keep "up $1" no
        ip link set dev "$dev" up || fail "$dev does not come up"
        ;;
    stop)
        ! kept "up $1" || ip link set dev "$dev" down
        forget "up $1"
        ;;
    esac
}

# count PF N makes the number of virtual functions, by way of 0: the kernel refuses to go from one number to another.
count() {
    dir=$pci/devices/$1
    now=$(get "$dir/sriov_numvfs") i=0
    [ "${now:-0}" != "$2" ] || return 0
    while [ "$i" -lt "${now:-0}" ]; do
        unused "$(vf_of "$1" "$i")" "$1 has $now virtual functions and is to have $2, which goes by way of 0; number $i cannot go: "
        i=$((i + 1))
    done
    [ "$do" != check ] || return 0
    # Without drivers at first, so that none of them sees an address of zeros; RDMA takes its node GUID from it.
    probe=$(get "$dir/sriov_drivers_autoprobe")
    [ -z "$probe" ] || put 0 "$dir/sriov_drivers_autoprobe" || :
    [ "${now:-0}" = 0 ] || put 0 "$dir/sriov_numvfs" || fail "$1 does not give up its $now virtual functions: see dmesg"
    put "$2" "$dir/sriov_numvfs" || :
    [ -z "$probe" ] || put "$probe" "$dir/sriov_drivers_autoprobe" || :
    if [ "$(get "$dir/sriov_numvfs")" != "$2" ]; then
        put "${now:-0}" "$dir/sriov_numvfs" || :
        fail "$1 does not make $2 virtual functions. See the end of dmesg: \"not enough MMIO resources\" asks for SR-IOV and 64-bit addresses (above 4G) in the firmware, or for pci=realloc"
    fi
    [ "$2" = 0 ] || wait_for has_vf "$1" $(($2 - 1)) || fail "$1: virtual function $(($2 - 1)) does not appear"
}

# vfs PF VENDOR DEVICE COUNT has that many virtual functions.
vfs() {
    dir=$pci/devices/$1
    case $do in
    check)
        card "$1" "$2" "$3"
        [ -e "$dir/sriov_totalvfs" ] || fail "$1 offers no SR-IOV: switch it on in the NIC's firmware (firmware/nic.sh) and in the BIOS (firmware/bios.md)"
        [ "$(get "$dir/sriov_totalvfs")" -ge "$4" ] || fail "$1 offers $(get "$dir/sriov_totalvfs") virtual functions, $4 are needed: raise NUM_OF_VFS (firmware/nic.sh)"
        count "$1" "$4"
        ;;
    start)
        keep "$1" "$(get "$dir/sriov_numvfs")"
        count "$1" "$4"
        ;;
    stop)
        ! kept "$1" || count "$1" "$(old "$1")"
        forget "$1"
        ;;
    status)
        say "$1: $(get "$dir/sriov_numvfs") virtual functions, $4 wanted"
        [ "$(get "$dir/sriov_numvfs")" = "$4" ] || wrong=1
        ;;
    esac
}

# vf PF INDEX MAC GUID TRUST SPOOFCHK gives a virtual function the address of its lab node and hands it to vfio-pci.
vf() {
    address=
    ! has_vf "$1" "$2" || address=$(vf_of "$1" "$2")
    case $do in
    refuse) [ -z "$address" ] || ! is_bound "$address" vfio-pci || unused "$address" ;;
    start)
        dev=$(netdev "$1")
        if ! is_bound "$address" vfio-pci || ! ip link show dev "$dev" | grep -qiE "vf $2 .*($3|$4)"; then
            viable "$address"
            unused "$address"
            keep "vf $address" "$(driver "$address")"
            override "$address" vfio-pci || fail "$address takes no driver_override"
            is_bound "$address" vfio-pci || release "$address"
            known_by "$@"
            give "$address"
        fi
        say "$1 virtual function $2: $address, $3"
        ;;
    stop)
        [ -n "$address" ] || return 0
        ! kept "vf $address" || back "$address" "$(old "vf $address")"
        forget "vf $address"
        ;;
    status)
        say "$1 virtual function $2: ${address:-not there}, wants $3, driver $(driver "$address")"
        is_bound "${address:-none}" vfio-pci || wrong=1
        ;;
    esac
}

# known_by PF INDEX MAC GUID TRUST SPOOFCHK sets what a virtual function is known by. It has to be there before the function gets a driver.
known_by() {
    # 32 is ARPHRD_INFINIBAND: there GUIDs stand for MAC addresses.
    if [ "$(get "$root/sys/class/net/$dev/type")" = 32 ]; then
        ip link set dev "$dev" vf "$2" node_guid "$4" || fail "$dev: virtual function $2 takes no node GUID"
        ip link set dev "$dev" vf "$2" port_guid "$4" || fail "$dev: virtual function $2 takes no port GUID"
    else
        ip link set dev "$dev" vf "$2" mac "$3" || fail "$dev: virtual function $2 does not take MAC address $3"
    fi
    have=$(ip link show dev "$dev" | grep "vf $2 " || :)
    change "$2" "vlan " none vlan 0
    change "$2" "tx rate " none max_tx_rate 0 min_tx_rate 0
    change "$2" "max_tx_rate " none max_tx_rate 0 min_tx_rate 0
    change "$2" "spoof checking " "spoof checking $6" spoofchk "$6"
    change "$2" "trust " "trust $5" trust "$5"
    change "$2" "link-state " "link-state auto" state auto
}

# change INDEX SHOWN GOOD WORDS... makes a setting that is shown and not good. What the driver does not report it does not know.
change() {
    index=$1
    case $have in
    *"$3"*) ;;
    *"$2"*)
        shift 3
        ip link set dev "$dev" vf "$index" "$@" || warn "$dev: virtual function $index does not take $*"
        ;;
    esac
}

# rest PF COUNT leaves the other virtual functions to the host's drivers, where the host gives them any.
rest() {
    [ "$do$(get "$pci/devices/$1/sriov_drivers_autoprobe")" = start1 ] || return 0
    i=0
    while [ "$i" -lt "$2" ]; do
        address=$(vf_of "$1" "$i")
        ! is_free "$address" || put "$address" "$pci/drivers_probe" || :
        i=$((i + 1))
    done
}
