package connectx

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rackless/rackless/internal/atomicfile"
)

// Registers of the firmware that mstconfig and mstflint use (mstflint's reg_access.c).
const (
	regMGIR = 0x9020 // versions and ids
	regNVDA = 0x9024 // reads or writes a setting
	regNVDI = 0x9025 // sets one back to its default
	regMFRL = 0x9028 // asks for a reset
	regNVQC = 0x9030 // says whether there is a setting
	regNVGC = 0x9034 // says which values of settings can be asked for
	regMCQS = 0x9060 // components of the firmware: here there is the image alone
	regMCQI = 0x9061 // what is known of one
	regMQIS = 0x9064 // name and description of the board
	regMCAM = 0x907f // says which registers there are
	// regBadParam is a status of a register: MAD status "bad parameter".
	regBadParam byte = 7
)

// Types of settings (TLVs), as mstconfig names them: the class, the port for those of a port, and a number.
const (
	tlvAddress    = 0x02       // nv_base_mac_guid
	tlvAddressCap = 0x03       // nv_base_mac_guid_cap
	tlvPCI        = 0x80       // nv_global_pci_conf
	tlvPCICap     = 0x81       // nv_global_pci_cap
	tlvLink       = 0x01000012 // nv_vpi_link_type of port 0, which counts from 1
	tlvKeepLink   = 0x01000190 // nv_keep_link_up of port 0
	tlvPortBits   = 0xff0000   // the number of the port
)

// Fields of settings. Numbers are those of mstflint's data base, counted from the most significant bit.
const (
	pciSRIOVValid bits = 0x0<<8 | 1
	pciSRIOV      bits = 0x20<<8 | 1
	pciPFs        bits = 0x28<<8 | 8
	pciVFs        bits = 0x30<<8 | 16
	pciPFsValid   bits = 0x3<<8 | 1
	capMaxValid   bits = 0x0<<8 | 1
	capSRIOV      bits = 0x20<<8 | 1
	capMaxVFs     bits = 0x30<<8 | 16
	capMaxPFs     bits = 0x28<<8 | 8
	linkType      bits = 0x1c<<8 | 2
	linkEthernet       = 2
	keepEthernet  bits = 0x1f<<8 | 1
)

// portSettings are the settings of a port, by the type of port 0. Each is a word.
var portSettings = map[uint32]struct {
	field  bits
	normal uint64 // as delivered
	fixed  bool   // nothing else can be set
	vpi    bool   // only boards have it that can do InfiniBand, which there is none of here
}{
	tlvLink:     {field: linkType, normal: linkEthernet, fixed: true, vpi: true},
	tlvKeepLink: {field: keepEthernet, normal: 1},
}

// Firmware is the flash of a card with its settings. The functions of a card share it. Settings take effect when the
// card is reset, as a machine does when it starts, but not by the reset of one function (FLR).
type Firmware struct {
	path    string
	ports   int // of the card, each a physical function
	vfs     int // of each port, as delivered
	mu      sync.Mutex
	saved   settings
	inForce settings
}

// settings are what has been set, by type; what is not there has its default.
type settings map[uint32][]byte

// maxVFs is NUM_OF_VFS at most, for each physical function.
const maxVFs = 127

// defaultVFs is NUM_OF_VFS of a card that is delivered with SRIOV_EN off.
const defaultVFs = 8

// NewFirmware returns the firmware of a card with a number of ports, whose settings are in a file; "" keeps them in
// memory. A card that is delivered with virtual functions has SRIOV_EN on.
func NewFirmware(path string, ports, vfs int) (*Firmware, error) {
	f := &Firmware{path: path, ports: ports, vfs: vfs}
	if path == "" {
		return f, nil
	}
	err := atomicfile.ReadJSON(path, &f.saved)
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	for typ, v := range f.saved {
		size := 0
		if _, is := portSettings[typ&^tlvPortBits]; is {
			size = 4
		} else if typ == tlvPCI {
			size = pciSize
		}
		if err == nil && len(v) != size {
			err = fmt.Errorf("setting %#x has %d bytes: want %d", typ, len(v), size)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connectx: the firmware's settings in %s: %w", path, err)
	}
	f.reset()
	return f, nil
}

// reset lets what has been set take effect.
func (f *Firmware) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inForce = f.saved // write makes a new map
}

// VFs says how many virtual functions of each port the settings in force allow.
func (f *Firmware) VFs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.pci(f.inForce)
	if !pciSRIOV.is(b) {
		return 0
	}
	return int(pciVFs.get(b))
}

// keepsLink says whether a port's link stays up while its driver does not want it, as the settings in force have it.
// port counts from 0.
func (f *Firmware) keepsLink(port int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return keepEthernet.is(f.port(f.inForce, tlvKeepLink|uint32(port+1)<<16))
}

// port returns a setting of a port.
func (f *Firmware) port(s settings, typ uint32) []byte {
	if b := s[typ]; b != nil {
		return b
	}
	b, is := make([]byte, 4), portSettings[typ&^tlvPortBits]
	is.field.put(b, is.normal)
	return b
}

// pciSize is the size of the setting of virtual functions.
const pciSize = 12

// pci returns the setting of virtual functions.
func (f *Firmware) pci(s settings) []byte {
	if b := s[tlvPCI]; b != nil {
		return b
	}
	b := make([]byte, pciSize)
	putAll(b, map[bits]uint64{pciSRIOVValid: 1, pciVFs: defaultVFs, pciPFsValid: 1, pciPFs: uint64(f.ports)})
	if f.vfs > 0 {
		putAll(b, map[bits]uint64{pciSRIOV: 1, pciVFs: uint64(f.vfs)})
	}
	return b
}

// read returns a setting or its default, and whether it can be written. nil: the card has none of the kind.
func (f *Firmware) read(s settings, typ uint32, p *Port) (value []byte, writable bool) {
	port := int(typ & tlvPortBits >> 16)
	ofPort, is := portSettings[typ&^tlvPortBits]
	switch {
	case typ == tlvPCI:
		return f.pci(s), true
	case typ == tlvPCICap:
		b := make([]byte, 20)
		putAll(b, map[bits]uint64{capMaxValid: 1, capSRIOV: 1, capMaxVFs: maxVFs, capMaxPFs: uint64(f.ports)})
		return b, false
	case typ == tlvAddress:
		b := make([]byte, 16)
		copy(b[2:], p.nic.MAC[:])
		be.PutUint64(b[8:], p.guid())
		return b, false
	case typ == tlvAddressCap: // 8 addresses and GUIDs are the card's, from these on
		return []byte{0xc0, 0, 0, 0, 0, 8, 0, 8}, false
	case is && (p.model.vpi || !ofPort.vpi) && port >= 1 && port <= f.ports:
		return f.port(s, typ), true
	}
	return nil, false
}

// write saves a setting, or with nil its default, and says whether it is one that the card can have.
func (f *Firmware) write(typ uint32, v []byte, p *Port) bool {
	if was, writable := f.read(nil, typ, p); !writable || v != nil && len(v) != len(was) {
		return false
	}
	switch ofPort := portSettings[typ&^tlvPortBits]; {
	case v == nil:
	case typ == tlvPCI:
		if pciVFs.get(v) > maxVFs || pciPFs.get(v) != uint64(f.ports) {
			return false
		}
	case ofPort.fixed && ofPort.field.get(v) != ofPort.normal:
		return false
	}
	next := settings{}
	for t, b := range f.saved {
		next[t] = b
	}
	if delete(next, typ); v != nil {
		next[typ] = append([]byte(nil), v...)
	}
	if f.path != "" && atomicfile.WriteJSON(f.path, next) != nil {
		return false
	}
	f.saved = next
	return true
}

// Fields of the header of NVDA and NVDI, before the type and the value: its length in bytes, and which value is asked
// for.
const (
	nvLength  bits = 0x17<<8 | 9
	nvCurrent bits = 0x9<<8 | 1
	nvDefault bits = 0x8<<8 | 1
	nvVersion bits = 0x10<<8 | 4
	nvType         = 4
	nvValue        = 12
	nvqcRead  bits = 0x3f<<8 | 1
	nvqcWrite bits = 0x3e<<8 | 1
)

// firmwareReg answers a register of the firmware; known is false for others. d is the request, o starts as its echo.
func (p *Port) firmwareReg(reg uint32, d, o []byte, write bool) (st status, known bool) {
	f := p.nic.Firmware
	f.mu.Lock()
	defer f.mu.Unlock()
	switch reg {
	case regMGIR:
		p.information(o)
	case regMFRL: // the levels that are offered: a reset of the PCI link
		clear(o[:8])
	case regMQIS:
		p.board(d, o)
	case regMCAM:
		clear(o[8:24])
		if d[3] == 0 { // registers from 0x9000 on, a bit each; the last bit is the first register
			for _, r := range []int{regMGIR, 0x9062, 0x9063, regMCQS, regMCQI, regMQIS} {
				o[8+15-(r&0x7f)/8] |= 1 << (r & 7)
			}
		}
	case regMCQS:
		copy(o, make([]byte, 16))
		if be.Uint16(d[2:]) != 0 {
			return badParam, true
		}
		o[0], o[7], o[11] = 0x80, 1, 2<<4 // the last one, the image for boot, in use
	case regMCQI:
		p.component(d, o)
	case regNVGC:
		clear(o[:16])
		o[3] = 3 // default ones, and those in force
	case regNVQC: // mstconfig asks for number 0 to see whether there is the register
		typ := be.Uint32(d)
		v, writable := f.read(nil, typ, p)
		if v == nil && typ != 0 {
			return badParam, true
		}
		clear(o[4:12])
		if v != nil {
			nvqcRead.put(o, 1)
		}
		if writable {
			nvqcWrite.put(o, 1)
		}
	case regNVDI:
		if !write || !f.write(be.Uint32(d[nvType:]), nil, p) {
			return badParam, true
		}
	case regNVDA:
		typ := be.Uint32(d[nvType:])
		if write {
			if n := int(nvLength.get(d)); n > keptSize || !f.write(typ, d[nvValue:nvValue+n], p) {
				return badParam, true
			}
			return ok, true
		}
		from := f.saved
		if nvDefault.is(d) {
			from = nil
		} else if nvCurrent.is(d) {
			from = f.inForce
		}
		v, _ := f.read(from, typ, p)
		if v == nil {
			return badParam, true
		}
		clear(o[nvValue:keptSize])
		copy(o[nvValue:], v)
		putAll(o, map[bits]uint64{nvLength: uint64(len(v)), nvVersion: 0})
	default:
		return ok, false
	}
	return ok, true
}

// board fills in MQIS: a part of the board's name or description. The offset and the length are bounded by the text.
func (p *Port) board(d, o []byte) {
	text := map[byte]string{1: p.model.part, 2: p.model.text}[d[3]]
	from := min(int(be.Uint16(d[8:])), len(text))
	n := min(int(be.Uint16(d[10:])), len(text)-from, 8)
	be.PutUint16(o[6:], uint16(len(text)))
	be.PutUint16(o[10:], uint16(n))
	clear(o[16:24])
	copy(o[16:16+n], text[from:])
}

// component fills in MCQI: what can be asked of the image (type 0), and its version (type 1).
func (p *Port) component(d, o []byte) {
	clear(o[12:keptSize])
	v := o[24:]
	switch m := &p.model; d[11] & 0x1f {
	case 0:
		o[15] = 0x14
		v[3] = 3
	case 1:
		text := fmt.Sprintf("%d.%d.%d", m.major, m.minor, m.sub)
		o[15] = 0x7c
		v[3] = byte(len(text))
		be.PutUint32(v[4:], m.major<<24|m.minor<<16|m.sub)
		copy(v[32:], text)
	}
	be.PutUint16(o[22:], uint16(o[15]))
}

// information fills in MGIR: ids of the hardware, versions of the firmware.
func (p *Port) information(o []byte) {
	clear(o[:0xa0])
	be.PutUint16(o[2:], p.model.device)
	o[5] = byte(p.nic.Firmware.ports)
	be.PutUint16(o[10:], p.model.hardware)
	m := p.nic.MAC
	copy(o[18:], m[:])
	fw := o[32:]
	fw[1], fw[2], fw[3] = byte(p.model.major), byte(p.model.minor), byte(p.model.sub)
	copy(fw[16:32], p.model.psid)
	be.PutUint32(fw[36:], p.model.major)
	be.PutUint32(fw[40:], p.model.minor)
	be.PutUint32(fw[44:], p.model.sub)
}
