set -eu
# RACKLESS_ROOT moves everything that is read and written below another directory, to try this script on a copy. On a machine leave it unset.
root=${RACKLESS_ROOT-}
name=${0##*/}

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "$name" "$*" >&2; }
fail() { warn "$@"; exit 1; }

# put VALUE FILE writes a value and is false where the kernel refuses it.
put() { { printf '%s\n' "$1" >"$2"; } 2>/dev/null; }

# get FILE prints what is in a file, nothing where it cannot be read.
get() { cat "$1" 2>/dev/null || :; }

# keep NAME VALUE remembers how something was, the first time only: a second start must not take our own setting for the old one.
keep() {
    mkdir -p "$state"
    [ -e "$state/$1" ] || printf '%s\n' "$2" >"$state/$1"
}

# wait_for COMMAND... repeats a test for up to 10 seconds: the kernel binds drivers and makes device files on its own time.
wait_for() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || return 1
        sleep 0.1
    done
}
