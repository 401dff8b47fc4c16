state=$root/run/rackless/$lab/hugepages

pool() { printf '%s\n' "$root/sys/devices/system/node/node$1/hugepages/hugepages-${2}kB"; }

start() {
    short=0
    while read -r node kb want; do
        dir=$(pool "$node" "$kb")
        if [ ! -d "$dir" ]; then
            # The directory is missing where the kernel does not know this size, or the node is not there.
            warn "node $node has no pool of $kb KiB pages: boot with hugepagesz= of that size (kernel/), and look for pdpe1gb in /proc/cpuinfo if it is 1 GiB"
            short=1
            continue
        fi
        have=$(get "$dir/nr_hugepages")
        keep "$node-$kb" "$have"
        # Never fewer than there are: others may use them.
        tries=0
        while [ "${have:-0}" -lt "$want" ] && [ "$tries" -lt 3 ]; do
            tries=$((tries + 1))
            put "$want" "$dir/nr_hugepages" || :
            have=$(get "$dir/nr_hugepages")
            # The kernel takes what it can get and reports no error. Where memory is in pieces, compaction may find more.
            [ "${have:-0}" -ge "$want" ] || put 1 "$root/proc/sys/vm/compact_memory" || :
        done
        if [ "${have:-0}" -lt "$want" ]; then
            warn "node $node has ${have:-0} of $want pages of $kb KiB: its memory is in use or in pieces. Reserve them at boot (kernel/), or stop what uses node $node"
            short=1
        else
            say "node $node: $have pages of $kb KiB"
        fi
    done <<EOF
$pages
EOF
    [ "$short" = 0 ] || exit 1
}

stop() {
    while read -r node kb want; do
        old=$(get "$state/$node-$kb")
        [ -n "$old" ] || continue
        dir=$(pool "$node" "$kb")
        put "$old" "$dir/nr_hugepages" || :
        have=$(get "$dir/nr_hugepages")
        if [ "$have" != "$old" ]; then
            fail "node $node still has $have pages of $kb KiB, $old before: stop the machines that use them, then again"
        fi
        rm -f "$state/$node-$kb"
        say "node $node: $old pages of $kb KiB"
    done <<EOF
$pages
EOF
}

status() {
    short=0
    while read -r node kb want; do
        dir=$(pool "$node" "$kb")
        have=$(get "$dir/nr_hugepages")
        say "node $node, $kb KiB: ${have:-none} pages, $(get "$dir/free_hugepages") free, $want wanted"
        [ "${have:-0}" -ge "$want" ] || short=1
    done <<EOF
$pages
EOF
    return "$short"
}
