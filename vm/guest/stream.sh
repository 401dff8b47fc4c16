# A program and its output, which the agent reads while the program runs: guest-exec itself returns output only at the
# end. A full pipe makes the program wait, so that it never fills the memory of the guest.
#
# $0 is the path of the files without their ends, $1 begins the marks, the rest is the command.
base=$0
mark=$1
shift
# A service has no home, which MPI and others need.
export HOME="${HOME:-/root}"
command -v "$1" >/dev/null || {
	echo none
	exit 127
}

# pump copies its input to numbered files of at most 4 MiB. "+" after a mark says that the next file follows, which the
# reader makes when it has read this one; "." that the output ends; "!" that the file cannot be written.
pump() {
	n=0
	while exec 3>>"$base.$1.$n"; do
		records=$(LC_ALL=C dd bs=16k count=256 2>&1 >&3) || {
			printf '\000%s!' "$mark" >&3
			exit
		}
		records=${records%% records in*}
		records=${records##*[!0-9+]} # without a warning before it
		# shellcheck disable=SC2004 # dash takes no sum out of a variable
		if [ $(($records)) -lt 256 ]; then
			printf '\000%s.' "$mark" >&3
			exit
		fi
		printf '\000%s+' "$mark" >&3
		n=$((n + 1)) tries=0
		while [ ! -e "$base.$1.$n" ]; do
			# Without a reader, the output of a program that is still running is lost.
			[ -p "$base.$1" ] || exec cat >/dev/null
			tries=$((tries + 1))
			if [ $tries -lt 100 ]; then sleep 0.1; else sleep 1; fi
		done
		rm -f "$base.$1.$((n - 1))"
	done
}

mkfifo -m 600 "$base.out" "$base.err" || exit
# The pumps are no children of the program.
(pump out <"$base.out" & pump err <"$base.err" &) >/dev/null 2>&1
# A process group of its own lets all of the program be killed. setsid would fork if there is one already.
read -r group <"/proc/$$/stat"
group=${group##*) } # state, parent, group
group=${group#* * }
if [ "${group%% *}" != $$ ] && command -v setsid >/dev/null; then
	# The setsid of busybox itself would take its own sh, ip or ping for those of PATH.
	set -- setsid /bin/sh -c 'exec "$@"' sh "$@"
fi
exec "$@" >"$base.out" 2>"$base.err"
