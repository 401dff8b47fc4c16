cd /sys/bus/pci/devices || exit 0
for d in *; do
	if ! read -r v <"$d/vendor" || ! read -r i <"$d/device"; then continue; fi
	n=-; read -r n 2>/dev/null <"$d/numa_node"
	s=-; read -r s 2>/dev/null <"$d/subsystem_vendor"
	c=-; read -r c 2>/dev/null <"$d/class"
	k=$v:$i # with the personality vfio, a GPU has the ids of its model
	[ "$k" != 0x1af4:0x1050 ] && [ "$s:$c" = 0x1af4:0x030200 ] && k=vfio
	case $k in
	0x1af4:0x1050 | vfio)
		m=$(sed -n 3p "$d/resource")
		[ "${m%% *}" != 0x0000000000000000 ] || continue # a display has no memory there
		# shellcheck disable=SC2046 # two bytes, as two words
		set -- $(od -An -N2 -tx1 "$d/config")
		w=-; for x in "$d"/virtio*/driver; do [ -e "$x" ] && w=$(readlink "$x"); done
		r=-; for x in "$d"/drm/renderD* "$d"/virtio*/drm/renderD*; do [ -e "$x" ] && r=${x##*/}; done
		if [ "$k" = vfio ]; then
			[ -e "$d/driver" ] && w=$(readlink "$d/driver")
			x=$(readlink "$d/iommu_group") && [ -e "/dev/vfio/${x##*/}" ] && r=vfio/${x##*/}
		fi
		echo "gpu $d $1$2 ${w##*/} $r $m $n $(readlink -f "$d")" ;;
	0x15b3:*)
		p=-; for x in "$d"/infiniband/*; do [ -e "$x" ] && p=${x##*/}; done
		for x in "$d"/net/*; do
			[ -e "$x" ] && echo "nic $d ${x##*/} $p $n $(readlink -f "$d")"
		done ;;
	esac
done
for f in /etc/nccl.conf /etc/environment; do
	[ -r "$f" ] || continue
	for v in NCCL_IB_HCA UCX_NET_DEVICES; do sed -n "s,^$v=,choice $f $v ,p" "$f"; done
done
echo end
