# Prints "DEVICE PORT INDEX" of the RoCE v2 GID of an IPv4 address of this machine, for perftest's -d, -i and -x. The index differs from NIC to
# NIC and with the order in which addresses came up, so it is looked for and never assumed.
set -eu
root=${RACKLESS_ROOT-}
address=${1-}
case $address in
*[!0-9.]* | '' | *.*.*.*.*) set -- ;;
*.*.*.*) ;;
*) set -- ;;
esac
if [ $# != 1 ]; then
    echo "usage: ${0##*/} IPV4-ADDRESS" >&2
    exit 2
fi
IFS=. read -r a b c d <<EOF
$address
EOF
want=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' "$a" "$b" "$c" "$d")
for gid in "$root"/sys/class/infiniband/*/ports/*/gids/*; do
    [ "$(cat "$gid" 2>/dev/null || :)" = "$want" ] || continue
    port=${gid%/gids/*}
    index=${gid##*/}
    [ "$(cat "$port/gid_attrs/types/$index" 2>/dev/null || :)" = 'RoCE v2' ] || continue
    device=${port%/ports/*}
    echo "${device##*/} ${port##*/} $index"
    exit 0
done
echo "${0##*/}: no RoCE v2 GID with $address: is the address set (ip -br -4 addr), and does rdma link show the NIC?" >&2
exit 1
