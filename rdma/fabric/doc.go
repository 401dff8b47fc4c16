// Package fabric is the software switch between the emulated NICs of a lab: a learning layer-2 switch in user space
// to which QEMU attaches through unix stream sockets.
//
// # Ports
//
// A port is a listening unix stream socket that the switch creates with mode 0600. QEMU connects to it with
//
//	-netdev stream,id=n0,server=off,addr.type=unix,addr.path=PORT.sock
//
// In both directions each Ethernet frame (no preamble, no FCS) is preceded by its length in bytes as a 32-bit
// big-endian integer. A port has one connection, and a new connection replaces the old one: a QEMU that was killed
// and restarted must get its port even if the switch has not yet seen the end of the old stream, or if the old
// process hangs and never closes it. If two QEMUs have the same path by mistake, they push each other out, which the
// counter "replaced" and the log show.
//
// # One thread
//
// One goroutine, in a loop around epoll, moves the frames of all sockets. It takes one lock for a turn of the loop,
// and has one read buffer that stays in the CPU's cache for any number of ports. A read takes all waiting data of a
// sender, frames are parsed in place, and the frames for one receiver leave with one write from the read buffer. Only
// a receiver that does not keep up costs a third copy, into a bounded queue. An idle port costs two file descriptors
// and no CPU time: there is no timer before a link is impaired, and then it is armed only while something waits.
// Everything else (control connections, captures) runs in other goroutines and passes closures to the loop.
//
// NICs of the same process need no socket (Plug). A sending NIC takes a turn itself, between two turns of the loop:
// its frames are parsed in place and copied once, for the receiving NIC.
//
// # Links
//
// The path from the switch to a node can be impaired (Link), even while it is in use. A shaper then processes the
// frames between a read and the socket. It is a model without clock or sockets, so that its times can be tested
// exactly; the loop tells it the time and sends its output. A port without impairments has no shaper.
//
// The package needs Linux (epoll, eventfd, timerfd).
package fabric
