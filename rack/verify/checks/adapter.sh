cd /sys/bus/pci/devices || exit 0
for d in *; do
	{ read -r v <"$d/vendor" && [ "$v" = 0x15b3 ]; } || continue
	# shellcheck disable=SC2046 # two bytes, as two words
	set -- $(od -An -N2 -tx1 "$d/config")
	w=-; [ -e "$d/driver" ] && w=$(readlink "$d/driver")
	echo "pci $d $1$2 ${w##*/}"
	for n in "$d"/net/*; do
		[ -e "$n" ] && read -r f <"$n/flags" && { c=-; read -r c 2>/dev/null <"$n/carrier"; echo "net $d ${n##*/} $f $c"; }
	done
done
read -r u _ </proc/uptime; echo "uptime $u"
dmesg | grep -F mlx5_core | tail -n 400
