#!/bin/sh
# rackless test: lab r740-eight
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

openstack network create r740-eight-0 --mtu 4200 \
    --provider-network-type flat --provider-physical-network fabric
openstack subnet create r740-eight-0 --network r740-eight-0 --subnet-range 10.0.0.0/24 --gateway none --no-dhcp

openstack flavor create r740-eight-vm00 --vcpus 5 --ram 20480 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=1 \
    --property hw:cpu_cores=5 \
    --property hw:cpu_threads=1 \
    --property hw:numa_nodes=1 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required
openstack port create r740-eight-vm00-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:4f:e6:7c --fixed-ip ip-address=10.0.0.1
openstack server create r740-eight-vm00 --flavor r740-eight-vm00 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm00-eth0 \
    --user-data user-data/vm00 --config-drive true

openstack port create r740-eight-vm01-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:08:1d:b1 --fixed-ip ip-address=10.0.0.2
openstack server create r740-eight-vm01 --flavor r740-eight-vm00 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm01-eth0 \
    --user-data user-data/vm01 --config-drive true

openstack port create r740-eight-vm02-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:e3:b7:dc --fixed-ip ip-address=10.0.0.3
openstack server create r740-eight-vm02 --flavor r740-eight-vm00 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm02-eth0 \
    --user-data user-data/vm02 --config-drive true

openstack flavor create r740-eight-vm03 --vcpus 5 --ram 20480 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=1 \
    --property hw:cpu_cores=5 \
    --property hw:cpu_threads=1 \
    --property hw:numa_nodes=2 \
    --property hw:numa_cpus.0=0-2 \
    --property hw:numa_mem.0=12288 \
    --property hw:numa_cpus.1=3-4 \
    --property hw:numa_mem.1=8192 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required
openstack port create r740-eight-vm03-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:f3:20:89 --fixed-ip ip-address=10.0.0.4
openstack server create r740-eight-vm03 --flavor r740-eight-vm03 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm03-eth0 \
    --user-data user-data/vm03 --config-drive true

openstack flavor create r740-eight-vm04 --vcpus 5 --ram 20480 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=1 \
    --property hw:cpu_cores=5 \
    --property hw:cpu_threads=1 \
    --property hw:numa_nodes=2 \
    --property hw:numa_cpus.0=0-1 \
    --property hw:numa_mem.0=8192 \
    --property hw:numa_cpus.1=2-4 \
    --property hw:numa_mem.1=12288 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required
openstack port create r740-eight-vm04-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:4b:ec:f3 --fixed-ip ip-address=10.0.0.5
openstack server create r740-eight-vm04 --flavor r740-eight-vm04 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm04-eth0 \
    --user-data user-data/vm04 --config-drive true

openstack flavor create r740-eight-vm05 --vcpus 5 --ram 20480 --disk 20 \
    --property hw:cpu_policy=dedicated \
    --property hw:emulator_threads_policy=share \
    --property hw:cpu_sockets=1 \
    --property hw:cpu_cores=5 \
    --property hw:cpu_threads=1 \
    --property hw:numa_nodes=2 \
    --property hw:numa_cpus.0=0 \
    --property hw:numa_mem.0=4096 \
    --property hw:numa_cpus.1=1-4 \
    --property hw:numa_mem.1=16384 \
    --property hw:mem_page_size=1048576 \
    --property hw:pci_numa_affinity_policy=required
openstack port create r740-eight-vm05-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:de:0a:32 --fixed-ip ip-address=10.0.0.6
openstack server create r740-eight-vm05 --flavor r740-eight-vm05 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm05-eth0 \
    --user-data user-data/vm05 --config-drive true

openstack port create r740-eight-vm06-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:d1:09:66 --fixed-ip ip-address=10.0.0.7
openstack server create r740-eight-vm06 --flavor r740-eight-vm05 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm06-eth0 \
    --user-data user-data/vm06 --config-drive true

openstack port create r740-eight-vm07-eth0 --network r740-eight-0 --vnic-type direct --disable-port-security \
    --mac-address 52:54:00:d0:1d:27 --fixed-ip ip-address=10.0.0.8
openstack server create r740-eight-vm07 --flavor r740-eight-vm05 --image "$IMAGE" --network "$NETWORK" --port r740-eight-vm07-eth0 \
    --user-data user-data/vm07 --config-drive true
