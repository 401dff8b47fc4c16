read -r v </proc/driver/nvidia/version && echo "nvidia $v"
for d in /sys/bus/pci/devices/*; do
	read -r c <"$d/class" || continue
	case $c in 0x03*) ;; *) continue ;; esac
	for f in current_link_speed current_link_width max_link_speed max_link_width; do
		[ ! -r "$d/$f" ] || { read -r v <"$d/$f" && echo "pci/${d##*/}/$f $v"; }
	done
done
