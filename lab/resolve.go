package lab

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
)

// Parse reads a lab file. The name is only used in messages. What it returns is complete and valid: every default is
// filled in, counts are expanded, and addresses are handed out. The error is an [Errors].
func Parse(name string, data []byte) (*Lab, error) {
	s := &source{file: name}
	body := s.read(data)
	if body == nil {
		return nil, s.errs
	}
	d := newDecoder(s)
	f := d.document(body)
	// What concerns several keys at once is only checked where each of them is right.
	if len(d.errs) == 0 {
		if l := d.resolve(f); len(d.errs) == 0 {
			return l, nil
		}
	}
	d.errs.sort()
	return nil, d.errs
}

// resolve fills in the defaults, expands counts and hands out addresses.
func (d *decoder) resolve(f *file) *Lab {
	l := &Lab{
		Name:     f.Name,
		Driver:   or(f.Driver, nil, DefaultDriver),
		Workload: or(f.Workload, nil, DefaultWorkload),
		Fabric:   Fabric{MTU: DefaultMTU, Subnet: netip.MustParsePrefix(DefaultSubnet)},
	}
	if f.Fabric != nil {
		l.Fabric.MTU = or(f.Fabric.MTU, nil, l.Fabric.MTU)
		l.Fabric.Subnet = or(f.Fabric.Subnet, nil, l.Fabric.Subnet)
	}
	defaults := settings{}
	if f.Defaults != nil {
		defaults = *f.Defaults
	}
	if !d.checkTotal(f.Nodes) {
		return nil
	}
	from := make(map[string]string) // expanded name to the name in the file
	for _, n := range f.Nodes {
		for _, name := range n.expand() {
			if !d.checkExpanded(n.name, name, from) {
				break // one message for each entry of the file is enough
			}
			from[name] = n.name
			l.Nodes = append(l.Nodes, Node{
				Name:   name,
				CPUs:   or(n.node.CPUs, defaults.CPUs, DefaultCPUs),
				Memory: or(n.node.Memory, defaults.Memory, DefaultMemory),
				Image:  or(n.node.Image, defaults.Image, DefaultImage),
				NICs:   make([]NIC, or(n.node.NICs, defaults.NICs, DefaultNICs)),
				GPUs:   or(n.node.GPUs, defaults.GPUs, DefaultGPUs),
			})
		}
	}
	if len(d.errs) > 0 || !d.checkSubnet(l) {
		return nil
	}
	l.connect()
	return l
}

// or returns the first value that was written, or the fallback.
func or[T any](own, shared *T, fallback T) T {
	switch {
	case own != nil:
		return *own
	case shared != nil:
		return *shared
	}
	return fallback
}

// expand returns the names that an entry of the file stands for. Numbers have at least two digits, so that a lab
// that grows from 8 to 16 nodes keeps the names of the first eight.
func (n namedNode) expand() []string {
	if n.node.Count == nil {
		return []string{n.name}
	}
	count := *n.node.Count
	digits := max(2, len(strconv.Itoa(count-1)))
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s%0*d", n.name, digits, i)
	}
	return names
}

// checkTotal checks the number of nodes before they are made.
func (d *decoder) checkTotal(nodes fileNodeList) bool {
	total := 0
	for _, n := range nodes {
		total += or(n.node.Count, nil, 1)
		if total > MaxNodes {
			path := join("nodes", n.name)
			d.fail(d.keys[path], Error{Key: path, What: "too many nodes in the lab",
				Have: fmt.Sprintf("%d up to here", total), Want: fmt.Sprintf("at most %d", MaxNodes)})
			return false
		}
	}
	return true
}

// checkExpanded checks a node's final name, which comes from an entry of the file.
func (d *decoder) checkExpanded(entry, name string, from map[string]string) bool {
	path := join("nodes", entry)
	e := Error{Key: path}
	other, taken := from[name]
	switch {
	case taken:
		e.What, e.Have = "two nodes of one name", fmt.Sprintf("%s from %s (line %d) and from %s", quote(name), quote(other),
			d.keys[join("nodes", other)].line, quote(entry))
		e.Fix = "rename one of them"
	case len(name) > MaxName:
		e.What, e.Have = "node name with its number is too long", fmt.Sprintf("%s, %d characters", quote(name), len(name))
		e.Want = fmt.Sprintf("at most %d, because it becomes part of socket paths", MaxName)
	case name[len(name)-1] == '-':
		// It becomes the host name, and those end with a letter or digit (RFC 1123, section 2.1).
		e.What, e.Have, e.Want = "node name ends with a hyphen", quote(name), "a letter or digit at the end"
	default:
		return true
	}
	d.fail(d.keys[path], e)
	return false
}

// reserved lists what the fabric may not use: "this network", loopback, and multicast with everything above it
// (IANA IPv4 Special-Purpose Address Registry, RFC 6890).
func reserved() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	}
}

// checkSubnet checks that every NIC gets an address, and says with figures why not.
func (d *decoder) checkSubnet(l *Lab) bool {
	const path = "fabric.subnet"
	at, written := d.values[path]
	if !written {
		at = d.keys["nodes"] // the default is too small for these nodes
	}
	p := l.Fabric.Subnet
	host := 32 - p.Bits()
	capacity := 1<<host - 2 // all but the network's own address and broadcast
	if len(l.Nodes) > capacity {
		need := bits.Len(uint(len(l.Nodes) + 1)) // host bits, for the nodes and those two
		// Masked again: a shorter length frees bits that the written address may have set.
		wider := netip.PrefixFrom(p.Addr(), 32-need).Masked()
		d.fail(at, Error{Key: path, What: "subnet too small for the nodes",
			Have: fmt.Sprintf("%s with 2^%d - 2 = %d addresses", p, host, capacity),
			Want: fmt.Sprintf("%d, one for each node", len(l.Nodes)),
			Fix:  fmt.Sprintf("use %s or a larger one", wider)})
		return false
	}
	nics := 0
	for _, n := range l.Nodes {
		nics = max(nics, len(n.NICs))
	}
	for k := range nics {
		// Going up, the first bad subnet is met before the end of IPv4: multicast is in between.
		sub := nthSubnet(p, k)
		if !slices.ContainsFunc(reserved(), sub.Overlaps) {
			continue
		}
		e := Error{Key: path, What: "subnet cannot be used", Have: p.String(),
			Want: "unicast addresses outside 0.0.0.0/8 and 127.0.0.0/8", Fix: "use a private one, such as " + DefaultSubnet}
		if k > 0 {
			e.What = "no room for the subnets of all NICs"
			e.Have = fmt.Sprintf("%s and %d NICs: eth%d gets to %s", p, nics, k, sub)
		}
		d.fail(at, e)
		return false
	}
	return true
}

// nthSubnet returns the k-th subnet after p of the same size.
func nthSubnet(p netip.Prefix, k int) netip.Prefix {
	base := p.Addr().As4()
	return netip.PrefixFrom(addr4(binary.BigEndian.Uint32(base[:])+uint32(k)<<(32-p.Bits())), p.Bits())
}

func addr4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// connect names the NICs and hands out MAC and IP addresses. Both depend only on what comes before a node in the file:
// nodes that are appended change nothing for those that are there.
func (l *Lab) connect() {
	used := make(map[uint32]bool)
	for i := range l.Nodes {
		n := &l.Nodes[i]
		for k := range n.NICs {
			sub := nthSubnet(l.Fabric.Subnet, k)
			base := sub.Addr().As4()
			// The n-th node has the n-th address in every subnet, also where earlier nodes have fewer NICs: then
			// 10.0.0.7 and 10.0.1.7 are one machine.
			host := binary.BigEndian.Uint32(base[:]) + uint32(i) + 1
			n.NICs[k] = NIC{
				Name: "eth" + strconv.Itoa(k),
				MAC:  formatMAC(freeMAC(macHash(l.Name, n.Name, k), used)),
				Addr: netip.PrefixFrom(addr4(host), sub.Bits()),
			}
		}
	}
}

// macBits is what a MAC address has left behind the prefix 52:54:00. That is QEMU's and libvirt's customary prefix;
// its first byte has the "locally administered" bit set, so no vendor owns it.
const macBits = 24

// macHash maps a NIC to its preferred MAC suffix: the same lab has the same addresses on every machine and every day.
// SHA-256 not for secrecy, but because short names that differ in one digit must spread over all 24 bits.
func macHash(lab, node string, nic int) uint32 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", lab, node, nic)) // no name contains a slash
	return uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
}

// freeMAC takes the suffix, or the next one that is free.
func freeMAC(suffix uint32, used map[uint32]bool) uint32 {
	for used[suffix] { // ends: a lab has at most 4000 NICs of 16 million suffixes
		suffix = (suffix + 1) & (1<<macBits - 1)
	}
	used[suffix] = true
	return suffix
}

func formatMAC(suffix uint32) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", byte(suffix>>16), byte(suffix>>8), byte(suffix))
}
