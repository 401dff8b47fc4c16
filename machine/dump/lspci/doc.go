// Package lspci reads the text of lspci into a Host: PCI functions and their tree.
//
// It reads all of lspci's layouts, alone or several in one text:
//
//   - the list, plain, with numbers (-n, -nn), with details (-v, -vv, -vvv, -k) and with dumps (-x, -xxx, -xxxx);
//   - records for programs (-mm, -vmm, with -k, -n, -nn);
//   - the drawing of the tree (-t, -tv, -tvnn).
//
// Facts that a text lacks stay unknown: numbers without -n, capabilities without root ("<access denied>", noted in
// Host.Unread), drivers without -v or -k. Serial numbers (of the capability and of VPD) are dropped.
//
// # The tree
//
// In details and drawings, bridges state the buses behind them. A plain list does not show the tree, so functions
// that are not on a root bus have PCIDevice.ParentUnknown set.
//
// # Derived facts
//
// Three facts are derived:
//
//   - Numbers of vendors and classes, if the text has only names: as far as the name has a single number.
//   - The GPUs and NICs of a drawing: it has no classes, so they are recognized by name.
//   - The number of a BAR without -vv: "Memory at" without "Region 1" gets the lowest possible number.
//
// The formats are from pciutils 2.2 to 3.14 (lspci.c, ls-caps.c, ls-tree.c of pciutils, and lspci(8)).
package lspci
