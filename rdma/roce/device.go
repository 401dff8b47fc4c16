package roce

import "time"

// GID is an InfiniBand address. IPv4 addresses are mapped: ::ffff:a.b.c.d.
type GID [16]byte

// Is4 says whether the GID holds an IPv4 address.
func (g *GID) Is4() bool { return [12]byte(g[:12]) == [12]byte{10: 0xff, 11: 0xff} }

// Access is a set of rights that a key must grant.
type Access uint8

// Rights of keys and of queue pairs (11.2.8.2).
const (
	LocalRead Access = 1 << iota
	LocalWrite
	RemoteRead
	RemoteWrite
	RemoteAtomic
)

// Fault is why Memory refused an access.
type Fault uint8

// Faults of Memory. A peer hears "remote access error" of all but FaultAddress, which is the device's own failure.
const (
	FaultKey     Fault = iota + 1 // no such key, or it was invalidated
	FaultDomain                   // the key belongs to another protection domain
	FaultRights                   // the key does not grant the access
	FaultRange                    // the access leaves the region
	FaultAlign                    // an atomic access is not aligned to 8 bytes
	FaultAddress                  // the region points to memory that is not there
)

var faultText = [...]string{"no fault", "no such key", "the key is of another protection domain",
	"the key does not grant the access", "the access leaves the region", "the address is not aligned to 8 bytes",
	"the region points to memory that is not there"}

// Error implements error.
func (f Fault) Error() string { return "memory: " + name(faultText[:], int(f)) }

// Memory is what one protection domain can reach. Each error is a Fault. A peer chooses keys, addresses and lengths:
// the implementation checks all of them on every call, and that va+n does not wrap.
type Memory interface {
	// Check says whether all of the n bytes at va may be accessed through key; n is not 0.
	Check(key uint32, va, n uint64, a Access) error
	// Read and Write copy between a buffer and the len bytes at va.
	Read(key uint32, va uint64, dst []byte, a Access) error
	Write(key uint32, va uint64, src []byte, a Access) error
	// Atomic replaces the 8 bytes at va, a little-endian number, by op.Apply of it, in one step, and returns the old.
	Atomic(key uint32, va uint64, op AtomicOp) (old uint64, err error)
	// Invalidate revokes a key, for a request of this side or, remote, of the peer (SEND with invalidate). A peer may
	// ask for any: it refuses those that are not made for it.
	Invalidate(key uint32, remote bool) error
}

// AtomicOp is compare-and-swap or fetch-and-add.
type AtomicOp struct {
	Add           bool
	Operand, Want uint64 // the addend, or the value to store where Want is found
}

// Apply returns the number that replaces old.
func (a AtomicOp) Apply(old uint64) uint64 {
	switch {
	case a.Add:
		return old + a.Operand
	case old == a.Want:
		return a.Operand
	}
	return old
}

// SGE is an element of a scatter or gather list: Len bytes at VA of a key, or, if Inline is set, Len bytes of
// SendWR.Inline from offset VA on.
type SGE struct {
	Key, Len uint32
	VA       uint64
	Inline   bool
}

// WROp is what a send work request does.
type WROp uint8

// Operations of send work requests.
const (
	WRNop WROp = iota // completes in its turn; the device has done what there was to do
	WRSend
	WRSendImm
	WRSendInv
	WRWrite
	WRWriteImm
	WRRead
	WRCmpSwap
	WRFetchAdd
	WRLocalInv // invalidates Imm here
)

func (o WROp) reads() bool   { return o == WRRead || o.atomic() }
func (o WROp) atomic() bool  { return o == WRCmpSwap || o == WRFetchAdd }
func (o WROp) remote() bool  { return o >= WRWrite && o <= WRFetchAdd }
func (o WROp) packets() bool { return o != WRNop && o < WRLocalInv }

// SendWR is a send work request. The QP owns the struct and reuses it: NextSend sets every field, and appends to
// SG[:0] and Inline[:0].
type SendWR struct {
	ID        uint64 // given back in the Completion
	Op        WROp
	Signaled  bool // a success is completed too
	Solicited bool
	Fence     bool   // waits for the reads and atomics before it
	Imm       uint32 // immediate data; the key to invalidate
	SG        []SGE
	Inline    []byte // the data of the elements of SG that are in line
	VA        uint64 // remote address
	RKey      uint32
	Atomic    AtomicOp
	To        Path   // UD: the address handle
	QPN, QKey uint32 // UD: the destination
	Fail      Status // what the device found wrong with the request already
}

// AckEvery is after how many packets of a message an acknowledgement is asked for, besides at its end. A smaller number
// costs acknowledgements, a larger one lets more wait for the timer after a loss. It is well below the default window,
// or the window would be empty before the first acknowledgement.
const AckEvery = 64

// RecvWR is a receive work request, filled as a SendWR is.
type RecvWR struct {
	ID  uint64
	SG  []SGE
	Mem Memory // of the shared receive queue's protection domain; nil: the QP's
}

// Path is what frames to a peer carry in their headers.
type Path struct {
	SrcMAC, DstMAC [6]byte
	Src, Dst       GID
	Tagged         bool
	VLAN           uint16 // VLAN id, where Tagged
	Prio           uint8  // 0 to 7: of PFC, and the tag's PCP
	TClass         uint8  // DSCP<<2; the port adds ECN
	HopLimit       uint8  // 0 means 64
	FlowLabel      uint32
	SrcPort        uint16 // UDP; 0: chosen by the numbers of the two QPs, from 0xc000
}

// Status is the result of a work request. The values are those of the syndrome in a ConnectX error CQE.
type Status uint8

// Statuses of completions (11.6.2).
const (
	OK              Status = 0
	LocalLength     Status = 0x01
	LocalQPOp       Status = 0x02
	LocalProtection Status = 0x04
	Flushed         Status = 0x05
	BadResponse     Status = 0x10
	LocalAccess     Status = 0x11
	RemoteInvalid   Status = 0x12
	RemoteDenied    Status = 0x13
	RemoteOp        Status = 0x14
	RetryExceeded   Status = 0x15
	RNRExceeded     Status = 0x16
)

// Completion is the end of a work request.
type Completion struct {
	ID        uint64
	Recv      bool
	Op        WROp // of the sender, for receives too
	Status    Status
	Bytes     uint32 // receives, reads and atomics: bytes stored; with the 40 of the GRH for UD
	Imm       uint32 // immediate data, or the key that was invalidated
	Solicited bool
	From      *Packet // UD receives: headers of the packet, valid during the call
}

// Event is what happens to a QP apart from its work requests.
type Event uint8

// Events of queue pairs (11.6.3).
const (
	EventCommEst     Event = iota + 1 // a packet arrived before the QP was ready to send
	EventAccessError                  // the peer broke the rights of a key: the QP is in error
	EventInvalid                      // the peer broke the protocol: the QP is in error
	EventFatal                        // a send failed: the QP is in error
	EventDrained                      // a send queue that drains is empty
)

// Owner is the device's side of a QP.
type Owner interface {
	// NextSend takes the next posted send request, NextRecv the next receive; false if there is none.
	NextSend(wr *SendWR) bool
	NextRecv(wr *RecvWR) bool
	// Complete is called for receives, for signaled sends, and for each failed or flushed request.
	Complete(c *Completion)
	Event(e Event)
}

// Wire takes the frames of a port, without FCS. The frame is valid during the call.
type Wire interface {
	Send(now time.Duration, frame []byte)
}

// QPType is the transport service of a queue pair.
type QPType uint8

// Transport services.
const (
	RC QPType = iota
	UC
	UD
	GSI // UD that receives as QP 1
)

// QPConfig is what a QP keeps for life.
type QPConfig struct {
	Type  QPType
	QPN   uint32
	SrcQP uint32 // UD: in place of QPN in sent packets; GSI sends 1
	Owner Owner
	Mem   Memory
	// Shared says that receives come from a shared queue: they are not flushed.
	Shared   bool
	Counters *Counters // of the QP's counter set; nil: nobody asks
}

// State is the state of a QP (10.3.1).
type State uint8

// States, as the firmware numbers them.
const (
	Reset State = iota
	Init
	ReadyToReceive
	ReadyToSend
	SendError
	SendDrain
	Failed
)

// Attr are the attributes that Modify takes over. All count at each call, so pass the whole of them. The codes are
// those of the QP context: AckTimeout, RNRTimer and the limits come from the guest as they are, and are bounded where
// they are used.
type Attr struct {
	Path       Path
	RemoteQPN  uint32
	PKey       uint16 // 0 means 0xffff
	QKey       uint32
	MTU        int    // payload of a packet: 256 to 4096
	Access     Access // of the remote rights, those that the QP grants
	RecvPSN    uint32 // taken over at ReadyToReceive
	SendPSN    uint32 // taken over at ReadyToSend from ReadyToReceive
	RNRTimer   uint8  // code of the delay that this side asks for (9.7.5.2.8)
	RNRRetry   uint8  // 7: for ever
	Retry      uint8
	AckTimeout uint8 // 4.096 us << AckTimeout; 0: never
	MaxReads   uint8 // reads and atomics that this side may have outstanding
	PeerReads  uint8 // and that it accepts
	Window     int   // packets in flight; 0: 256
}

// name is list[i], or a text that says that i has no name.
func name(list []string, i int) string {
	if i < 0 || i >= len(list) || list[i] == "" {
		return "unknown"
	}
	return list[i]
}

// Counters are those of a counter set (Q counters), with the meaning that hw_counters gives them. A counter set belongs
// to the device, and may be shared by QPs. connectx shows its fields in 32 bits.
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

// PortCounters are those of a port.
type PortCounters struct {
	// RDMA packets, as rx_vport_rdma_unicast_packets and its kin count them.
	Rx, Tx, RxMulticast, TxMulticast Traffic
	// By priority: what the port sent, and the RDMA packets that its QPs took.
	TxPrio, RxPrio [8]Traffic
	// By priority, those of the link with 0: pauses that the port obeyed (rx_prio3_pause), how often it went on after
	// one, and how long they lasted, in microseconds (rx_prio3_pause_duration).
	RxPause, RxTransitions, PausedUS [8]uint64
	// Frames of MAC control, and pauses of the link among them.
	RxControl, RxLinkPause uint64
	// Dropped packets: ICRC wrong (rx_icrc_encapsulated), malformed or for no QP, and sent while the queue was full.
	RxICRC, RxDropped, TxDropped uint64
	// Congestion control: hw_counters have them for the port.
	ECNMarked, CNPSent, CNPHandled, CNPIgnored uint64
}
