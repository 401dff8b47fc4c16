#!/usr/bin/env bash
# Brings up two nodes with emulated GPUs, moves bytes between each GPU and each NIC with proof, measures each GPU by each
# NIC, makes one GPU fail and mends it. The page is out/gpu.html. Nothing of this is a figure of hardware.
#
#   make gpu-demo              GPU_LAB=FILE for another lab
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
file=${GPU_LAB:-examples/h20.yaml}
rackless=${RACKLESS:-bin/rackless}
mkdir -p out

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() {
	printf '\033[32m$\033[0m %s\n' "$*"
	"$@"
}

say "Two nodes with GPUs, all emulated"
run "$rackless" up "$file"
lab=$(sed -n 's/^name: *//p' "$file")
nodes=$("$rackless" ls "$lab" -o json | python3 -c 'import json, sys
print(*(n["name"] for l in json.load(sys.stdin)["labs"] for n in l["nodes"]))')
read -r first _ <<<"$nodes"
run "$rackless" exec "$first" -- nvidia-smi topo -m

say "Each NIC writes and reads the memory of each GPU"
run "$rackless" host gpudirect "$lab"

say "Each GPU by each NIC, main memory beside, one way and both ways"
run "$rackless" bench "$lab" --suite gpudirect --quick
"$rackless" bench show "$lab" -o html --out out/gpu.html

gpus=$("$rackless" exec "$first" -- nvidia-smi -L | wc -l)
say "A GPU that refuses to export its memory: the kernel's own words"
run "$rackless" gpu fault "$lab/$first" --gpu $((gpus - 1)) --kind export-refused
status=0
run "$rackless" host gpudirect "$lab" || status=$?
if [ "$status" != 3 ]; then
	echo "gpu-demo: the fault was not found: exit status $status" >&2
	exit 1
fi

say "Mended"
run "$rackless" gpu fault "$lab/$first" --gpu $((gpus - 1)) --clear
run "$rackless" host gpudirect "$lab"

echo
echo "The page is out/gpu.html. The lab is up; to take it down: $rackless down $lab"
