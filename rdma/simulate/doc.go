// Package simulate predicts congestion in a network of RDMA NICs in virtual time: at any rate, with thousands of
// ports, and twice the same.
//
// The NICs are those of package roce, which is the transport of the emulated adapters in a lab: queue pairs, go-back-N,
// DCQCN and pauses are the same code. Their frames end after the headers, because a simulation has no data. Links,
// switches and traffic are models of this package:
//
//	flow -> roce.Port -> link -> switch: buffer, PFC, route, ECN, scheduling -> link -> ... -> roce.Port
//
// Time is a number of nanoseconds that moves from event to event. The package reads no clock, and draws random numbers
// from the seed of the file only, so the same file gives the same result.
package simulate
