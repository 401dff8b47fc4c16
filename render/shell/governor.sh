state=$root/run/rackless/$lab/governor

start() {
    found=0
    for file in "$root"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ -e "$file" ] || continue
        found=$((found + 1))
        cpu=${file%/cpufreq/*}
        cpu=${cpu##*/}
        old=$(get "$file")
        [ "$old" != performance ] || continue
        keep "$cpu" "$old"
        put performance "$file" || :
        now=$(get "$file")
        [ "$now" = performance ] ||
            fail "$cpu stays with governor $now; it offers: $(get "${file%/*}/scaling_available_governors")"
    done
    if [ "$found" = 0 ]; then
        say "this kernel scales no frequencies: the firmware does, or a hypervisor; see firmware/bios.md"
    else
        say "$found CPUs with governor performance"
    fi
}

stop() {
    for file in "$state"/cpu[0-9]*; do
        [ -e "$file" ] || continue
        cpu=${file##*/}
        put "$(get "$file")" "$root/sys/devices/system/cpu/$cpu/cpufreq/scaling_governor" ||
            fail "$cpu does not take governor $(get "$file") back"
        rm -f "$file"
    done
}

status() {
    other=0
    for file in "$root"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
        [ -e "$file" ] || continue
        now=$(get "$file")
        [ "$now" = performance ] || { other=1 && say "${file#"$root"}: $now"; }
    done
    return "$other"
}
