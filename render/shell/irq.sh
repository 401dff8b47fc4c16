state=$root/run/rackless/$lab/irq

# near NODE prints the housekeeping CPUs of a NUMA node, or all where it has none.
near() {
    while read -r node list; do
        if [ "$node" = "$1" ]; then
            say "$list"
            return
        fi
    done <<EOF
$by_node
EOF
    say "$housekeeping"
}

# within LIST is true where a list of CPUs ("2-3,34") has only housekeeping CPUs.
within() {
    for part in $(printf '%s\n' "$1" | tr , ' '); do
        first=${part%-*}
        last=${part#*-}
        while [ "$first" -le "$last" ]; do
            case " $housekeeping_each " in
            *" $first "*) ;;
            *) return 1 ;;
            esac
            first=$((first + 1))
        done
    done
}

start() {
    # Interrupts that are asked for later start here: those of VFIO among them.
    keep default "$(get "$root/proc/irq/default_smp_affinity")"
    put "$housekeeping_mask" "$root/proc/irq/default_smp_affinity" || warn "the default affinity cannot be set"
    first=0
    [ -e "$state/irqs" ] || first=1
    moved=0 fixed=0 kept=0
    for dir in "$root"/proc/irq/[0-9]*; do
        file=$dir/smp_affinity_list
        [ -e "$file" ] || continue
        old=$(get "$file")
        if [ -z "$old" ] || within "$old"; then
            kept=$((kept + 1))
            continue
        fi
        if put "$(near "$(get "$dir/node")")" "$file"; then
            moved=$((moved + 1))
            [ "$first" = 0 ] || say "${dir##*/} $old" >>"$state/irqs"
        else
            # Managed interrupts (NVMe, some NICs) and those of one CPU cannot be moved: isolcpus=managed_irq is what keeps them away.
            fixed=$((fixed + 1))
        fi
    done
    say "$moved interrupts moved to CPUs $housekeeping, $kept were there already, $fixed cannot be moved"
    if [ -z "$root" ] && systemctl is-active --quiet irqbalance 2>/dev/null; then
        warn "irqbalance runs and may move them back: install systemd/irqbalance.service.d, or stop it"
    fi
}

stop() {
    while read -r irq old; do
        # An interrupt that is gone needs no place.
        [ ! -e "$root/proc/irq/$irq" ] || put "$old" "$root/proc/irq/$irq/smp_affinity_list" || warn "interrupt $irq does not go back to CPUs $old"
    done <<EOF
$(get "$state/irqs")
EOF
    [ ! -e "$state/default" ] || put "$(get "$state/default")" "$root/proc/irq/default_smp_affinity" || :
    rm -f "$state/irqs" "$state/default"
}

status() {
    astray=0
    for dir in "$root"/proc/irq/[0-9]*; do
        now=$(get "$dir/effective_affinity_list")
        [ -n "$now" ] || now=$(get "$dir/smp_affinity_list")
        if [ -n "$now" ] && ! within "$now"; then
            say "interrupt ${dir##*/} may run on CPUs $now"
            astray=1
        fi
    done
    return "$astray"
}
