package connectx

import "github.com/rackless/rackless/roce"

// Opcodes of CQEs, in the high four bits of the last byte (MLX5_CQE_* of linux/mlx5/device.h). Its bit 0 is the owner,
// which complete sets, and bit 1 marks a solicited event.
const (
	cqeRequest  = 0
	cqeWriteImm = 1
	cqeSend     = 2
	cqeSendImm  = 3
	cqeSendInv  = 4
	cqeReqError = 13
	cqeResError = 14
)

// completion writes the CQE of a finished request of a QP. A CQE (struct mlx5_cqe64; struct mlx5_err_cqe after a
// failure) names its queue twice: by user_index at 32 for libmlx5, and by number at 56 for the kernel. For sends byte
// 56 is the opcode of the request. wqe_counter at 60 is the index of the control segment of a send, or of the receive
// WQE; c.ID of a send is index<<8 | opcode, from sendID.
func (p *Port) completion(q *queue, c *roce.Completion) {
	var b [64]byte
	// Receives of an SRQ of XRC are completed under the user_index of the SRQ, not of the QP that got the message.
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
		// The numbers of roce.Status are those of the CQE's syndrome. An error completes as if solicited: whoever waits
		// for solicited events only hears of it too.
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
		// flags_rqpn of a datagram: the sender's number, that there is a GRH, and its kind: 1 is IPv6, 2 IPv4 of RoCE
		// v2.
		be.PutUint32(b[24:], f.SrcQP|1<<28|l3<<24)
		if f.Tagged { // rdma_cm looks for the address of a message in its VLAN
			b[29] |= 1
			be.PutUint16(b[30:], f.TCI)
		}
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
