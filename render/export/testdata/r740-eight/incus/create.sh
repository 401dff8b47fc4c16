#!/bin/sh
# rackless test: lab r740-eight
# Makes the nodes of the lab as virtual machines of Incus; incus start NAME starts each.
set -eu
cd "$(dirname "$0")"
incus create images:debian/12/cloud r740-eight-vm00 --vm <vm00.yaml
incus create images:debian/12/cloud r740-eight-vm01 --vm <vm01.yaml
incus create images:debian/12/cloud r740-eight-vm02 --vm <vm02.yaml
incus create images:debian/12/cloud r740-eight-vm03 --vm <vm03.yaml
incus create images:debian/12/cloud r740-eight-vm04 --vm <vm04.yaml
incus create images:debian/12/cloud r740-eight-vm05 --vm <vm05.yaml
incus create images:debian/12/cloud r740-eight-vm06 --vm <vm06.yaml
incus create images:debian/12/cloud r740-eight-vm07 --vm <vm07.yaml
