package libvirtxml

import (
	"fmt"
	"math/bits"
)

// A Size is an amount of memory. libvirt prints it back in KiB, whatever it was given in.
type Size struct {
	Unit  string `xml:"unit,attr,omitempty"`
	Value uint64 `xml:",chardata"`
}

// SizeOf returns bytes in the largest unit that is exact, up to GiB.
func SizeOf(bytes uint64) Size {
	value, unit := scaled(bytes)
	return Size{Unit: unit, Value: value}
}

// Bytes returns the amount in bytes. An absent unit is KiB.
func (s Size) Bytes() (uint64, error) { return inBytes(s.Value, s.Unit) }

// scaled returns bytes in the largest unit that is exact, up to GiB.
func scaled(b uint64) (value uint64, unit string) {
	for _, u := range []struct {
		unit  string
		shift int
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if b>>u.shift<<u.shift == b {
			return b >> u.shift, u.unit
		}
	}
	return b, "b"
}

// inBytes knows the units that libvirt has for memory. Their long form has the case of SI and IEC:
// "KB" is 1000 bytes, "K" and "KiB" are 1024.
//
// Source: https://libvirt.org/formatdomain.html, "Memory Allocation".
func inBytes(value uint64, unit string) (uint64, error) {
	var factor uint64
	switch unit {
	case "b", "bytes":
		factor = 1
	case "KB":
		factor = 1e3
	case "", "k", "K", "KiB":
		factor = 1 << 10
	case "MB":
		factor = 1e6
	case "M", "MiB":
		factor = 1 << 20
	case "GB":
		factor = 1e9
	case "G", "GiB":
		factor = 1 << 30
	case "TB":
		factor = 1e12
	case "T", "TiB":
		factor = 1 << 40
	default:
		return 0, fmt.Errorf("unit of memory %q is not known; want b, KiB, MiB, GiB or TiB", unit)
	}
	high, low := bits.Mul64(value, factor)
	if high != 0 {
		return 0, fmt.Errorf("%d %s is more memory than 64 bits can count", value, unit)
	}
	return low, nil
}

// MemoryBacking is what guest memory is made of.
type MemoryBacking struct {
	HugePages    *HugePages  `xml:"hugepages"`
	NoSharePages *Empty      `xml:"nosharepages"`
	Locked       *Empty      `xml:"locked"`
	Allocation   *Allocation `xml:"allocation"`
}

// HugePages back the memory of a guest; without Pages, those of the host's default size.
type HugePages struct {
	Why   string     `xml:",comment"`
	Pages []HugePage `xml:"page"`
}

// A HugePage is a size of page, for the guest's cells of NodeSet, or for all where it is empty.
type HugePage struct {
	Size    uint64 `xml:"size,attr"`
	Unit    string `xml:"unit,attr,omitempty"`
	NodeSet string `xml:"nodeset,attr,omitempty"`
}

// PageOf returns a HugePage of so many bytes.
func PageOf(bytes uint64, nodeSet string) HugePage {
	size, unit := scaled(bytes)
	return HugePage{Size: size, Unit: unit, NodeSet: nodeSet}
}

// Bytes returns the size in bytes.
func (p HugePage) Bytes() (uint64, error) { return inBytes(p.Size, p.Unit) }

// Allocation says when memory is taken from the host.
type Allocation struct {
	Why  string `xml:",comment"`
	Mode string `xml:"mode,attr"` // "immediate"
}

// NUMATune says on which NUMA nodes of the host the memory of a guest is.
type NUMATune struct {
	Memory   *TuneMemory `xml:"memory"`
	MemNodes []MemNode   `xml:"memnode"`
}

// TuneMemory is for all memory of the guest that no MemNode is about.
type TuneMemory struct {
	Why     string `xml:",comment"`
	Mode    string `xml:"mode,attr"` // "strict"
	NodeSet string `xml:"nodeset,attr"`
}

// A MemNode is for one cell of the guest.
type MemNode struct {
	CellID  int    `xml:"cellid,attr"`
	Mode    string `xml:"mode,attr"`
	NodeSet string `xml:"nodeset,attr"`
}
