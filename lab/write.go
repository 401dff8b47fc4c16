package lab

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// YAML returns the lab as a lab file with every default written out and the reasons beside them. Parse gives the same
// Lab back. Addresses follow from the order of the nodes, so they are comments there, not keys.
func (l *Lab) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The lab %s with every default written out.\n", l.Name)
	fmt.Fprintf(&b, "name: %s\n", scalar(l.Name))
	fmt.Fprintf(&b, "driver: %s # %s\n", l.Driver, driverNote(l.Driver))
	fmt.Fprintf(&b, "workload: %s # placement and advice are weighted by it\n", l.Workload)
	fmt.Fprintf(&b, "fabric:\n")
	for _, line := range mtuNote(l.Fabric.MTU) {
		fmt.Fprintf(&b, "  # %s\n", line)
	}
	fmt.Fprintf(&b, "  mtu: %d\n", l.Fabric.MTU)
	fmt.Fprintf(&b, "  # The n-th node has the n-th address; eth1 is in the next subnet of this size, and so on.\n")
	fmt.Fprintf(&b, "  subnet: %s\n", l.Fabric.Subnet)
	fmt.Fprintf(&b, "nodes:\n")
	for _, n := range l.Nodes {
		fmt.Fprintf(&b, "  %s: {cpus: %d, memory: %s, image: %s, nics: %d, gpus: %d}",
			scalar(n.Name), n.CPUs, n.Memory, scalar(n.Image), len(n.NICs), n.GPUs)
		// One NIC fits beside the node, several get a line each.
		lead := " # "
		if len(n.NICs) > 1 {
			lead = "\n    # "
		}
		for _, nic := range n.NICs {
			fmt.Fprintf(&b, "%s%s %s %s", lead, nic.Name, nic.Addr, nic.MAC)
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

func driverNote(d Driver) string {
	switch d {
	case DriverQEMU:
		return "QEMU processes of rackless itself"
	case DriverLibvirt:
		return "libvirt domains"
	}
	return "decided when the lab comes up"
}

// mtuNote explains an MTU in terms of what it does to RDMA.
func mtuNote(mtu int) []string {
	payload := rdmaPayload(mtu)
	why := fmt.Sprintf("RDMA payloads are powers of two: with headers of up to %d bytes this MTU carries %d.", roceHeaders, payload)
	switch {
	case payload < 4096:
		return []string{why, fmt.Sprintf("The largest payload, 4096, needs %d; the default is %d.", 4096+roceHeaders, DefaultMTU)}
	case mtu > DefaultMTU:
		return []string{why, fmt.Sprintf("%d carries as much with smaller buffers.", DefaultMTU)}
	}
	return []string{why, "1500 would carry 1024, and 9000 no more than this."}
}

// scalar writes a text so that every reader of YAML takes it for a text: plain where that is safe, else quoted.
func scalar(s string) string {
	plain := s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	switch s {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null": // truth values and null in YAML 1.1 or 1.2
		plain = false
	}
	if plain {
		return s
	}
	// Go's escapes in a quoted string are all known to YAML's double quotes (section 5.7).
	return strconv.Quote(s)
}
