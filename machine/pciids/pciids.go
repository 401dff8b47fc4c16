// Package pciids names PCI vendors, devices and classes by number, from the PCI ID Project's list.
//
// The list is part of the program, so a machine without a pci.ids file gets the same names. A
// lookup is a binary search in the embedded text: nothing is parsed, kept or allocated.
package pciids

import (
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:generate go run gen.go -out ids.txt /usr/share/misc/pci.ids

// ids has one line for each name, in the order of their keys, the key ending at the first space:
//
//	15b3 Mellanox Technologies
//	15b3a2dc MT43244 BlueField-3 integrated ConnectX-7 network controller
//	C02 Network controller
//	C0200 Ethernet controller
//
// Keys are lower-case hexadecimal. The lines of the file's header start with "#" and a space, which
// sorts before all of them.
//
//go:embed ids.txt
var ids string

// Vendor returns the name of a vendor, or "" where the list has none.
func Vendor(vendor uint16) string {
	return lookup(appendHex(make([]byte, 0, maxKey), uint32(vendor)))
}

// Device returns the name of a vendor's device, or "" where the list has none.
func Device(vendor, device uint16) string {
	return lookup(appendHex(appendHex(make([]byte, 0, maxKey), uint32(vendor)), uint32(device)))
}

// Class returns the name of a class, which is of 24 bits: class, subclass and programming
// interface. It is the name of the subclass, or that of the class where the list does not know the
// subclass, or "". The programming interface is not looked at.
func Class(class uint32) string {
	sub := appendHex(append(make([]byte, 0, maxKey), 'C'), class>>8)
	if name := lookup(sub); name != "" {
		return name
	}
	return lookup(sub[:3])
}

// maxKey is the length of the longest key, a device's.
const maxKey = 8

// lookup returns the name that key has in ids.
func lookup(key []byte) string {
	low, high := 0, len(ids) // the line of key, if there is one, starts in [low, high)
	for low < high {
		mid := low + (high-low)/2
		start := low + strings.LastIndexByte(ids[low:mid], '\n') + 1
		line, _, _ := strings.Cut(ids[start:], "\n")
		have, name, _ := strings.Cut(line, " ")
		switch {
		case have == string(key):
			return name
		case have < string(key):
			low = start + len(line) + 1
		default:
			high = start
		}
	}
	return ""
}

// appendHex appends the low four digits of v.
func appendHex(b []byte, v uint32) []byte { return hex.AppendEncode(b, []byte{byte(v >> 8), byte(v)}) }
