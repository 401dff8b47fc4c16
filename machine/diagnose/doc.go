// Package diagnose finds faults of a machine: it reads a topology.Host and returns findings, each with its evidence,
// its consequence and its fix.
//
// It is pure: no I/O, no clock, no globals. The same host gives the same findings in the same order.
//
// # Claims
//
// A fact that was not read is not a fault: no rule fires on an absent field. A rule that cannot distinguish two
// causes says so in its finding. Link and firmware rules are silent in virtual machines, because an emulator provides
// their PCI Express links and reset methods.
//
// # Rules
//
// A rule is a function and the ID of the check that explains it. The table is in rules.go, the functions in one file
// per theme (link.go, iommu.go, ...), and the texts are in finding/catalogue/inspect.
package diagnose
