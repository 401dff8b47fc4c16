// Package fabric is the software switch between the emulated NICs of a lab: a learning layer-2 switch in user space, on
// Linux (epoll, eventfd, timerfd). docs/fabric.md describes ports, their wire format and links.
//
// One goroutine, in a loop around epoll, moves the frames of all sockets, with one lock for a turn of the loop and one
// read buffer that stays in the CPU's cache. Other goroutines (control connections, captures) pass closures to the
// loop; a NIC of the same process (Plug) takes a turn itself. An idle port costs two file descriptors and no CPU time.
package fabric
