// Package emulate runs whole hosts under QEMU: machines with the NUMA nodes, root complexes, IOMMU groups, SR-IOV NICs
// and stand-ins for GPUs of a real one, in which a real kernel runs. What rackless does to a host can be practised
// there, and tested, with reboots and power cuts.
//
// A Profile, a short YAML file, says what the machine is like. Everything in it that a kernel can
// see is as it says: rackless inspect, run inside, reads the profile back. What only looks so is
// said to: the GPUs are stand-ins that compute nothing, and nothing measured in there is a figure
// of the machine.
//
// A Host is one such machine, as a directory with its disk, its sockets and what is known about it. It
// belongs to the process that started it and is removed with it, unless it is kept.
package emulate
