// Package roce implements the RoCE transport of an emulated RDMA NIC, v1 and v2. It is pure: the caller tells a Port
// the time, and the Port calls back. The same calls give the same frames.
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
// Chapters refer to the InfiniBand Architecture Specification, volume 1, with annexes A16 (RoCE v1) and A17 (v2).
package roce
