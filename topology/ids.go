package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// IDs of PCI print as sysfs does, "0x15b3", and read the same with or without the prefix.
type (
	ID8  uint8  // revision
	ID16 uint16 // vendor, device
	ID24 uint32 // class, subclass and programming interface
)

func (v ID8) String() string  { return fmt.Sprintf("0x%02x", uint8(v)) }
func (v ID16) String() string { return fmt.Sprintf("0x%04x", uint16(v)) }
func (v ID24) String() string { return fmt.Sprintf("0x%06x", uint32(v)) }

func (v ID8) MarshalText() ([]byte, error)  { return []byte(v.String()), nil }
func (v ID16) MarshalText() ([]byte, error) { return []byte(v.String()), nil }
func (v ID24) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v *ID8) UnmarshalText(b []byte) error {
	n, err := parseID(string(b), 8)
	*v = ID8(n)
	return err
}

func (v *ID16) UnmarshalText(b []byte) error {
	n, err := parseID(string(b), 16)
	*v = ID16(n)
	return err
}

func (v *ID24) UnmarshalText(b []byte) error {
	n, err := parseID(string(b), 24)
	*v = ID24(n)
	return err
}

// parseID parses hexadecimal with or without 0x.
func parseID(s string, bits int) (uint64, error) {
	digits := strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")
	n, err := strconv.ParseUint(digits, 16, bits)
	if err != nil {
		return 0, fmt.Errorf("PCI ID %q: want a hexadecimal number of at most %d bits, such as 0x15b3", s, bits)
	}
	return n, nil
}

// ParseID16 parses a vendor or device ID: "0x15b3" or "15b3".
func ParseID16(s string) (ID16, error) {
	n, err := parseID(s, 16)
	return ID16(n), err
}

// ParseID24 parses a class: "0x020000", or without its programming interface "0200" as other tools print it.
func ParseID24(s string) (ID24, error) {
	n, err := parseID(s, 24)
	if digits := strings.TrimPrefix(strings.ToLower(s), "0x"); err == nil && len(digits) == 4 {
		n <<= 8
	}
	return ID24(n), err
}

// Base returns the class without subclass: 0x02 of a network controller.
func (v ID24) Base() uint8 { return uint8(v >> 16) }

// Sub returns class and subclass: 0x0604 of a PCI bridge.
func (v ID24) Sub() uint16 { return uint16(v >> 8) }

// Base classes and subclasses that rackless looks at. Source: PCI Code and ID Assignment Specification.
const (
	ClassStorage     = 0x01
	ClassNetwork     = 0x02
	ClassDisplay     = 0x03
	ClassBridge      = 0x06
	ClassAccelerator = 0x12

	SubVGA          = 0x0300
	Sub3D           = 0x0302
	SubInfiniBand   = 0x0207
	SubHostBridge   = 0x0600
	SubOtherDisplay = 0x0380 // a display controller that is neither VGA nor 3D
	SubPCIBridge    = 0x0604
	SubFabric       = 0x0c06 // InfiniBand HCAs of before subclass 0x0207
)

// Vendors that rackless knows by name.
const (
	VendorAMD      ID16 = 0x1002
	VendorNVIDIA   ID16 = 0x10de
	VendorMellanox ID16 = 0x15b3
	VendorIntel    ID16 = 0x8086
	VendorBroadcom ID16 = 0x14e4
	VendorRedHat   ID16 = 0x1af4 // virtio
)
