#!/bin/sh
# rackless test: lab epyc-pair
# Makes flavors, ports and servers in an OpenStack cloud. IMAGE is an image with cloud-init, NETWORK
# a network for management, and the fabric a flat network of Neutron on the physical network fabric.
set -eu
: "${IMAGE:?name an image}" "${NETWORK:?name a network for management}"

openstack image set "$IMAGE" \
    --property hw_machine_type=q35 \
    --property hw_firmware_type=uefi \
    --property os_secure_boot=disabled \
    --property hw_disk_bus=virtio \
    --property hw_vif_model=virtio \
    --property hw_qemu_guest_agent=yes

openstack flavor create epyc-pair-vm00 --vcpus 28 --ram 32768 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:cpu_thread_policy=require \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=2 \
    --property hw:cpu_cores=7 \
    --property hw:cpu_threads=2 \
    --property hw:numa_nodes=2 \
    --property hw:numa_cpus.0=0-13 \
    --property hw:numa_mem.0=16384 \
    --property hw:numa_cpus.1=14-27 \
    --property hw:numa_mem.1=16384 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required \
    --property pci_passthrough:alias=gpu-10de-2204:1,nic-15b3-1015:1
openstack server create epyc-pair-vm00 --flavor epyc-pair-vm00 --image "$IMAGE" --network "$NETWORK" \
    --user-data user-data/vm00 --config-drive true

openstack server create epyc-pair-vm01 --flavor epyc-pair-vm00 --image "$IMAGE" --network "$NETWORK" \
    --user-data user-data/vm01 --config-drive true
