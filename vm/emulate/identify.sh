set -e
date -u -s @"$2" >/dev/null
(hwclock -w >/dev/null 2>&1 </dev/null &)
printf %s "$3" >/dev/urandom
printf '%s\n' "$1" >/etc/hostname
printf '%s\n' "$1" >/proc/sys/kernel/hostname
printf '127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n' "$1" >/etc/hosts
echo 1 >/proc/sys/vm/drop_caches
# The second disk has programs of 75 MB, which are read where they are touched: few large reads cost less than many.
[ ! -e /sys/block/vdb ] || echo 4096 >/sys/block/vdb/queue/read_ahead_kb
