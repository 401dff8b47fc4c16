// Package lspci reads the text of lspci into a Host: PCI functions and their tree.
//
// All of lspci's layouts are taken, alone or several in one text:
//
//   - the list, plain, with numbers (-n, -nn), with details (-v, -vv, -vvv, -k) and with dumps (-x, -xxx, -xxxx);
//   - records for programs (-mm, -vmm, with -k, -n, -nn);
//   - the drawing of the tree (-t, -tv, -tvnn).
//
// What a text lacks stays unknown: numbers without -n, capabilities without root ("<access
// denied>", noted in Host.Unread), drivers without -v or -k. Serial numbers (of the capability and
// of VPD) are not kept.
//
// # The tree
//
// Bridges state the buses behind them in details and drawings. From a plain list the tree is not
// known, and functions beside root buses say so (PCIDevice.ParentUnknown).
//
// # What is derived
//
// Three things are not stated and follow from what is:
//
//   - Numbers of vendors and classes, where the text has names only: as far as the name stands for one number.
//   - Which functions of a drawing are GPUs or NICs: it has no classes, so their names tell.
//   - The number of a BAR without -vv: "Memory at" without "Region 1" is the lowest that it can be.
//
// The formats are those of pciutils 2.2 to 3.14 (lspci.c, ls-caps.c, ls-tree.c of pciutils, and lspci(8)).
package lspci
