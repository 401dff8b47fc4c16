package roce

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
