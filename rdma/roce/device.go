package roce

import "time"

// GID is an InfiniBand address. IPv4 is mapped: ::ffff:a.b.c.d.
type GID [16]byte

// Is4 reports whether the GID is an IPv4 address.
func (g *GID) Is4() bool { return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff} }

// Access is a set of rights that a key must grant.
type Access uint8

// LocalRead and the others are rights (11.2.8.2).
const (
	LocalRead Access = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	RemoteAtomic
)

// Fault is the reason why Memory refused an access.
type Fault uint8

// FaultKey and the others are "remote access error" for a peer, except FaultAddress, the device's own failure.
const (
	FaultKey     Fault = iota + 1 // unknown or invalidated key
	FaultDomain                   // another protection domain's key
	FaultRights                   // not granted by the key
	FaultRange                    // the access leaves the region
	FaultAlign                    // an atomic access is not aligned to 8 bytes
	FaultAddress                  // missing memory
	FaultPage                     // no page there, or one that does not grant the access
	FaultWait                     // likewise, until the page has been brought in: the access is to be tried again
)

var faultText = [...]string{"no fault", "no such key", "the key is of another protection domain",
	"the key does not grant the access", "the access leaves the region", "the address is not aligned to 8 bytes",
	"the region points to memory that is not there", "the page is absent or does not grant the access",
	"the page is not there yet"}

// Error implements error.
func (f Fault) Error() string { return "memory: " + name(faultText[:], int(f)) }

// Memory is the memory of a protection domain. Every error is a Fault. A peer chooses keys, addresses and lengths, so
// every call must check them, and that va+n does not wrap.
type Memory interface {
	// Check checks if all of the n bytes may be accessed; n is not 0.
	Check(key uint32, va, n uint64, a Access) error
	// Read and Write copy between a buffer and the memory.
	Read(key uint32, va uint64, dst []byte, a Access) error
	Write(key uint32, va uint64, src []byte, a Access) error
	// Atomic atomically replaces 8 bytes, a little-endian number, by the result of op.Apply, and returns the old
	// number.
	Atomic(key uint32, va uint64, op AtomicOp) (old uint64, err error)
	// Invalidate revokes a key, for this side or, if remote is set, for the peer (SEND with invalidate). A peer may
	// name any key, so it must refuse keys that do not allow this.
	Invalidate(key uint32, remote bool) error
	// Update changes a key for this side, in the device's form. It must change nothing if it fails.
	Update(key uint32, how []byte) Status
}

// AtomicOp is compare-and-swap or fetch-and-add.
type AtomicOp struct {
	Add           bool
	Operand, Want uint64 // addend, or new value if the old one equals Want
}

// Apply returns the new number for old.
func (a AtomicOp) Apply(old uint64) uint64 {
	switch {
	case a.Add:
		return old + a.Operand
	case old == a.Want:
		return a.Operand
	}
	return old
}

// SGE is an element of a list: Len bytes at VA of a key or, if Inline is set, of SendWR.Inline from offset VA on.
type SGE struct {
	Key, Len uint32
	VA       uint64
	Inline   bool
}

// WROp is the operation of a SendWR.
type WROp uint8

// Operations of send work requests.
const (
	WRNop WROp = iota // completes in order
	WRSend
	WRSendImm
	WRSendInv
	WRWrite
	WRWriteImm
	WRRead
	WRCmpSwap
	WRFetchAdd
	WRLocalInv // invalidates the local key Imm
	WRUpdate   // Memory.Update changes local key Imm as Inline says
)

func (o WROp) reads() bool   { return o == WRRead || o.atomic() }
func (o WROp) atomic() bool  { return o == WRCmpSwap || o == WRFetchAdd }
func (o WROp) remote() bool  { return o >= WRWrite && o <= WRFetchAdd }
func (o WROp) packets() bool { return o != WRNop && o < WRLocalInv }

// SendWR is a send work request. The QP reuses it: NextSend sets every field, and appends to SG[:0] and Inline[:0].
type SendWR struct {
	ID        uint64 // copied to the Completion
	Op        WROp
	Signaled  bool
	Solicited bool
	Fence     bool   // waits for earlier reads and atomics
	Last      bool   // waits for all earlier requests
	Imm       uint32 // immediate data, or the key to invalidate
	SG        []SGE
	Inline    []byte
	VA        uint64 // remote address
	RKey      uint32
	Atomic    AtomicOp
	To        Path   // UD and DC: the address handle
	QPN, QKey uint32 // UD and DC: the destination
	DCKey     uint64 // DC: of the target
	SRQ       uint32 // XRC: the receiver's queue
	Fail      Status // error that the device found in the request
}

// AckEvery is the usual number of packets of a message between requests for acknowledgement. A smaller one costs
// acknowledgements, with a larger one more messages wait for the timer after a loss. It is well below the default
// window, which would otherwise be exhausted before the first acknowledgement.
const AckEvery = 64

// RecvWR is a receive work request, filled in like a SendWR.
type RecvWR struct {
	ID  uint64
	SG  []SGE
	Mem Memory // of the shared queue's protection domain; nil means the QP's
	SRQ uint32 // XRC: the queue to take it from, set by the QP
}

// Path holds the headers of frames to a peer.
type Path struct {
	SrcMAC, DstMAC [6]byte
	Src, Dst       GID
	V1             bool // RoCE v1, without IP and UDP
	Tagged         bool
	VLAN           uint16 // VLAN id, if Tagged
	Prio           uint8  // 0 to 7: for PFC, and PCP of the tag
	TClass         uint8  // DSCP<<2; the port adds ECN
	AckTClass      uint8  // of acknowledgements; 0 means TClass
	HopLimit       uint8  // 0 means 64
	FlowLabel      uint32
	SrcPort        uint16 // UDP; 0 derives it from the QPs' numbers, from 0xc000
}

// Status is the result of a work request, as the syndrome in a ConnectX error CQE.
type Status uint8

// Statuses of completions (11.6.2).
const (
	OK              Status = 0
	LocalLength     Status = 0x01
	LocalQPOp       Status = 0x02
	LocalProtection Status = 0x04
	Flushed         Status = 0x05
	MemoryOp        Status = 0x06 // a key cannot be changed or invalidated
	BadResponse     Status = 0x10
	LocalAccess     Status = 0x11
	RemoteInvalid   Status = 0x12
	RemoteDenied    Status = 0x13
	RemoteOp        Status = 0x14
	RetryExceeded   Status = 0x15
	RNRExceeded     Status = 0x16
)

// Completion reports the end of a request.
type Completion struct {
	ID        uint64
	Recv      bool
	Op        WROp // of the sender, also for receives
	Status    Status
	Bytes     uint32 // receives, reads and atomics: stored bytes, including the 40 of the GRH for UD
	Imm       uint32 // immediate data, or the invalidated key
	Solicited bool
	SRQ       uint32  // XRC receives: the shared queue
	From      *Packet // UD receives: headers, valid during the call
}

// Event is an event of a QP apart from its requests.
type Event uint8

// Events of queue pairs (11.6.3).
const (
	EventCommEst     Event = iota + 1 // a packet came before the QP was ready to send
	EventAccessError                  // the peer violated the rights of a key: the QP is in error
	EventInvalid                      // the peer violated the protocol: the QP is in error
	EventFatal                        // a send failed: the QP is in error
	EventDrained                      // a draining send queue is empty
)

// Owner is the device's side of a QP.
type Owner interface {
	// NextSend takes the next posted send, and NextRecv the next receive. They return false if there are no more.
	NextSend(wr *SendWR) bool
	NextRecv(wr *RecvWR) bool
	// Complete is called for receives, signaled sends, and each failed or flushed request.
	Complete(c *Completion)
	Event(e Event)
}

// Wire sends frames without FCS, valid during the call.
type Wire interface {
	Send(now time.Duration, frame []byte)
}

// QPType is a transport service.
type QPType uint8

// Transport services.
const (
	RC QPType = iota
	UC
	UD
	GSI // UD that receives as QP 1
)

// QPConfig is the permanent configuration of a QP.
type QPConfig struct {
	Type  QPType
	QPN   uint32
	SrcQP uint32 // UD: replaces QPN in packets; GSI sends 1
	Owner Owner
	Mem   Memory
	// Shared means that receives come from a shared queue, and are not flushed.
	Shared bool
	// SharedBy makes an RC an XRC: requests name a shared queue of the receiver, whose memory they access. It returns
	// false if the QP may not use it.
	SharedBy func(srq uint32) (Memory, bool)
	// Dynamic makes an RC one of the two ends of dynamic connections.
	Dynamic  Dynamic
	DCKey    uint64    // of a target
	Counters *Counters // nil for a private set
}

// State is the state of a QP (10.3.1).
type State uint8

// Reset and the others have the firmware's numbers.
const (
	Reset State = iota
	Init
	ReadyToReceive
	ReadyToSend
	SendError
	SendDrain
	Failed
)

// Attr are the attributes for Modify, all used at each call. Codes are as in the QP context: AckTimeout, RNRTimer and
// limits come from the guest unchecked, and are limited at their use.
type Attr struct {
	Path       Path
	RemoteQPN  uint32
	PKey       uint16 // 0 means 0xffff
	QKey       uint32
	MTU        int    // payload of a packet: 256 to 4096
	Access     Access // remote rights that the QP grants
	RecvPSN    uint32 // used at ReadyToReceive
	SendPSN    uint32 // used at ReadyToSend from ReadyToReceive
	RNRTimer   uint8  // code of the delay that this side requests (9.7.5.2.8)
	RNRRetry   uint8  // 7 means forever
	Retry      uint8
	AckTimeout uint8 // 4.096 us << AckTimeout; 0 means never
	MaxReads   uint8 // outstanding reads and atomics of this side
	PeerReads  uint8 // maximum that this side accepts
	Window     int   // packets in flight; 0 means 256
	AckEvery   int   // 0 means the constant AckEvery
}

func name(list []string, i int) string {
	if i < 0 || i >= len(list) || list[i] == "" {
		return "unknown"
	}
	return list[i]
}

// Counters is a counter set (Q counters), as in hw_counters. QPs may share it. connectx shows its fields in 32 bits.
type Counters struct {
	RxWrites, RxReads, RxAtomics                            uint64
	OutOfBuffer, OutOfSequence, DuplicateRequest            uint64
	RNRNakRetryErr, PacketSeqErr, ImpliedNakSeqErr          uint64
	LocalAckTimeoutErr, AdpRetrans, SlowRestart             uint64
	RespLocalLengthError, RespCQEError, RespCQEFlushError   uint64
	RespRemoteAccessErrors                                  uint64
	ReqCQEError, ReqCQEFlushError, ReqRemoteInvalid         uint64
	ReqRemoteAccessErrors, ReqRNRExceeded, ReqRetryExceeded uint64
}

// Each calls f with each counter under its name in hw_counters, in a fixed order.
func (c *Counters) Each(f func(name string, v uint64)) {
	f("rx_write_requests", c.RxWrites)
	f("rx_read_requests", c.RxReads)
	f("rx_atomic_requests", c.RxAtomics)
	f("out_of_buffer", c.OutOfBuffer)
	f("out_of_sequence", c.OutOfSequence)
	f("duplicate_request", c.DuplicateRequest)
	f("rnr_nak_retry_err", c.RNRNakRetryErr)
	f("packet_seq_err", c.PacketSeqErr)
	f("implied_nak_seq_err", c.ImpliedNakSeqErr)
	f("local_ack_timeout_err", c.LocalAckTimeoutErr)
	f("resp_local_length_error", c.RespLocalLengthError)
	f("resp_cqe_error", c.RespCQEError)
	f("req_cqe_error", c.ReqCQEError)
	f("req_remote_invalid_request", c.ReqRemoteInvalid)
	f("req_remote_access_errors", c.ReqRemoteAccessErrors)
	f("resp_remote_access_errors", c.RespRemoteAccessErrors)
	f("resp_cqe_flush_error", c.RespCQEFlushError)
	f("req_cqe_flush_error", c.ReqCQEFlushError)
	f("roce_adp_retrans", c.AdpRetrans)
	f("roce_slow_restart", c.SlowRestart)
	f("req_rnr_retries_exceeded", c.ReqRNRExceeded)
	f("req_transport_retries_exceeded", c.ReqRetryExceeded)
}

// Traffic counts packets and bytes of frames without FCS.
type Traffic struct{ Packets, Bytes uint64 }

func (t *Traffic) add(n int) { t.Packets++; t.Bytes += uint64(n) }

// PortCounters are the counters of a port.
type PortCounters struct {
	// Rx and the others count RDMA packets like rx_vport_rdma_unicast_packets.
	Rx, Tx, RxMulticast, TxMulticast Traffic
	// TxPrio counts the port's frames by priority, RxPrio the RDMA packets that its QPs accepted.
	TxPrio, RxPrio [8]Traffic
	// RxPause counts obeyed pauses by priority (rx_prio3_pause), with those of the link under 0, RxTransitions their
	// ends, and PausedUS their microseconds (rx_prio3_pause_duration).
	RxPause, RxTransitions, PausedUS [8]uint64
	// RxControl counts MAC control frames, RxLinkPause pauses of the link among them.
	RxControl, RxLinkPause uint64
	// Dropped packets: with a wrong ICRC (rx_icrc_encapsulated), malformed or for an unknown QP, and sent to a full
	// queue.
	RxICRC, RxDropped, TxDropped uint64
	// BadQKey counts datagrams with another Q_Key than their QP's; they count as dropped too.
	BadQKey uint64
	// Congestion control, as in the port's hw_counters.
	ECNMarked, CNPSent, CNPHandled, CNPIgnored uint64
}
