pci=$root/sys/bus/pci

# driver ADDRESS prints the driver that a function is bound to, nothing where there is none.
driver() {
    [ ! -L "$pci/devices/$1/driver" ] || basename "$(readlink "$pci/devices/$1/driver")"
}
is_bound() { [ "$(driver "$1")" = "$2" ]; }
is_free() { [ -z "$(driver "$1")" ]; }
group() { basename "$(readlink "$pci/devices/$1/iommu_group")"; }

# override ADDRESS DRIVER sets driver_override, or clears it where DRIVER is empty, and looks whether that took.
override() {
    put "$2" "$pci/devices/$1/driver_override" || return 1
    case $(get "$pci/devices/$1/driver_override") in
    "$2") ;;
    '(null)' | '') [ -z "$2" ] ;;
    *) return 1 ;;
    esac
}

# users ADDRESS prints the processes that have a device file of a function open: taking a GPU from one hangs for ever.
users() {
    case $(driver "$1") in
    vfio-pci) files=$root/dev/vfio/$(group "$1") ;;
    nvidia) files=$root/dev/nvidia$(sed -n 's/^Device Minor:[[:space:]]*//p' "$root/proc/driver/nvidia/gpus/$1/information" 2>/dev/null || :) ;;
    *)
        files=$(for file in "$pci/devices/$1"/*/*/dev "$pci/devices/$1"/*/*/*/dev; do
            case $(basename "$(readlink "${file%/dev}/subsystem" 2>/dev/null)") in
            accel | block | drm | infiniband_mad | infiniband_verbs | nvme | sound | uio) sed -n "s,^DEVNAME=,$root/dev/,p" "${file%/dev}/uevent" ;;
            esac
        done)
        ;;
    esac
    for file in $files; do
        find "$root"/proc/[0-9]*/fd -lname "$file" 2>/dev/null | sed 's,/fd/.*,,; s,.*/,,'
    done | sort -u | tr '\n' ' '
}

# unused ADDRESS TEXT... refuses where somebody uses a function: a process, or the host as a network device with addresses, in a bond or in a bridge.
unused() {
    busy=$(users "$1") address=$1
    shift
    [ -z "$busy" ] || fail "$*$address is in use by processes $busy: shut the guest down first, or end them (a GPU that waits: systemctl stop nvidia-persistenced; nvidia-smi -i $address -pm 0)"
    for net in "$pci/devices/$address"/net/*; do
        [ -e "$net" ] || continue
        if [ -e "$net/master" ] || [ -n "$(ip -o addr show dev "${net##*/}" scope global)" ]; then
            fail "$*$address is in use: ${net##*/} has an address, or is in a bond or bridge"
        fi
    done
}

# card ADDRESS VENDOR DEVICE refuses another card than the plan was made for: addresses move when one is added. A number that the plan does not
# know is given as "-".
card() {
    dir=$pci/devices/$1
    [ -d "$dir" ] || fail "$1 is not there: has the machine changed since the plan was made?"
    [ "$2" = - ] || [ "$(get "$dir/vendor") $(get "$dir/device")" = "$2 $3" ] ||
        fail "$1 is $(get "$dir/vendor") $(get "$dir/device"), and the plan was made for $2 $3: make a new plan"
}

# viable ADDRESS refuses a function whose IOMMU group the host uses too: VFIO takes a group whole or not at all.
viable() {
    [ -L "$pci/devices/$1/iommu_group" ] || fail "$1 is in no IOMMU group: switch the IOMMU on in the firmware and the kernel (kernel/, firmware/bios.md)"
    for member in "$pci/devices/$1"/iommu_group/devices/*; do
        member=${member##*/}
        # A bridge's own driver leaves memory alone.
        case "$(driver "$member") $(get "$pci/devices/$member/class")" in
        ' '* | 'vfio-pci '* | 'pci-stub '* | 'pcieport 0x0604'*) continue ;;
        esac
        case "$changes " in
        *"vfio $member "*) ;;
        *) [ "$member" = "$1" ] || fail "group $(group "$1") of $1 also has $member, which the host uses with $(driver "$member"): the group goes to a guest as a whole or not at all" ;;
        esac
    done
}

# release ADDRESS takes a function from its driver.
release() {
    is_free "$1" || put "$1" "$pci/devices/$1/driver/unbind" || :
    wait_for is_free "$1" || fail "$1 stays with $(driver "$1"): something uses it"
}

# give ADDRESS hands a function to vfio-pci. The override comes first: from then on no other driver can take it, whoever loads one.
give() {
    before=$(driver "$1")
    [ "$before" != vfio-pci ] || return 0
    override "$1" vfio-pci || fail "$1 takes no driver_override"
    release "$1"
    put "$1" "$pci/drivers_probe" || :
    if ! wait_for is_bound "$1" vfio-pci || ! wait_for [ -e "$root/dev/vfio/$(group "$1")" ]; then
        back "$1" "$before"
        fail "$1 does not go to vfio-pci, and is back with $(driver "$1"): see dmesg"
    fi
}

# back ADDRESS DRIVER gives a function back. While that is done the override names the driver, so that no other takes the function.
back() {
    is_bound "$1" "$2" || {
        override "$1" "$2" || fail "$1 keeps its driver_override: write a newline to $pci/devices/$1/driver_override"
        release "$1"
        [ -z "$2" ] || {
            [ -d "$pci/drivers/$2" ] || modprobe "$2" || modprobe -b "$(get "$pci/devices/$1/modalias")" || warn "no module for $2"
            put "$1" "$pci/drivers_probe" || :
            wait_for is_bound "$1" "$2" || warn "$1 is with $(driver "$1"), before with $2"
        }
    }
    override "$1" '' || fail "$1 keeps its driver_override: write a newline to $pci/devices/$1/driver_override"
}
