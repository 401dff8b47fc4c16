<!-- The domain of the plan, in place of the provider's: see main.tf. -->
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output omit-xml-declaration="yes"/>
<xsl:template match="/domain">
<domain type='kvm'>
  <name>epyc-pair.vm01</name>
  <uuid>27a995a2-327f-5204-9618-e7e53b2ce1af</uuid>
  <title>vm01 of rackless lab epyc-pair</title>
  <metadata>
    <rackless:node xmlns:rackless='https://github.com/rackless/rackless/libvirt/1' lab='epyc-pair' name='vm01' plan='rackless/plan/v1' host='epyc-7551p.ttar'/>
  </metadata>
  <memory unit='GiB'>32</memory>
  <currentMemory unit='GiB'>32</currentMemory>
  <memoryBacking>
    <!-- they have to be free on the host's NUMA nodes below before the guest starts; a page of theirs saves
         the guest up to two steps of every address translation, and the IOMMU as many -->
    <hugepages>
      <page size='1' unit='GiB' nodeset='0-1'/>
    </hugepages>
  </memoryBacking>
  <vcpu placement='static'>28</vcpu>
  <!-- one thread of its own serves the disk, so that disk requests never wait for QEMU's main loop -->
  <iothreads>1</iothreads>
  <cputune>
    <!-- the guest's NUMA node 0 is the host's 1; every 2 virtual CPUs are the threads of one core, in the
         guest as on the host -->
    <vcpupin vcpu='0' cpuset='8'/>
    <vcpupin vcpu='1' cpuset='40'/>
    <vcpupin vcpu='2' cpuset='9'/>
    <vcpupin vcpu='3' cpuset='41'/>
    <vcpupin vcpu='4' cpuset='10'/>
    <vcpupin vcpu='5' cpuset='42'/>
    <vcpupin vcpu='6' cpuset='11'/>
    <vcpupin vcpu='7' cpuset='43'/>
    <vcpupin vcpu='8' cpuset='12'/>
    <vcpupin vcpu='9' cpuset='44'/>
    <vcpupin vcpu='10' cpuset='13'/>
    <vcpupin vcpu='11' cpuset='45'/>
    <vcpupin vcpu='12' cpuset='14'/>
    <vcpupin vcpu='13' cpuset='46'/>
    <!-- the guest's NUMA node 1 is the host's 3; every 2 virtual CPUs are the threads of one core, in the
         guest as on the host -->
    <vcpupin vcpu='14' cpuset='24'/>
    <vcpupin vcpu='15' cpuset='56'/>
    <vcpupin vcpu='16' cpuset='25'/>
    <vcpupin vcpu='17' cpuset='57'/>
    <vcpupin vcpu='18' cpuset='26'/>
    <vcpupin vcpu='19' cpuset='58'/>
    <vcpupin vcpu='20' cpuset='27'/>
    <vcpupin vcpu='21' cpuset='59'/>
    <vcpupin vcpu='22' cpuset='28'/>
    <vcpupin vcpu='23' cpuset='60'/>
    <vcpupin vcpu='24' cpuset='29'/>
    <vcpupin vcpu='25' cpuset='61'/>
    <vcpupin vcpu='26' cpuset='30'/>
    <vcpupin vcpu='27' cpuset='62'/>
    <!-- QEMU's own threads and vhost's stay off the CPUs of the guest: a few microseconds of theirs are the
         tail of every latency that it measures -->
    <emulatorpin cpuset='15,31,47,63'/>
    <iothreadpin iothread='1' cpuset='15,47'/>
  </cputune>
  <numatune>
    <!-- the pages were counted on these NUMA nodes of the host: rather no start than memory that is far or
         another guest's -->
    <memory mode='strict' nodeset='1,3'/>
    <memnode cellid='0' mode='strict' nodeset='1'/>
    <memnode cellid='1' mode='strict' nodeset='3'/>
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
      <!-- GeForce drivers before 465 (2021) stop with code 43 when they see KVM; newer ones do not mind.
           Hidden, the guest would lose its paravirtual clock and the two hints below. If an old driver has to
           be used: on -->
      <hidden state='off'/>
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
    <topology sockets='2' cores='7' threads='2'/>
    <!-- the guest sees the sizes of the host's caches; schedulers and MPI libraries plan by them -->
    <cache mode='passthrough'/>
    <!-- without it a guest on AMD sees neither siblings nor who shares a cache, and QEMU does not switch it
         on by itself -->
    <feature policy='require' name='topoext'/>
    <!-- numbered as the guest sees them, with the distances of the host's nodes that they stand for -->
    <numa>
      <cell id='0' cpus='0-13' memory='16' unit='GiB'>
        <distances>
          <sibling id='0' value='10'/>
          <sibling id='1' value='16'/>
        </distances>
      </cell>
      <cell id='1' cpus='14-27' memory='16' unit='GiB'>
        <distances>
          <sibling id='0' value='16'/>
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
      <source file='/var/lib/libvirt/images/epyc-pair.vm01.qcow2'/>
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
    <!-- a root bus on the guest's NUMA node 1, so that the guest sees where its devices are -->
    <controller type='pci' index='6' model='pcie-expander-bus'>
      <target busNr='144'>
        <node>1</node>
      </target>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x0b' function='0x0'/>
    </controller>
    <controller type='pci' index='7' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/>
    </controller>
    <controller type='pci' index='8' model='pcie-root-port'>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </controller>
    <controller ports='2' type='virtio-serial' index='0'>
      <address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/>
    </controller>
    <!-- an emulated USB controller wakes QEMU's main loop many times a second -->
    <controller type='usb' model='none'/>
    <!-- for management only: libvirt's network "default"; the lab's traffic goes over the devices below -->
    <interface type='network'>
      <mac address='52:54:00:31:45:a5'/>
      <source network='default'/>
      <model type='virtio'/>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>
    </interface>
    <!-- virsh console -->
    <serial type='pty'/>
    <console type='pty'/>
    <!-- the guest agent, by which rackless looks into the node without a network -->
    <channel type='unix'>
      <target type='virtio' name='org.qemu.guest_agent.0'/>
    </channel>
    <!-- GPU 0000:21:00.0, GA102 [GeForce RTX 3090], on the host's NUMA node 1 -->
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <driver name='vfio'/>
      <source>
        <address domain='0x0000' bus='0x21' slot='0x00' function='0x0'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0' multifunction='on'/>
    </hostdev>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <driver name='vfio'/>
      <source>
        <address domain='0x0000' bus='0x21' slot='0x00' function='0x1'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x1'/>
    </hostdev>
    <!-- NIC 0000:61:00.0, MT27710 Family [ConnectX-4 Lx], on the host's NUMA node 3 -->
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <driver name='vfio'/>
      <source>
        <address domain='0x0000' bus='0x61' slot='0x00' function='0x0'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x08' slot='0x00' function='0x0'/>
    </hostdev>
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
