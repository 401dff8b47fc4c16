// Package roce implements the RoCE transport of an emulated RDMA NIC, v1 and v2: packets with their invariant CRC,
// reliable and unreliable queue pairs, DCQCN, and a port that sends at the rate of a cable.
//
// The package is pure. It reads no clock, starts no goroutine and does no I/O: the caller tells a Port the time, the
// arriving frames and the doorbells, and the Port calls back for work requests, memory, completions and frames to
// send. The same calls give the same frames, so transport tests run on a virtual clock.
//
//	device                                  roce
//	NextSend, NextRecv  <-----------------  QP: requester, responder
//	Memory              <-----------------  QP: payload, keys, rights
//	Complete, Event     <-----------------  QP
//	QP.Doorbell         ----------------->  QP becomes ready to send
//	Port.Receive        ----------------->  frame from the wire to its QP
//	Port.Poll           ----------------->  timers, then frames to Wire; returns when to call again
//
// A Port and its QPs must not be used concurrently. Callbacks run inside these calls and must not call back.
//
// Chapters in comments refer to the InfiniBand Architecture Specification, volume 1. RoCE v1 is its annex A16, RoCE v2
// its annex A17.
package roce
