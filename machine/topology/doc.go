// Package topology is a machine as values, and questions about it: CPUs, memory, PCI devices and
// the paths between them.
//
// It is pure: no I/O, no clock, no globals. Package inspect fills a [Host] from a live machine, a
// snapshot or another tool's dump; everything that plans, checks or draws reads it.
//
// # What is not known
//
// A fact that was not read is absent, never zero: a nil pointer, an empty string or a nil slice,
// and no key in JSON. Where zero is a value of its own (a NUMA node without memory, no free
// hugepage) the field is a pointer, and nil means "nobody said".
//
// Four facts may be read and empty: swap areas, modules, reset methods, the driver. Their
// JSON leaves out what is empty, so that each has a flag beside it: SwapKnown, ModulesKnown, ResetKnown,
// DriverKnown. ParentUnknown is the reverse, since a nil Parent is a root bus in most sources. These
// keys are published in a fixed order, which a Go form without the flags could not write.
//
// # What stands twice
//
// A [NIC] and a [GPU] have Driver and NUMANode of their own, and a NIC has SRIOV and PF, because some
// sources know a card by its name alone. Where the card's function is known, that is read and
// [Host.Complete] copies it: ask the card, and the function for what only a function has.
//
// # Words
//
// They are hwloc's and the kernel's. A CPU is a logical CPU (hwloc: PU), numbered as the kernel
// numbers it. A core is a physical core with one or more CPUs. A package is what sits in a socket.
package topology
