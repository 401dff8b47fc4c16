
# within LIST SET is true where all CPUs of a list ("2-3,34") are in a set that is written in the same way.
# It starts no process, since interrupts are many.
within() {
    IFS=,
    for part in $1; do
        for range in $2; do
            [ "${part%-*}" -lt "${range%-*}" ] || [ "${part#*-}" -gt "${range#*-}" ] || continue 2
        done
        unset IFS
        return 1
    done
    unset IFS
}

# irqs CPUS NODE=CPUS... moves interrupts to CPUs of the host: those of a device to ones of its NUMA node, where the host has any there.
irqs() {
    cpus=$1
    shift
    moved=0 fixed=0
    for dir in "$root"/proc/irq/[0-9]*; do
        file=$dir/smp_affinity_list
        [ -e "$file" ] || continue
        now=$(get "$file") actions=$(get "$root/sys/kernel/irq/${dir##*/}/actions")
        case $do in
        start)
            ! within "$now" "$cpus" || continue
            first=1
            ! kept "$dir" || first=0
            keep "$dir" "$now $actions"
            if move "$@"; then
                moved=$((moved + 1))
            else
                # Managed interrupts (NVMe, some NICs) and those of one CPU cannot be moved: isolcpus=managed_irq is what keeps them away.
                fixed=$((fixed + 1))
                [ "$first" = 0 ] || forget "$dir"
            fi
            ;;
        stop)
            kept "$dir" || continue
            was=$(old "$dir")
            # A number that was given to another device since has no place to go back to.
            if [ "${was#* }" != "$actions" ] || put "${was%% *}" "$file"; then
                forget "$dir"
            else
                amiss "interrupt ${dir##*/} does not go back to CPUs ${was%% *}"
            fi
            ;;
        status)
            [ -z "$now" ] || within "$now" "$cpus" || {
                say "interrupt ${dir##*/} may run on CPUs $now"
                wrong=1
            }
            ;;
        esac
    done
    [ "$do" != start ] || say "$moved interrupts moved to CPUs $cpus, $fixed cannot be moved"
}

# move NODE=CPUS... writes where the interrupt of $file may be served, anywhere on the host's CPUs where those near have no room.
move() {
    node=$(get "$dir/node")
    for near in "$@"; do
        if [ "${near%%=*}" = "$node" ] && put "${near#*=}" "$file"; then
            return
        fi
    done
    put "$cpus" "$file"
}
