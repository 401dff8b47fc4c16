read -r _
kill "$2"
i=0
while kill -0 "$2" && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
kill -9 "$2"
for f in "$1"/run/libvirt/qemu/run/*.pid "$1"/run/libvirt/virtlogd.pid; do
	[ ! -e "$f" ] || kill -9 "$(cat "$f")"
done
rm -rf "$1"
