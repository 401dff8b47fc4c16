package bench

import "strconv"

// Traffic is the traffic of a test, as far as the limits of its path depend on it.
type Traffic struct {
	// Operation is the RDMA operation that a bandwidth is of: "write", "read", "send" or "atomic". It is "" if the
	// headers of messages are not known.
	Operation string
	Datagrams bool   // each message is a datagram (UD)
	Immediate bool   // each message has immediate data
	Both      bool   // both sides send: bandwidths are sums
	Pairs     int    // queue pairs; 0 means one
	GPU       string // number of the GPU that provides the memory; "" means main memory
	NIC       string // number of the node's NIC that carries it, from 0; "" means the first
	Echo      int64  // bytes on the wire that come back as many; 0 if the test is no echo
	Copies    bool   // between a node's memory and its GPUs', over their PCIe links
}

// A Carrier is a Plugin that knows its traffic.
type Carrier interface {
	Traffic() Traffic
}

// Traffic returns the traffic of an engine; nothing is known about it unless its plugin is a Carrier.
func (e Engine) Traffic() Traffic {
	if c, ok := e.Plugin.(Carrier); ok {
		return c.Traffic()
	}
	return Traffic{}
}

// GPU returns the number of the GPU that provides a test's memory; ok is false if the test uses main memory.
func (e Engine) GPU() (number string, ok bool) {
	t := e.Traffic()
	return t.GPU, t.GPU != ""
}

// NIC returns the number of the NIC of each node that carries a test's traffic; ok is false if the test names none and
// takes the first, number 0.
func (e Engine) NIC() (number int, ok bool) {
	number, err := strconv.Atoi(e.Traffic().NIC)
	return number, err == nil
}

// Copies reports whether an engine measures copies between a node's memory and its GPUs over their PCIe links.
func (e Engine) Copies() bool { return e.Traffic().Copies }
