#!/bin/sh
# rackless test: lab epyc-pair
# Makes the nodes of the lab as virtual machines of Incus; incus start NAME starts each.
set -eu
cd "$(dirname "$0")"
incus create images:debian/12/cloud epyc-pair-vm00 --vm <vm00.yaml
incus create images:debian/12/cloud epyc-pair-vm01 --vm <vm01.yaml
