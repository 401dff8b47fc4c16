# On Pop!_OS a program writes the entries from settings of its own.
if command -v kernelstub >/dev/null 2>&1; then
    apply() {
        mkdir -p "$state"
        [ -e "$state/kernelstub" ] || replaced "$(get "$root/proc/cmdline")" >"$state/kernelstub"
        before=$(get "$state/kernelstub")
        [ -z "$before" ] || kernelstub --delete-options "$before"
        kernelstub --add-options "$args"
    }
    undo() {
        kernelstub --delete-options "$args"
        before=$(get "$state/kernelstub")
        [ -z "$before" ] || kernelstub --add-options "$before"
        rm -f "$state/kernelstub"
    }
fi
