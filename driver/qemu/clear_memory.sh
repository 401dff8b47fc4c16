echo 3 >/proc/sys/vm/drop_caches
to=/zeros
if [ -d /run/systemd/system ]; then
	to=/run/zeros/zeros
	mkdir -p /run/zeros && mount -t tmpfs -o size=100% tmpfs /run/zeros || exit
fi
while read -r key kib _; do
	[ "$key" != MemFree: ] || break
done </proc/meminfo
[ "$kib" -le 32768 ] || dd if=/dev/zero of=$to bs=64k count=$((kib / 64 - 256)) 2>/dev/null
rm -f $to
[ $to = /zeros ] || umount /run/zeros
