package bench

import "strconv"

// Traffic is the traffic of a test, as far as the limits of its path depend on it.
type Traffic struct {
	// Operation is "write", "read", "send" or "atomic", or "" if the headers are not known.
	Operation string
	Datagrams bool
	Immediate bool   // each message has immediate data
	Both      bool   // bandwidths are sums
	Pairs     int    // queue pairs; 0 means one
	GPU       string // that provides the memory; "" means main memory
	NIC       string // from 0; "" means the first
	Echo      int64  // bytes on the wire that come back as many; 0 if the test is no echo
	Copies    bool   // between a node's memory and its GPUs', over their PCIe links
}

// A Carrier is a Plugin that knows its traffic.
type Carrier interface {
	Traffic() Traffic
}

// Traffic knows nothing unless the engine's plugin is a Carrier.
func (e Engine) Traffic() Traffic {
	if c, ok := e.Plugin.(Carrier); ok {
		return c.Traffic()
	}
	return Traffic{}
}

// GPU returns the number of the GPU that provides memory; ok is false for main memory.
func (e Engine) GPU() (number string, ok bool) {
	t := e.Traffic()
	return t.GPU, t.GPU != ""
}

// NIC returns the number of each node's NIC; ok is false for the default, number 0.
func (e Engine) NIC() (number int, ok bool) {
	number, err := strconv.Atoi(e.Traffic().NIC)
	return number, err == nil
}

// Copies reports whether an engine measures copies between memory and GPUs.
func (e Engine) Copies() bool { return e.Traffic().Copies }
