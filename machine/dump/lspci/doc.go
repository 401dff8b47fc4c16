// Package lspci reads the text of lspci into a Host: PCI functions and their tree. It reads lists, records for programs
// (-mm, -vmm) and drawings of the tree (-t), alone or several in one text.
//
// Facts that a text lacks stay unknown. Serial numbers (of the capability and of VPD) are dropped. A plain list does
// not show the tree, so functions that are not on a root bus have PCIDevice.ParentUnknown set.
//
// Three facts are derived:
//
//   - Numbers of vendors and classes, if the text has only names: as far as the name has a single number.
//   - The GPUs and NICs of a drawing: it has no classes, so they are recognized by name.
//   - The number of a BAR without -vv: "Memory at" without "Region 1" gets the lowest possible number.
//
// The formats are from pciutils 2.2 to 3.14 (lspci.c, ls-caps.c, ls-tree.c and lspci(8)).
package lspci
