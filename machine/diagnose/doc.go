// Package diagnose finds faults of a machine: it reads a topology.Host and returns findings, each with its evidence,
// its consequence and its fix. It is pure: no I/O, no clock, no globals.
//
// No rule fires on an absent field. Link and firmware rules are silent in virtual machines, because an emulator
// provides their PCI Express links and reset methods. The texts of rules are in finding/catalogue/inspect.
package diagnose
