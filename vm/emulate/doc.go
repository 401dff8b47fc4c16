// Package emulate runs whole hosts under QEMU, with the NUMA nodes, root complexes, IOMMU groups, SR-IOV NICs and GPU
// stand-ins of a real one and a real kernel. The stand-ins compute nothing, and no measurement inside is a figure of
// the real machine.
//
// A Host is kept in a directory with its disk, sockets and state. It belongs to the process that started it and is
// removed with it, unless it is kept.
package emulate
