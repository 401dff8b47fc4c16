// Package pciids names PCI vendors, devices and classes by number, from the PCI ID Project's list, which is embedded. A
// lookup is a binary search in the text.
package pciids

import (
	_ "embed"
	"encoding/hex"
	"strings"
)

//go:generate go run gen.go -out ids.txt /usr/share/misc/pci.ids

// ids is sorted by the key before the first space:
//
//	15b3 Mellanox Technologies
//	15b3a2dc MT43244 BlueField-3 integrated ConnectX-7 network controller
//	C02 Network controller
//	C0200 Ethernet controller
//
// The header's lines start with "#" and a space, which sorts before all keys.
//
//go:embed ids.txt
var ids string

// Vendor returns a name, or "".
func Vendor(vendor uint16) string {
	return lookup(appendHex(make([]byte, 0, maxKey), uint32(vendor)))
}

// Device returns a name, or "".
func Device(vendor, device uint16) string {
	return lookup(appendHex(appendHex(make([]byte, 0, maxKey), uint32(vendor)), uint32(device)))
}

// Class returns the name of a 24-bit class: the subclass's, else the class's, else "".
func Class(class uint32) string {
	sub := appendHex(append(make([]byte, 0, maxKey), 'C'), class>>8)
	if name := lookup(sub); name != "" {
		return name
	}
	return lookup(sub[:3])
}

// maxKey is a device's.
const maxKey = 8

func lookup(key []byte) string {
	low, high := 0, len(ids) // the line starts in [low, high)
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

func appendHex(b []byte, v uint32) []byte { return hex.AppendEncode(b, []byte{byte(v >> 8), byte(v)}) }
