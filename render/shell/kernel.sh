# What has to outlive the reboot, for undo.
# shellcheck disable=SC2034
state=$root/var/lib/rackless/$lab/kernel

# is_ours WORD says whether a word of a command line sets one of our parameters. It has to see the words in order, with size empty before the first: a
# count of hugepages belongs to the size before it, and pages of a size that the plan does not use are not ours to remove.
is_ours() {
    case " $keys " in
    *" ${1%%=*} "*) ;;
    *) return 1 ;;
    esac
    case $1 in
    hugepagesz=* | hugepages=*)
        [ "${1%%=*}" = hugepages ] || size=${1#*=}
        case " $args " in
        *" hugepagesz=$size "*) ;;
        *) [ -z "$size" ] ;;
        esac
        ;;
    esac
}

# others LINE prints the words of a command line that set none of our parameters.
others() {
    kept='' size=''
    set -f
    for word in $1; do
        is_ours "$word" || kept="$kept${kept:+ }$word"
    done
    set +f
    printf '%s\n' "$kept"
}

# replaced LINE prints the words that set one of our parameters to something else. Both at once is wrong: of two isolcpus= the kernel takes the
# first, of two hugepagesz= of one size it refuses the second.
replaced() {
    gone='' size=''
    set -f
    for word in $1; do
        is_ours "$word" || continue
        case " $args " in
        *" $word "*) ;;
        *) gone="$gone${gone:+ }$word" ;;
        esac
    done
    set +f
    printf '%s\n' "$gone"
}

# fits LINE refuses a command line that the kernel would cut off.
fits() {
    [ "${#1}" -lt "$limit" ] || fail "the command line would have ${#1} characters, and the kernel reads $((limit - 1)): take something off first"
}

# show says which of the arguments the running kernel was started with.
show() {
    missing=0
    line=" $(get "$root/proc/cmdline") "
    set -f
    for word in $args; do
        case $line in
        *" $word "*) say "in force  $word" ;;
        *)
            say "missing   $word"
            missing=1
            ;;
        esac
    done
    set +f
    return "$missing"
}
