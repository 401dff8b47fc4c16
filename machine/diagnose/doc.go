// Package diagnose says what is wrong with a machine: it reads a topology.Host and returns findings, each with its
// evidence, its consequence and its fix.
//
// It is pure: no I/O, no clock, no globals. The same host gives the same findings in the same order.
//
// # What is claimed
//
// A fact that was not read is not a fault: no rule fires on an absent field. A rule that cannot
// tell two causes apart says so in its finding. Link and firmware rules are silent in virtual
// machines, whose PCI Express links and reset methods are those of an emulator.
//
// # Rules
//
// A rule is a function and the ID of the check that explains it. The table is in rules.go, the
// functions in one file per theme (link.go, iommu.go, ...), and the texts are in finding/catalogue/inspect.
package diagnose
