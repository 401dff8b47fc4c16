#!/bin/sh
# rackless test: lab r740-one
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

openstack network create r740-one-0 --mtu 4200 \
    --provider-network-type flat --provider-physical-network fabric
openstack subnet create r740-one-0 --network r740-one-0 --subnet-range 10.0.0.0/24 --gateway none --no-dhcp

openstack flavor create r740-one-vm --vcpus 44 --ram 163840 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=1 \
    --property hw:cpu_cores=44 \
    --property hw:cpu_threads=1 \
    --property hw:numa_nodes=2 \
    --property hw:numa_cpus.0=0-22 \
    --property hw:numa_mem.0=86016 \
    --property hw:numa_cpus.1=23-43 \
    --property hw:numa_mem.1=77824 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required
openstack port create r740-one-vm-eth0 --network r740-one-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:3f:ba:32 --fixed-ip ip-address=10.0.0.1
openstack server create r740-one-vm --flavor r740-one-vm --image "$IMAGE" --network "$NETWORK" --port r740-one-vm-eth0 \
    --user-data user-data/vm --config-drive true
