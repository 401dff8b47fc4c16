
# vfio ADDRESS VENDOR DEVICE hands a function to vfio-pci for a guest.
vfio() {
    case $do in
    check)
        card "$@"
        viable "$1"
        is_bound "$1" vfio-pci || unused "$1"
        ;;
    refuse) ! is_bound "$1" vfio-pci || unused "$1" ;;
    start)
        # With vfio-pci by our udev rule: then stop gives it to the driver that a boot would load. By somebody else: then it is not ours to give.
        if ! is_bound "$1" vfio-pci || [ -e "$root/etc/udev/rules.d/10-rackless-$lab.rules" ]; then
            keep "$1" "$(driver "$1")"
        fi
        give "$1"
        say "$1: vfio-pci"
        ;;
    stop)
        kept "$1" || return 0
        was=$(old "$1")
        if [ "$was" = vfio-pci ]; then
            back "$1" ''
            modprobe -b "$(get "$pci/devices/$1/modalias")" || warn "no module for $1"
            put "$1" "$pci/drivers_probe" || :
        else
            back "$1" "$was"
        fi
        forget "$1"
        ;;
    status)
        say "$1: $(driver "$1")"
        is_bound "$1" vfio-pci || wrong=1
        ;;
    esac
    # A card in D3cold may not come back when the guest starts.
    [ ! -e "$pci/devices/$1/d3cold_allowed" ] || value may same "/sys/bus/pci/devices/$1/d3cold_allowed" 0 - "D3cold cannot be forbidden"
}
