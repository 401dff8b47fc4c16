package topology

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A PCIAddr is the address of a PCI function: domain:bus:device.function. It is small, comparable
// and prints what it parses. The zero value is 0000:00:00.0, a real address; where an address may
// be missing, a pointer says so.
type PCIAddr struct {
	Domain   uint32 // up to 32 bits: Intel VMD and Hyper-V use domains above 0xffff
	Bus      uint8
	Device   uint8 // 0-31
	Function uint8 // 0-7
}

// A PCIAddrError is an address that cannot be parsed.
type PCIAddrError struct {
	In  string // as it was given
	Why string
}

func (e *PCIAddrError) Error() string {
	return fmt.Sprintf("PCI address %q: %s; want domain:bus:device.function in hexadecimal, such as 0000:3b:00.1", e.In,
		e.Why)
}

// ParsePCIAddr parses "0000:3b:00.1", or "3b:00.1" for domain 0. NVIDIA's tools write domains of
// eight digits and upper case ("00000000:3B:00.0"): both are taken.
func ParsePCIAddr(s string) (PCIAddr, error) {
	fail := func(why string) (PCIAddr, error) { return PCIAddr{}, &PCIAddrError{In: s, Why: why} }
	var a PCIAddr
	rest := s
	if strings.Count(s, ":") == 2 {
		domain, after, _ := strings.Cut(s, ":")
		v, ok := hex(domain, 4, 8, 0xffffffff)
		if !ok {
			return fail(fmt.Sprintf("domain %q is not 4 to 8 hexadecimal digits", domain))
		}
		a.Domain, rest = uint32(v), after
	}
	bus, devfn, ok := strings.Cut(rest, ":")
	if !ok {
		return fail("no bus")
	}
	dev, fn, ok := strings.Cut(devfn, ".")
	if !ok {
		return fail("no function")
	}
	v, ok := hex(bus, 2, 2, 0xff)
	if !ok {
		return fail(fmt.Sprintf("bus %q is not 2 hexadecimal digits", bus))
	}
	a.Bus = uint8(v)
	if v, ok = hex(dev, 2, 2, 31); !ok {
		return fail(fmt.Sprintf("device %q is not 00 to 1f", dev))
	}
	a.Device = uint8(v)
	if v, ok = hex(fn, 1, 1, 7); !ok {
		return fail(fmt.Sprintf("function %q is not 0 to 7", fn))
	}
	a.Function = uint8(v)
	return a, nil
}

// hex parses a hexadecimal number of minLen to maxLen digits that is at most limit.
func hex(s string, minLen, maxLen int, limit uint64) (uint64, bool) {
	if len(s) < minLen || len(s) > maxLen {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil && v <= limit
}

const hexDigits = "0123456789abcdef"

// String returns the form of sysfs: "0000:3b:00.1".
func (a PCIAddr) String() string { return string(a.append(make([]byte, 0, 12))) }

func (a PCIAddr) append(b []byte) []byte {
	if a.Domain > 0xffff {
		b = strconv.AppendUint(b, uint64(a.Domain), 16)
	} else {
		for shift := 12; shift >= 0; shift -= 4 {
			b = append(b, hexDigits[a.Domain>>shift&0xf])
		}
	}
	return append(b, ':', hexDigits[a.Bus>>4], hexDigits[a.Bus&0xf],
		':', hexDigits[a.Device>>4&1], hexDigits[a.Device&0xf], '.', hexDigits[a.Function&7])
}

// Compare orders by domain, bus, device and function.
func (a PCIAddr) Compare(b PCIAddr) int {
	return cmp.Or(
		cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus),
		cmp.Compare(a.Device, b.Device), cmp.Compare(a.Function, b.Function))
}

// SameDevice reports whether a and b are functions of one device (or the same function).
func (a PCIAddr) SameDevice(b PCIAddr) bool {
	a.Function, b.Function = 0, 0
	return a == b
}

// MarshalText writes the form of String.
func (a PCIAddr) MarshalText() ([]byte, error) { return a.append(nil), nil }

// UnmarshalText reads what ParsePCIAddr takes.
func (a *PCIAddr) UnmarshalText(b []byte) error {
	v, err := ParsePCIAddr(string(b))
	if err == nil {
		*a = v
	}
	return err
}
