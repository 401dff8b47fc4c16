// Package emulate runs whole hosts under QEMU: machines with the NUMA nodes, root complexes, IOMMU groups, SR-IOV
// NICs and GPU stand-ins of a real one, running a real kernel. Changes to hosts can be practised and tested there,
// with reboots and power cuts.
//
// A Profile, a short YAML file, describes the machine as a kernel sees it: rackless inspect, run inside, reads the
// profile back. Some parts only look real. The GPUs are stand-ins that compute nothing, and no measurement inside is
// a figure of the real machine.
//
// A Host is one such machine, kept in a directory with its disk, its sockets and its state. It belongs to the process
// that started it and is removed with it, unless it is kept.
package emulate
