package connectx

import "github.com/rackless/rackless/roce"

// Opcodes of CQEs.
const (
	cqeRequest  = 0
	cqeWriteImm = 1
	cqeSend     = 2
	cqeSendImm  = 3
	cqeSendInv  = 4
	cqeReqError = 13
	cqeResError = 14
)

// completion writes the CQE of a finished request of a QP.
func (p *Port) completion(q *queue, c *roce.Completion) {
	var b [64]byte
	user := q.User
	if s := p.receives(q); c.Recv && s != nil && s.Kind == queueSRQ {
		user = s.User
	}
	be.PutUint32(b[32:], user)
	be.PutUint32(b[56:], q.Num)
	be.PutUint16(b[60:], uint16(c.ID))
	cqn, code := q.SendCQ, byte(cqeRequest)
	if c.Recv {
		cqn, code = q.RecvCQ, cqeResError
	} else {
		be.PutUint16(b[60:], uint16(c.ID>>8))
		b[56] = byte(c.ID)
	}
	if c.Status != roce.OK {
		if !c.Recv {
			code = cqeReqError
		}
		b[55] = byte(c.Status)
		b[63] = code << 4
		p.complete(p.CQs[cqn], &b, true)
		return
	}
	be.PutUint32(b[44:], c.Bytes)
	be.PutUint64(b[48:], p.ticks())
	if c.Recv {
		code = p.receiveCQE(q, c, &b)
	}
	b[63] = code << 4
	if c.Solicited {
		b[63] |= 2
	}
	p.complete(p.CQs[cqn], &b, c.Solicited)
}

// receiveCQE fills in what a receive has beyond a send, and returns its opcode.
func (p *Port) receiveCQE(q *queue, c *roce.Completion, b *[64]byte) byte {
	be.PutUint32(b[36:], c.Imm)
	if f := c.From; f != nil {
		l3 := uint32(1)
		if f.Dst.Is4() {
			l3 = 2
		}
		be.PutUint32(b[24:], f.SrcQP|1<<28|l3<<24)
	}
	switch c.Op {
	case roce.WRWriteImm:
		return cqeWriteImm
	case roce.WRSendImm:
		return cqeSendImm
	case roce.WRSendInv:
		return cqeSendInv
	}
	if c.From != nil {
		be.PutUint32(b[36:], 0xffff) // P_Key
	}
	return cqeSend
}
