package connectx

// The vendor-specific capability is a window to address spaces, for mstconfig and mstflint. Offsets are from the
// kernel's lib/pci_vsc.c and mstflint.
const (
	cfgVSC       = 0xc0
	vscSize      = 0x18
	vscControl   = cfgVSC + 0x04 // low 16 bits: space; bits 29 to 31: it exists
	vscCounter   = cfgVSC + 0x08 // each read returns a new ticket
	vscSemaphore = cfgVSC + 0x0c // owner's ticket, or 0
	vscAddress   = cfgVSC + 0x10 // the top bit requests a write, and is inverted when the access is done
	vscData      = cfgVSC + 0x14
	vscFlag      = 1 << 31
	vscThere     = 1 << 29
)

// mstflint uses the window only if the first, the second and the last exist.
const (
	spaceICMDExt   = 1
	spaceCR        = 2
	spaceICMD      = 3
	spaceSemaphore = 10
)

// crDevice has the hardware's id. Other words of the CR space are zeros, which also means that the firmware is ready.
const crDevice = 0xf0014

// Control word and mailbox in the ICMD space.
const (
	icmdControl   = 0      // top 16 bits: opcode; bits 8 to 15: status; the start bit
	icmdSizeAt    = 0x1000 // address of the mailbox's size
	icmdMailbox   = 0x100000
	icmdSize      = 0x320
	icmdGo        = 1
	icmdRegister  = 0x9001 // the only command: access to a register
	icmdBadOpcode = 1
	icmdData      = 20 // of a register in the mailbox, after two headers
)

type icmd struct {
	control, owner uint32
	resetter       uint32 // owner of the reset semaphore
	mailbox        [icmdSize]byte
}

// resetSemaphore is MLX5_SEMAPHORE_SW_RESET, which the driver takes before it resets a stopped firmware.
const resetSemaphore = 0x20

func (m *icmd) semaphore(at uint32) *uint32 {
	switch at {
	case 0:
		return &m.owner
	case resetSemaphore:
		return &m.resetter
	}
	return nil
}

// vscReset adds the capability, but not for virtual functions, because settings are the physical function's.
func (p *Port) vscReset() {
	p.config[cfgMSIX+1] = cfgVSC
	c := p.config[cfgVSC:]
	c[0], c[1], c[2] = 9, cfgPM, vscSize
}

// vscTicket reports whether a read includes the counter.
func (p *Port) vscTicket(off uint64, n int) bool {
	return p.nic.VF == 0 && off < vscCounter+4 && off+uint64(n) > vscCounter
}

// vscWrite does an access before its write returns.
func (p *Port) vscWrite(at uint64, v uint32) {
	word := func(at int) uint32 { return le.Uint32(p.config[at:]) }
	put := func(at int, v uint32) { le.PutUint32(p.config[at:], v) }
	space := word(vscControl) & 0xffff
	switch at {
	case vscControl:
		switch v &= 0xffff; v {
		case spaceICMDExt, spaceCR, spaceICMD, spaceSemaphore:
			v |= vscThere
		}
		put(vscControl, v)
	case vscSemaphore:
		if v == 0 || word(vscSemaphore) == 0 {
			put(vscSemaphore, v)
		}
	case vscAddress:
		if v&vscFlag != 0 {
			p.spaceWrite(space, v&^vscFlag, word(vscData))
		} else {
			put(vscData, p.spaceRead(space, v))
		}
		put(vscAddress, v^vscFlag)
	case vscData:
		put(vscData, v)
	}
}

// spaceRead reads a word. Those of the mailbox are big-endian, like registers.
func (p *Port) spaceRead(space, at uint32) uint32 {
	switch {
	case space == spaceCR && at == crDevice:
		return uint32(p.model.hardware)
	case space == spaceSemaphore:
		if s := p.icmd.semaphore(at); s != nil {
			return *s
		}
	case space != spaceICMD:
	case at == icmdControl:
		return p.icmd.control
	case at == icmdSizeAt:
		return icmdSize
	case at >= icmdMailbox && at <= icmdMailbox+icmdSize-4:
		return be.Uint32(p.icmd.mailbox[at-icmdMailbox:])
	}
	return 0
}

func (p *Port) spaceWrite(space, at, v uint32) {
	switch {
	case space == spaceSemaphore:
		if s := p.icmd.semaphore(at); s != nil && (v == 0 || *s == 0) {
			*s = v
		}
	case space != spaceICMD:
	case at == icmdControl:
		p.icmd.control = v
		if v&icmdGo != 0 {
			p.icmd.control = v&^(icmdGo|0xff00) | p.icmdRun(v>>16)<<8
		}
	case at >= icmdMailbox && at <= icmdMailbox+icmdSize-4:
		be.PutUint32(p.icmd.mailbox[at-icmdMailbox:], v)
	}
}

// icmdRun returns a status. The mailbox holds an operation TLV of 16 bytes, with the register number and a write flag,
// then the register's header, and the register.
func (p *Port) icmdRun(opcode uint32) uint32 {
	if opcode != icmdRegister {
		return icmdBadOpcode
	}
	m := p.icmd.mailbox[:]
	in, out := make([]byte, minBuffer), make([]byte, minBuffer)
	reg, write := be.Uint16(m[4:]), m[6]&0x7f == 2
	be.PutUint32(in[8:], uint32(reg))
	if !write {
		in[7] = 1
	}
	copy(in[regData:], m[icmdData:])
	bad := regBadParam
	if accessReg(p, in, out, 0) == ok {
		copy(m[icmdData:], out[regData:])
		bad = 0
	}
	m[2] = m[2]&0x80 | bad
	m[6] |= 0x80 // marks an answer
	return 0
}
