apply() {
    line=$(rpm-ostree kargs)
    fits "$(others "$line") $args"
    old=$(replaced "$line")
    mkdir -p "$state"
    [ -e "$state/rpm-ostree" ] || printf '%s\n' "$old" >"$state/rpm-ostree"
    change "$old" "$args"
}

undo() {
    change "$args" "$(get "$state/rpm-ostree")"
    rm -f "$state/rpm-ostree"
}

# change GONE NEW makes one new deployment, so that there is one to go back to.
change() {
    set -f
    set -- "$1" "$2" rpm-ostree kargs
    gone=$1 new=$2
    shift 2
    for word in $gone; do
        set -- "$@" "--delete-if-present=$word"
    done
    for word in $new; do
        set -- "$@" "--append-if-missing=$word"
    done
    set +f
    "$@"
}
