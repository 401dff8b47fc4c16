<!-- The domain of the plan, in place of the provider's: see main.tf. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output omit-xml-declaration="yes"/>
<xsl:template match="/domain">
<domain type='kvm'>
  <name>r740-eight.vm05</name>
  <uuid>8dc52b67-30eb-5ab7-a340-e23fba3de6a4</uuid>
  <title>vm05 of rackless lab r740-eight</title>
  <metadata>
    <rackless:node xmlns:rackless='https://github.com/rackless/rackless/libvirt/1' lab='r740-eight' name='vm05' plan='rackless/plan/v1' host='r740.ttar'/>
  </metadata>
  <memory unit='GiB'>20</memory>
  <currentMemory unit='GiB'>20</currentMemory>
  <memoryBacking>
    <!-- they have to be free on the host's NUMA nodes below before the guest starts; a page of theirs saves
         the guest up to two steps of every address translation, and the IOMMU as many -->
    <hugepages>
      <page size='1' unit='GiB' nodeset='0-1'/>
    </hugepages>
  </memoryBacking>
  <vcpu placement='static'>5</vcpu>
  <!-- one thread of its own serves the disk, so that disk requests never wait for QEMU's main loop -->
  <iothreads>1</iothreads>
  <cputune>
    <!-- the guest's NUMA node 0 is the host's 0 -->
    <vcpupin vcpu='0' cpuset='40'/>
    <!-- the guest's NUMA node 1 is the host's 1 -->
    <vcpupin vcpu='1' cpuset='11'/>
    <vcpupin vcpu='2' cpuset='13'/>
    <vcpupin vcpu='3' cpuset='15'/>
    <vcpupin vcpu='4' cpuset='17'/>
    <!-- QEMU's own threads and vhost's stay off the CPUs of the guest: a few microseconds of theirs are the
         tail of every latency that it measures -->
    <emulatorpin cpuset='0,37,48,85'/>
    <iothreadpin iothread='1' cpuset='37,85'/>
  </cputune>
  <numatune>
    <!-- the pages were counted on these NUMA nodes of the host: rather no start than memory that is far or
         another guest's -->
    <memory mode='strict' nodeset='0-1'/>
    <memnode cellid='0' mode='strict' nodeset='0'/>
    <memnode cellid='1' mode='strict' nodeset='1'/>
  </numatune>
  <os firmware='efi'>
    <type arch='x86_64' machine='q35'>hvm</type>
    <!-- UEFI, because GPUs with large memories need more room for their addresses than a BIOS gives; without
         secure boot, under which the kernel would refuse the drivers of GPU and NIC vendors that are built on
         the node -->
    <firmware>
      <feature enabled='no' name='secure-boot'/>
    </firmware>
    <boot dev='hd'/>
  </os>
  <features>
    <acpi/>
    <apic/>
    <!-- each virtual CPU has a CPU of its own: the guest need not yield spinlocks to others that may not be
         running, and waits for work itself before it halts, which saves an exit and a wake-up -->
    <kvm>
      <hint-dedicated state='on'/>
      <!-- while the guest polls, the host does not poll once more -->
      <poll-control state='on'/>
    </kvm>
    <!-- the guest's watchdog would take a performance counter and interrupt every CPU now and then; perf in
         the guest has only software events without it -->
    <pmu state='off'/>
    <!-- VMware's backdoor port, which some guest software takes for a sign of VMware -->
    <vmport state='off'/>
  </features>
  <!-- the host's own processor with all that it can do, the invariant time stamp counter among it; nothing
       that a migration would need is held back, because devices that are passed through do not migrate -->
  <cpu mode='host-passthrough' check='none' migratable='off'>
    <!-- one socket, because sockets are all of one size and the guest's NUMA nodes are not. Its kernel may
         say once at boot that siblings of a cache are on different nodes; it then goes by the nodes -->
    <topology sockets='1' cores='5' threads='1'/>
    <!-- the guest sees the sizes of the host's caches; schedulers and MPI libraries plan by them -->
    <cache mode='passthrough'/>
    <!-- numbered as the guest sees them, with the distances of the host's nodes that they stand for -->
    <numa>
      <cell id='0' cpus='0' memory='4' unit='GiB'>
        <distances>
          <sibling id='0' value='10'/>
          <sibling id='1' value='21'/>
        </distances>
      </cell>
      <cell id='1' cpus='1-4' memory='16' unit='GiB'>
        <distances>
          <sibling id='0' value='21'/>
          <sibling id='1' value='10'/>
        </distances>
      </cell>
    </numa>
  </cpu>
  <clock offset='utc'>
    <!-- clocks that tick through QEMU: lost ticks are made up for, and the one that costs an exit on every
         reading is not there -->
    <timer name='rtc' tickpolicy='catchup'/>
    <timer name='pit' tickpolicy='delay'/>
    <timer name='hpet' present='no'/>
    <timer name='kvmclock' present='yes'/>
  </clock>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <!-- devices that are passed through do not outlive a guest that sleeps -->
  <pm>
    <suspend-to-mem enabled='no'/>
    <suspend-to-disk enabled='no'/>
  </pm>
  <devices>
    <!-- bring your own image: this path, or another file here -->
    <disk type='file' device='disk'>
      <!-- past the host's page cache, which would take memory of the host's side; freed blocks are given back -->
      <driver name='qemu' type='qcow2' cache='none' io='native' discard='unmap' iothread='1'/>
      <source file='/var/lib/libvirt/images/r740-eight.vm05.qcow2'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </disk>
    <controller type='pci' index='0' model='pcie-root'/>
    <controller type='pci' index='1' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x0' multifunction='on'/>
    </controller>
    <controller type='pci' index='2' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x1'/>
    </controller>
    <controller type='pci' index='3' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x2'/>
    </controller>
    <controller type='pci' index='4' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x01' function='0x3'/>
    </controller>
    <!-- a root bus on the guest's NUMA node 0, so that the guest sees where its devices are -->
    <controller type='pci' index='5' model='pcie-expander-bus'>
      <target busNr='32'>
        <node>0</node>
      </target>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x0a' function='0x0'/>
    </controller>
    <controller type='pci' index='6' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/>
    </controller>
    <controller ports='2' type='virtio-serial' index='0'>
      <address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/>
    </controller>
    <!-- an emulated USB controller wakes QEMU's main loop many times a second -->
    <controller type='usb' model='none'/>
    <!-- for management only: libvirt's network "default"; the lab's traffic goes over the devices below -->
    <interface type='network'>
      <mac address='52:54:00:60:23:2a'/>
      <source network='default'/>
      <model type='virtio'/>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>
    </interface>
    <!-- virtual function 3 of NIC 0000:3b:00.0, MT27800 Family [ConnectX-5] (it does not exist yet and will
         be 0000:3b:00.5 by the NIC's SR-IOV offset and stride: look at virtfn3 of the NIC once it is made),
         on the host's NUMA node 0; as an interface, so that libvirt sets the address of the plan before the
         guest's driver starts: a virtual function otherwise has a new one after every boot of the host, and
         without any its RDMA node GUID is 0 -->
    <interface type='hostdev' managed='yes'>
      <mac address='52:54:00:de:0a:32'/>
      <source>
        <address type='pci' domain='0x0000' bus='0x3b' slot='0x00' function='0x5'/>
      </source>
      <driver name='vfio'/>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </interface>
    <!-- virsh console -->
    <serial type='pty'/>
    <console type='pty'/>
    <!-- the guest agent, by which rackless looks into the node without a network -->
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>
    <!-- pages that devices write to, and hugepages, cannot be given back -->
    <memballoon model='none'/>
    <rng model='virtio'>
      <backend model='random'>/dev/urandom</backend>
      <address type='pci' domain='0x0000' bus='0x04' slot='0x00' function='0x0'/>
    </rng>
    <!-- a guest whose kernel has crashed is ended, and its devices come back -->
    <panic model='isa'/>
  </devices>
</domain>
</xsl:template>
</xsl:stylesheet>
