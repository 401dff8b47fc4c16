# A program whose output is kept in files: $0.out and $0.err, of each the first $1 bytes. The rest is the command.
limit=$1
shift
keep() {
	head -c "$limit" >"$0.$1"
	cat >/dev/null
}
mkfifo "$0.o" "$0.e" || exit
keep out <"$0.o" &
keep err <"$0.e" &
# Both ends of both FIFOs are open when their names are removed.
# shellcheck disable=SC2094 # removing them is no write
(
	rm -f "$0.o" "$0.e"
	exec "$@"
) >"$0.o" 2>"$0.e"
exit=$?
wait
exit $exit
