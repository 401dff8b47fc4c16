#!/bin/sh
# rackless test: lab r740-one
# Makes the nodes of the lab as virtual machines of Incus; incus start NAME starts each.
set -eu
cd "$(dirname "$0")"
incus create images:debian/12/cloud r740-one-vm --vm <vm.yaml
