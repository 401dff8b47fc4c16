// Package roce is the RoCE v2 transport of an emulated RDMA NIC: packets with their invariant CRC, reliable and
// unreliable queue pairs, DCQCN, and a port that sends at the rate of a cable.
//
// The package is pure. It reads no clock, starts no goroutine and does no I/O: a Port is told the time, the frames
// that arrive and the doorbells that ring, and calls back for work requests, memory, completions and frames to send.
// The same calls give the same frames, so transport tests run on a virtual clock.
//
//	device                                  roce
//	NextSend, NextRecv  <-----------------  QP: requester, responder
//	Memory              <-----------------  QP: payload, keys, rights
//	Complete, Event     <-----------------  QP
//	QP.Doorbell         ----------------->  QP becomes ready to send
//	Port.Receive        ----------------->  frame from the wire to its QP
//	Port.Poll           ----------------->  timers, then frames to Wire; returns when to call again
//
// One goroutine at a time may use a Port and its QPs. Callbacks run inside these calls and must not call back.
//
// Chapters in comments are those of the InfiniBand Architecture Specification, volume 1. RoCE v2 is its annex A17.
package roce
