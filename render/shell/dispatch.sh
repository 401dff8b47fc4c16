
# each DO LINES does that with each of the lines.
each() {
    do=$1
    while read -r line; do
        set -f
        # The words of a line are those of a command.
        # shellcheck disable=SC2086
        set -- $line
        set +f
        "$@" </dev/null
    done <<EOF
$2
EOF
}

backwards=$(printf '%s\n' "$changes" | sed '1!G;h;$!d')
case ${1-} in
start | apply)
    each check "$changes"
    each start "$changes"
    ;;
stop | undo)
    each refuse "$backwards"
    # Twice where need be: some values can go back only after one before them has.
    last=0
    each stop "$backwards"
    if [ "$wrong" = 1 ]; then
        wrong=0 last=1
        each stop "$backwards"
    fi
    ;;
status | query) each status "$changes" ;;
*)
    printf 'usage: %s %s\n' "$name" "$usage" >&2
    exit 2
    ;;
esac
[ -z "$after" ] || [ "$1" = query ] || say "$after"
[ "$wrong" = 0 ]
