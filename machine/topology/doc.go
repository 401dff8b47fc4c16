// Package topology models a machine (CPUs, memory, PCI devices) and the paths between its devices.
//
// It is pure: no I/O, no clock, no globals. Package inspect fills a [Host] from a live machine, a snapshot or another
// tool's dump; everything that plans, checks or draws reads it.
//
// # Unknown facts
//
// A fact that was not read is absent, never zero: a nil pointer, an empty string or a nil slice, and no key in JSON.
// If zero is a valid value (a NUMA node without memory, no free hugepage), the field is a pointer, and nil means
// "unknown".
//
// Four facts may be known to be empty: swap areas, modules, reset methods, the driver. Their JSON omits empty values,
// so each has a flag beside it: SwapKnown, ModulesKnown, ResetKnown, DriverKnown. ParentUnknown is the reverse,
// because in most sources a nil Parent means a root bus. The published JSON has these keys in a fixed order, which a
// Go type without the flags could not write.
//
// # Duplicate facts
//
// A [NIC] and a [GPU] have their own Driver and NUMANode, and a NIC has SRIOV and PF, because some sources know a
// card only by its name. If the card's function is known, [Host.Complete] copies these facts from it. Use the card's
// fields, and the function's only for facts that the card lacks.
//
// # Terms
//
// Terms are hwloc's and the kernel's. A CPU is a logical CPU (hwloc: PU) with the kernel's number. A core is a
// physical core with one or more CPUs. A package is the processor in a socket.
package topology
