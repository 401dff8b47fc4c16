
case ${1-} in
apply | undo)
    "$1"
    say "reboot for this to take effect, then: $0 show"
    ;;
show) show ;;
*)
    printf 'usage: %s apply|undo|show\n' "$name" >&2
    exit 2
    ;;
esac
