package connectx

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/rackless/rackless/internal/atomicfile"
)

// Registers of mstconfig and mstflint (reg_access.c).
const (
	regMGIR = 0x9020 // versions and ids
	regNVDA = 0x9024 // reads or writes a setting
	regNVDI = 0x9025 // resets a setting
	regMFRL = 0x9028 // requests a reset
	regNVQC = 0x9030 // tells whether a setting exists
	regNVGC = 0x9034 // values of settings that can be read
	regMCQS = 0x9060 // components: only the image
	regMCQI = 0x9061 // properties of a component
	regMQIS = 0x9064 // name and description of the board
	regMCAM = 0x907f // tells which registers exist
	// regBadParam is the status of a register with MAD status "bad parameter".
	regBadParam byte = 7
)

// Types (TLVs) as mstconfig names them: a class, the port for settings of one, and a number.
const (
	tlvAddress    = 0x02       // nv_base_mac_guid
	tlvAddressCap = 0x03       // nv_base_mac_guid_cap
	tlvPCI        = 0x80       // nv_global_pci_conf
	tlvPCICap     = 0x81       // nv_global_pci_cap
	tlvLink       = 0x01000012 // nv_vpi_link_type of port 0; ports count from 1
	tlvKeepLink   = 0x01000190 // nv_keep_link_up of port 0
	tlvPortBits   = 0xff0000   // the number of the port
)

// Bit numbers are mstflint's and count from the most significant bit.
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

// portSettings are one word each, keyed by the type of port 0.
var portSettings = map[uint32]struct {
	field  bits
	normal uint64 // value as delivered
	fixed  bool   // no other value
	vpi    bool   // only on boards with InfiniBand
}{
	tlvLink:     {field: linkType, normal: linkEthernet, fixed: true, vpi: true},
	tlvKeepLink: {field: keepEthernet, normal: 1},
}

// Firmware is a card's flash, shared by its functions. Settings take effect when the card is reset, for example at the
// machine's start, but not by the reset of one function (FLR).
type Firmware struct {
	path    string
	ports   int // one physical function each
	vfs     int // of each port, as delivered
	mu      sync.Mutex
	saved   settings
	inForce settings
}

// settings are the changed ones, by type. Others have their defaults.
type settings map[uint32][]byte

// maxVFs limits NUM_OF_VFS of a physical function.
const maxVFs = 127

// defaultVFs is NUM_OF_VFS of a card delivered with SRIOV_EN off.
const defaultVFs = 8

// NewFirmware keeps settings in the file at path, or in memory if it is "". If vfs is not 0, the card is delivered with
// SRIOV_EN on.
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

func (f *Firmware) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inForce = f.saved // write creates a new map
}

// VFs returns the number of virtual functions of each port, by the settings in force.
func (f *Firmware) VFs() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.pci(f.inForce)
	if !pciSRIOV.is(b) {
		return 0
	}
	return int(pciVFs.get(b))
}

// keepsLink reports whether a link stays up if its driver disables it, by the settings in force. port counts from 0.
func (f *Firmware) keepsLink(port int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return keepEthernet.is(f.port(f.inForce, tlvKeepLink|uint32(port+1)<<16))
}

func (f *Firmware) port(s settings, typ uint32) []byte {
	if b := s[typ]; b != nil {
		return b
	}
	b, is := make([]byte, 4), portSettings[typ&^tlvPortBits]
	is.field.put(b, is.normal)
	return b
}

const pciSize = 12

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

// read returns a setting or its default, or nil if the card has none.
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
	case typ == tlvAddressCap: // 8 addresses and GUIDs, starting with these
		return []byte{0xc0, 0, 0, 0, 0, 8, 0, 8}, false
	case is && (p.model.vpi || !ofPort.vpi) && port >= 1 && port <= f.ports:
		return f.port(s, typ), true
	}
	return nil, false
}

// write restores the default if v is nil. It returns false if the card cannot have the setting.
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

// In the header of NVDA and NVDI, before the type and the value: the length in bytes, and the requested value.
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

// firmwareReg gets the request in d and its copy in o; known is false for other registers. A virtual function only
// reads, because its owner may be a guest of the card's owner.
func (p *Port) firmwareReg(reg uint32, d, o []byte, write bool) (st status, known bool) {
	f := p.nic.Firmware
	f.mu.Lock()
	defer f.mu.Unlock()
	switch reg {
	case regNVDA, regNVDI, regMFRL:
		if write && p.nic.VF > 0 {
			return badParam, true
		}
	}
	switch reg {
	case regMGIR:
		p.information(o)
	case regMFRL: // the only level is a reset of the PCI link
		clear(o[:8])
	case regMQIS:
		p.board(d, o)
	case regMCAM:
		clear(o[8:24])
		if d[3] == 0 { // from 0x9000 on, one bit each; the last is the first register
			for _, r := range []int{regMGIR, 0x9062, 0x9063, regMCQS, regMCQI, regMQIS} {
				o[8+15-(r&0x7f)/8] |= 1 << (r & 7)
			}
		}
	case regMCQS:
		copy(o, make([]byte, 16))
		if be.Uint16(d[2:]) != 0 {
			return badParam, true
		}
		o[0], o[7], o[11] = 0x80, 1, 2<<4 // the last component, the boot image, in use
	case regMCQI:
		p.component(d, o)
	case regNVGC:
		clear(o[:16])
		o[3] = 3 // default values and values in force
	case regNVQC: // mstconfig asks for number 0 to test for the register
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

// board answers MQIS. The text limits offset and length.
func (p *Port) board(d, o []byte) {
	text := map[byte]string{1: p.model.part, 2: p.model.text}[d[3]]
	from := min(int(be.Uint16(d[8:])), len(text))
	n := min(int(be.Uint16(d[10:])), len(text)-from, 8)
	be.PutUint16(o[6:], uint16(len(text)))
	be.PutUint16(o[10:], uint16(n))
	clear(o[16:24])
	copy(o[16:16+n], text[from:])
}

// component fills in MCQI: supported queries of the image (type 0), or its version (type 1).
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
