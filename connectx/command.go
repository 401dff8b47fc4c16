package connectx

import "slices"

// The command queue: entries of 64 bytes (struct mlx5_cmd_layout), and mailboxes of 512 bytes of data in a list.
const (
	// cmd.c of mlx5_core refuses more than 32 entries, for which the doorbell has a bit each, and a queue that exceeds
	// a page of 4 KiB. It keeps the last entry for page requests.
	logCmds      = 5
	logCmdStride = 6
	mailData     = 512
	// struct mlx5_cmd_prot_block: 512 bytes of data, then reserved ones, the next block, its number, a token and
	// signatures. The last three are not looked at, as cmdif_checksum is not offered.
	mailBlock  = 576
	mailNext   = 560 // address of the next block
	inlineData = 16
	// maxCommand bounds a command and its answer: the pages of a memory region of 2 GiB.
	maxCommand = 4 << 20
	// minCommand is opcode, uid and op_mod of a command, and status and syndrome of an answer.
	minCommand = 8
	// minBuffer is what each command's buffers hold at least, as zeros: the longest structure without a list, so that
	// fields can be read without a check.
	minBuffer = 0x1200
)

// status of a command, MLX5_CMD_STAT_* of linux/mlx5/device.h. The driver makes an error number of it: EINVAL of badOp,
// badParam, badResource and both wrong states, EIO of a wrong length, ENOMEM of limit, EAGAIN of noResource, EBUSY of
// busy.
type status byte

const (
	ok          status = 0
	badOp       status = 0x02
	badParam    status = 0x03
	badResource status = 0x05
	limit       status = 0x08
	badQPState  status = 0x10
	badInLength status = 0x50
)

// command runs an entry of the command queue. The entry is copied once, and the command too: a guest that changes them
// meanwhile cannot have one value checked and another one used. A failed command answers 16 bytes, zeros but for the
// status, so that nothing of a half-done answer gets out.
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
	// The driver polls the bit until it has armed its first EQ, and waits for an event afterwards.
	if q := p.EQs[p.CmdEQ]; p.Events && q != nil {
		var d [28]byte
		be.PutUint32(d[:], 1<<i)
		p.event(q, eventCommand, 0, d)
	}
}

// grown returns n zeros, in b where they fit. The buffers belong to the port and grow to the longest command, at most
// maxCommand. They are cleared each time, as handlers rely on zeros behind the end of a short command.
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

// mailboxes calls f for each block of n bytes, whose first 16 are elsewhere. A list that is a circle ends with n. That
// is at most maxCommand/mailData blocks.
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

// handler runs a command: in is at least minBuffer long, and so is out, which has zeros. n is the length of in. id is
// the 24-bit number at byte 8, where most commands name their object. A handler that reads beyond minBuffer checks the
// length of in itself. The port's lock is held.
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
