package roce

// Opcode is the operation of a packet: 3 bits of transport service and 5 of operation (9.2, table 35).
type Opcode uint8

// Operations, the low five bits of an Opcode.
const (
	opSendFirst Opcode = iota
	opSendMiddle
	opSendLast
	opSendLastImm
	opSendOnly
	opSendOnlyImm
	opWriteFirst
	opWriteMiddle
	opWriteLast
	opWriteLastImm
	opWriteOnly
	opWriteOnlyImm
	opReadRequest
	opReadFirst
	opReadMiddle
	opReadLast
	opReadOnly
	opAck
	opAtomicAck
	opCmpSwap
	opFetchAdd
	_
	opSendLastInv
	opSendOnlyInv
	opCount
)

// Transport services, the high three bits, and the one opcode of RoCE v2's own.
const (
	serviceRC Opcode = 0 << 5
	serviceUC Opcode = 1 << 5
	serviceUD Opcode = 3 << 5
	opCNP     Opcode = 0x81 // annex A17.9.3
)

// header is a set of extended headers. The first seven are headers, in the order of headerSizes; the rest says what the
// packet does.
type header uint16

const (
	hRETH header = 1 << iota
	hAETH
	hAtomic
	hAtomicAck
	hImm
	hIETH
	hDETH
	hFirst   // begins a message
	hLast    // ends one
	hPayload // carries data
	hSend
	hWrite
	hRead // a read response
	hCNP
)

// headerSizes are those of hRETH to hDETH, in the order in which packets carry them after DETH.
var headerSizes = [...]int{16, 4, 28, 8, 4, 4, 8}

// opInfo says what packets of an opcode look like; 0: there is no such packet. UC has the opcodes of RC up to RDMA
// WRITE, UD only whole SENDs with a DETH (table 35).
var opInfo = func() (t [256]header) {
	rc := [opCount]header{
		opSendFirst:    hSend | hFirst | hPayload,
		opSendMiddle:   hSend | hPayload,
		opSendLast:     hSend | hLast | hPayload,
		opSendLastImm:  hSend | hLast | hPayload | hImm,
		opSendOnly:     hSend | hFirst | hLast | hPayload,
		opSendOnlyImm:  hSend | hFirst | hLast | hPayload | hImm,
		opWriteFirst:   hWrite | hFirst | hPayload | hRETH,
		opWriteMiddle:  hWrite | hPayload,
		opWriteLast:    hWrite | hLast | hPayload,
		opWriteLastImm: hWrite | hLast | hPayload | hImm,
		opWriteOnly:    hWrite | hFirst | hLast | hPayload | hRETH,
		opWriteOnlyImm: hWrite | hFirst | hLast | hPayload | hRETH | hImm,
		opReadRequest:  hFirst | hLast | hRETH,
		opReadFirst:    hRead | hFirst | hPayload | hAETH,
		opReadMiddle:   hRead | hPayload,
		opReadLast:     hRead | hLast | hPayload | hAETH,
		opReadOnly:     hRead | hFirst | hLast | hPayload | hAETH,
		opAck:          hAETH,
		opAtomicAck:    hAETH | hAtomicAck,
		opCmpSwap:      hFirst | hLast | hAtomic,
		opFetchAdd:     hFirst | hLast | hAtomic,
		opSendLastInv:  hSend | hLast | hPayload | hIETH,
		opSendOnlyInv:  hSend | hFirst | hLast | hPayload | hIETH,
	}
	for i, h := range rc {
		t[serviceRC|Opcode(i)] = h
		if Opcode(i) <= opWriteOnlyImm {
			t[serviceUC|Opcode(i)] = h
		}
	}
	t[serviceUD|opSendOnly] = rc[opSendOnly] | hDETH
	t[serviceUD|opSendOnlyImm] = rc[opSendOnlyImm] | hDETH
	t[opCNP] = hCNP | hPayload
	return t
}()

// psnMask holds a packet sequence number, and the other numbers of 24 bits.
const psnMask = 1<<24 - 1

// psnDiff is how far a is after b; negative where it is before. Half the numbers lie on each side (9.7.2). Numbers wrap
// at 2^24, so that they are compared by their difference, moved to the top of a signed word.
func psnDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
