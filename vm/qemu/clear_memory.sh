echo 3 >/proc/sys/vm/drop_caches
to=/zeros
if [ -d /run/systemd/system ]; then
	to=/run/zeros/zeros
	mkdir -p /run/zeros && mount -t tmpfs -o size=100% tmpfs /run/zeros || exit
fi
while read -r key kib _; do
	[ "$key" != MemTotal: ] || total=$kib
	[ "$key" != MemFree: ] || break
done </proc/meminfo
# The kernel keeps more for itself in a larger machine: zeros that leave it less would end programs.
keep=$((16384 + total / 32))
[ "$kib" -le $((2 * keep)) ] || dd if=/dev/zero of=$to bs=64k count=$(((kib - keep) / 64)) 2>/dev/null
rm -f $to
[ $to = /zeros ] || umount /run/zeros
