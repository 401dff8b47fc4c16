package connectx

import "slices"

// The command queue: entries of 64 bytes (struct mlx5_cmd_layout), and mailboxes of 512 bytes of data in a list.
const (
	logCmds      = 5
	logCmdStride = 6
	mailData     = 512
	mailBlock    = 576
	mailNext     = 560 // address of the next block
	inlineData   = 16
	// maxCommand bounds a command and its answer: the pages of a memory region of 2 GiB.
	maxCommand = 4 << 20
	minCommand = 8
	// minBuffer is what each command's buffers hold at least, as zeros: the longest structure without a list, so that
	// fields can be read without a check.
	minBuffer = 0x1200
)

// status of a command.
type status byte

const (
	ok           status = 0
	badOp        status = 0x02
	badParam     status = 0x03
	badSystem    status = 0x04
	badResource  status = 0x05
	busy         status = 0x06
	limit        status = 0x08
	badState     status = 0x09
	noResource   status = 0x0f
	badQPState   status = 0x10
	badInLength  status = 0x50
	badOutLength status = 0x51
)

// command runs an entry of the command queue.
func (p *Port) command(i uint64) {
	var e [64]byte
	at := p.CmdQ + i<<logCmdStride
	if p.CmdQ == 0 || !p.mem.Read(at, e[:]) || e[63]&1 == 0 {
		return // not ours: nothing to answer
	}
	inLen, outLen := be.Uint32(e[4:]), be.Uint32(e[56:])
	st := badInLength
	p.out = grown(p.out, minBuffer)
	if inLen >= minCommand && inLen <= maxCommand && outLen >= minCommand && outLen <= maxCommand &&
		p.gather(&e, int(inLen)) {
		p.out = grown(p.out, max(int(outLen), minBuffer))
		st = p.execute(int(outLen))
	}
	if st != ok {
		p.out = grown(p.out, minBuffer)
		p.out[0] = byte(st)
		outLen = 16
	}
	if !p.scatter(be.Uint64(e[48:]), int(outLen)) {
		p.logf("command %#x: an address of its answer is wrong", be.Uint16(p.in))
	}
	// The answer first, then the bit that gives the entry back.
	p.mem.Write(at+32, p.out[:16])
	p.mem.Store32(at+60, [4]byte{e[60], e[61], e[62], 0})
	if q := p.EQs[p.CmdEQ]; p.Events && q != nil {
		var d [28]byte
		be.PutUint32(d[:], 1<<i)
		p.event(q, eventCommand, 0, d)
	}
}

// grown returns n zeros, in b where they fit.
func grown(b []byte, n int) []byte {
	b = slices.Grow(b[:0], n)[:n]
	clear(b)
	return b
}

// gather reads the command into p.in: 16 bytes from the entry, the rest from mailboxes.
func (p *Port) gather(e *[64]byte, n int) bool {
	p.in = grown(p.in, max(n, minBuffer))
	copy(p.in, e[16:32])
	return p.mailboxes(be.Uint64(e[8:]), n, func(at uint64, o, k int) bool { return p.mem.Read(at, p.in[o:o+k]) })
}

// scatter writes the answer after its first 16 bytes to mailboxes.
func (p *Port) scatter(at uint64, n int) bool {
	return p.mailboxes(at, n, func(at uint64, o, k int) bool { return p.mem.Write(at, p.out[o:o+k]) })
}

// mailboxes calls f for each block of n bytes, whose first 16 are elsewhere. A list that is a circle ends with n.
func (p *Port) mailboxes(at uint64, n int, f func(at uint64, o, n int) bool) bool {
	for o := inlineData; o < n; o += mailData {
		var next [8]byte
		if !p.mem.Has(at, mailBlock) || !f(at, o, min(mailData, n-o)) || !p.mem.Read(at+mailNext, next[:]) {
			return false
		}
		at = be.Uint64(next[:])
	}
	return true
}

// handler runs a command: in is at least minBuffer long, and so is out, which has zeros. n is the length of in.
type handler func(p *Port, in, out []byte, id uint32) status

// execute runs the command in p.in, and leaves its answer in p.out.
func (p *Port) execute(outLen int) status {
	op, id := be.Uint16(p.in), be.Uint32(p.in[8:])&0xffffff
	c, known := commands[op]
	switch {
	case !known:
		p.logf("command %#x is unknown", op)
		return badOp
	case c.run == nil:
		return ok
	}
	p.outLen = outLen
	return c.run(p, p.in, p.out, id)
}

// opMod is the command's modifier.
func opMod(in []byte) uint16 { return be.Uint16(in[6:]) }

// put24 writes the number of a new object: all answers have it in this place.
func put24(out []byte, n uint32) { be.PutUint32(out[8:], n) }

// nothing is for commands that change nothing here.
func nothing(*Port, []byte, []byte, uint32) status { return ok }
