package lab

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// Parse reads a lab file. name is for messages. The Lab is complete and valid; the error is an [Errors].
func Parse(name string, data []byte) (*Lab, error) {
	d := &decoder{compiled: map[string]*regexp.Regexp{}}
	d.Reader = strictyaml.New(d.format(), name)
	body := d.Read(data)
	if body == nil {
		return nil, d.Errs
	}
	f := d.document(body)
	// Checks that involve several keys run only if every single value is valid.
	if len(d.Errs) == 0 {
		l := d.resolve(f)
		if len(d.Errs) == 0 {
			d.checkWritten(l, len(data))
		}
		if len(d.Errs) == 0 {
			return l, nil
		}
	}
	d.Errs.Sort()
	return nil, d.Errs
}

func (d *decoder) resolve(f *file) *Lab {
	l := &Lab{
		Name:      f.Name,
		Driver:    or(f.Driver, nil, DefaultDriver),
		Workload:  or(f.Workload, nil, DefaultWorkload),
		Fabric:    Fabric{MTU: DefaultMTU, Subnet: netip.MustParsePrefix(DefaultSubnet)},
		Hugepages: or(f.Hugepages, nil, DefaultHugepages),
		Tenants:   or(f.Tenants, nil, DefaultTenants),
	}
	if f.Fabric != nil {
		l.Fabric.MTU = or(f.Fabric.MTU, nil, l.Fabric.MTU)
		l.Fabric.Subnet = or(f.Fabric.Subnet, nil, l.Fabric.Subnet)
	}
	if f.Host != nil && f.Host.Reserve != nil {
		l.Reserve = d.resolveReserve(f.Host.Reserve)
	}
	var defaults settings
	if f.Defaults != nil {
		defaults = *f.Defaults
	}
	// Before expansion, so that a rejected file takes no memory.
	if !d.checkTotal(f.Nodes) {
		return nil
	}
	from := make(map[string]string)       // name to name in the file
	expanded := make(map[string][]string) // the reverse
	owners := newOwners(d)
	for _, n := range f.Nodes {
		e := entry{decoder: d, path: strictyaml.Join("nodes", n.name), own: n.node.settings, shared: defaults}
		node := e.node()
		e.checkPages(l.Hugepages, node)
		e.checkFull(node)
		for _, name := range n.expand() {
			if !d.checkExpanded(n.name, name, from) {
				break // one fault per entry
			}
			from[name] = n.name
			expanded[n.name] = append(expanded[n.name], name)
			l.Nodes = append(l.Nodes, node.named(name))
		}
		owners.claim(&e, expanded[n.name])
	}
	// Conflicts are known only after all entries are expanded.
	owners.finish()
	if len(d.Errs) > 0 {
		return nil
	}
	l.Links = f.Links
	l.Arch = or(f.Arch, nil, "")
	if d.resolveTopology(f.Fabric, l, f.Nodes, from); len(d.Errs) > 0 {
		return nil
	}
	if or(f.Home, nil, HomeOwn) == HomeShared {
		l.Home = HomeShared
	}
	if l.Home == HomeShared && !slices.ContainsFunc(l.Nodes, Node.HasDisk) {
		d.Fail(d.Values["home"], Error{Key: "home", What: "no node has a /home", Have: string(l.Home),
			Fix: "write image: " + FullReleases()[0] + ", or leave home out"})
	}
	l.Slurm = d.resolveSlurm(f.Slurm, l)
	l.VSphere = f.VSphere
	d.checkVSphere(l)
	l.Affinity = d.resolveAffinity(f.Affinity, f.Nodes, l.Nodes, expanded)
	if !d.checkSubnet(l) {
		return nil
	}
	l.Connect()
	return l
}

type entry struct {
	*decoder
	path        string // nodes.NAME
	own, shared settings
}

func (e *entry) node() Node {
	o, s, p := &e.own, &e.shared, e.profile()
	cpus := or(o.CPUs, s.CPUs, orAuto[int]{value: p.CPUs})
	image := or(o.Image, s.Image, p.Image)
	enough := cmp.Or(p.Memory, DefaultMemory)
	if image != DefaultImage {
		enough = cmp.Or(p.Memory, DefaultFullMemory)
	}
	memory := or(o.Memory, s.Memory, orAuto[Bytes]{value: enough})
	gpus, nics, vfs := or(o.GPUs, s.GPUs, anyOf(DefaultGPUs)), e.nics(), e.vfs()
	if p.Name != "" {
		gpus, nics, vfs = fileRequests(p.GPUs), fileRequests(p.NICs), nil
	}
	e.checkPorts(nics.count(), vfs.count())
	e.checkBeside(gpus, nics.count()+vfs.count())
	n := Node{
		Profile: ProfileName(p.Name), CPUs: cpus.or(p.CPUs), AutoCPUs: cpus.auto,
		Memory: memory.or(enough), AutoMemory: memory.auto,
		Image: image, NIC: or(o.NIC, s.NIC, p.NIC),
		SMT: or(o.SMT, s.SMT, DefaultSetting), GuestNUMA: or(o.GuestNUMA, s.GuestNUMA, DefaultSetting),
		NICs: make([]NIC, nics.count()+vfs.count()), VFs: vfs.count(), GPUs: gpus.count(),
		Setup:       stepsOf(or(o.Setup, s.Setup, nil)),
		GPURequests: gpus.requests(), NICRequests: nics.requests(), VFRequests: vfs.requests(),
	}
	e.checkNUMA(n, gpus)
	e.checkPersonality(n, gpus)
	return n
}

func (e *entry) vfs() fileDevices { return or(e.own.VFs, e.shared.VFs, anyOf(DefaultVFs)) }

// nics defaults to 0 for a node with virtual functions, which has its ports already.
func (e *entry) nics() fileDevices {
	fallback := DefaultNICs
	if e.vfs().count() > 0 {
		fallback = 0
	}
	return or(e.own.NICs, e.shared.NICs, anyOf(fallback))
}

func anyOf(count int) fileDevices {
	if count == 0 {
		return nil
	}
	return fileDevices{{DeviceRequest: DeviceRequest{Count: count}}}
}

func (n Node) named(name string) Node {
	n.Name = name
	n.NICs, n.Setup = slices.Clone(n.NICs), slices.Clone(n.Setup)
	for _, requests := range []*[]DeviceRequest{&n.GPURequests, &n.NICRequests, &n.VFRequests} {
		own := slices.Clone(*requests)
		for i := range own {
			own[i] = own[i].clone()
		}
		*requests = own
	}
	return n
}

// written returns the place of the effective setting: the entry's own, or else the one in defaults, or else the entry.
func (e *entry) written(key string) (path string, at place) {
	for _, path := range []string{strictyaml.Join(e.path, key), strictyaml.Join("defaults", key)} {
		if at, ok := e.Values[path]; ok {
			return path, at
		}
	}
	return e.path, e.Keys[e.path]
}

func (e *entry) checkPorts(nics, vfs int) {
	if nics+vfs <= MaxNICs {
		return
	}
	key := "nics"
	if vfs > 0 {
		key = "vfs"
	}
	path, at := e.written(key)
	e.failOnce(at, Error{Key: path, What: "too many ports", Have: fmt.Sprintf("nics %d and vfs %d", nics, vfs),
		Want: fmt.Sprintf("at most %d together", MaxNICs)})
}

// checkBeside finds NICs that the node does not have.
func (e *entry) checkBeside(gpus fileDevices, ports int) {
	for _, r := range gpus {
		if n, err := strconv.Atoi(strings.TrimPrefix(r.Beside, "eth")); err == nil && n >= ports {
			path, _ := e.written("gpus")
			e.failOnce(r.at, Error{Key: strictyaml.Join(path, "beside"), What: "not a NIC of the node", Have: r.Beside,
				Want: fmt.Sprintf("one of its %s, counted from eth0", words.Count(ports, "NIC"))})
		}
	}
}

func (e *entry) checkPages(pages Hugepages, n Node) {
	page, fixed := map[Hugepages]Bytes{Hugepages1GiB: GiB, Hugepages2MiB: 2 * MiB}[pages]
	if !fixed || n.AutoMemory || n.Memory%page == 0 {
		return
	}
	path, at := e.written("memory")
	fault := Error{Key: path, What: "memory is not whole pages", Have: n.Memory.String(),
		Want: fmt.Sprintf("a multiple of %s, because hugepages is %s (line %d)", page, pages, e.Keys["hugepages"].Line)}
	if path == e.path {
		fault.Have += ", the default"
	}
	fault.Fix = fmt.Sprintf("write memory: %s", (n.Memory+page-1)/page*page)
	if pages == Hugepages1GiB && n.Memory%(2*MiB) == 0 {
		fault.Fix += ", or hugepages: 2MiB"
	}
	e.failOnce(at, fault)
}

// resolveReserve limits the sum of the NUMA nodes' cores to the total.
func (d *decoder) resolveReserve(f *fileReserve) Reserve {
	r := Reserve{Cores: f.Cores, Memory: f.Memory}
	cores := 0
	for _, n := range f.NUMA {
		r.NUMA = append(r.NUMA, NUMAReserve{Node: n.node, Cores: or(n.Cores, nil, 0), Memory: n.Memory})
		cores += or(n.Cores, nil, 0)
	}
	if f.Cores != nil && cores > *f.Cores {
		const path = "host.reserve.cores"
		d.Fail(d.Values[path], Error{Key: path, What: "less than its NUMA nodes keep",
			Have: fmt.Sprintf("%d, and %d on NUMA nodes (line %d)", *f.Cores, cores,
				d.Keys["host.reserve.numa_nodes"].Line),
			Fix: fmt.Sprintf("write at least %d, which counts all of them", cores)})
	}
	return r
}

// failOnce is for faults in defaults, which affect many nodes.
func (d *decoder) failOnce(at place, e Error) {
	if !slices.ContainsFunc(d.Errs, func(o *Error) bool {
		return o.What == e.What && o.Line == at.Line && o.Column == at.Column
	}) {
		d.Fail(at, e)
	}
}

func or[T any](own, shared *T, fallback T) T {
	switch {
	case own != nil:
		return *own
	case shared != nil:
		return *shared
	}
	return fallback
}

// expand uses at least two digits: a lab that grows from 8 to 16 nodes keeps the first names.
func (n namedNode) expand() []string {
	if n.node.Count == nil {
		return []string{n.name}
	}
	count := *n.node.Count
	// Names sort in the order of the nodes.
	digits := max(2, len(strconv.Itoa(count-1)))
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s%0*d", n.name, digits, i)
	}
	return names
}

func (d *decoder) checkTotal(nodes fileNodeList) bool {
	// At each entry, to name the first that exceeds the limit.
	total := 0
	for _, n := range nodes {
		total += or(n.node.Count, nil, 1)
		if total > MaxNodes {
			path := strictyaml.Join("nodes", n.name)
			d.Fail(d.Keys[path], Error{Key: path, What: "too many nodes in the lab",
				Have: fmt.Sprintf("%d up to here", total), Want: fmt.Sprintf("at most %d", MaxNodes)})
			return false
		}
	}
	return true
}

func (d *decoder) checkExpanded(entry, name string, from map[string]string) bool {
	path := strictyaml.Join("nodes", entry)
	e := Error{Key: path}
	other, taken := from[name]
	switch {
	case taken:
		e.What, e.Fix = "two nodes of one name", "rename one of them"
		e.Have = fmt.Sprintf("%s from %s (line %d) and from %s", strictyaml.Quote(name), strictyaml.Quote(other),
			d.Keys[strictyaml.Join("nodes", other)].Line, strictyaml.Quote(entry))
	case len(name) > MaxName:
		e.What = "node name with its number is too long"
		e.Have = fmt.Sprintf("%s, %d characters", strictyaml.Quote(name), len(name))
		e.Want = fmt.Sprintf("at most %d, because it becomes part of socket paths", MaxName)
	case name[len(name)-1] == '-':
		// A host name must end with a letter or digit (RFC 1123, section 2.1).
		e.What, e.Have, e.Want = "node name ends with a hyphen", strictyaml.Quote(name), "a letter or digit at the end"
	default:
		return true
	}
	d.Fail(d.Keys[path], e)
	return false
}

// checkWritten rejects a lab with a YAML form that Parse would reject. size is the file's in bytes; with it, usual labs
// can be accepted without formatting them.
func (d *decoder) checkWritten(l *Lab, size int) {
	// Each node adds at most 64 tokens to the file's own, and an affinity at most two for each node and byte. The text
	// is also far below MaxFileSize.
	if 2*len(l.Nodes)*(size+64) < maxTokens {
		return
	}
	text := l.YAML()
	have, want := fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d", MaxFileSize)
	if len(text) <= MaxFileSize {
		// A token is a mark or a text between two. An exact count takes as long as everything else in Parse.
		marks := lists.Count(text, func(c byte) bool { return strings.IndexByte("{}[],:#\n", c) >= 0 })
		if 2*marks < maxTokens {
			return
		}
		tokens, err := strictyaml.Tokenize(string(text))
		if err == nil && len(tokens) <= maxTokens {
			return
		}
		have, want = fmt.Sprintf("%d keys, values and marks", len(tokens)), fmt.Sprintf("at most %d", maxTokens)
	}
	d.Fail(d.Keys["nodes"], Error{Key: "nodes", What: "lab too large when its counts are written out", Have: have,
		Want: want, Fix: "ask for devices by count rather than by many selectors, or use fewer nodes"})
}

// reserved prefixes: "this network", loopback, and multicast with everything above it (IANA IPv4 Special-Purpose
// Address Registry, RFC 6890).
func reserved() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/3"),
	}
}

func (d *decoder) checkSubnet(l *Lab) bool {
	const path = "fabric.subnet"
	at, written := d.Values[path]
	if !written {
		at = d.Keys["nodes"] // the default is too small
	}
	p := l.Fabric.Subnet
	host := 32 - p.Bits()
	capacity := 1<<host - 2 // without network and broadcast addresses
	if len(l.Nodes) > capacity {
		need := bits.Len(uint(len(l.Nodes) + 1)) // for the nodes and these two addresses
		// A shorter prefix turns set bits of the address into host bits.
		wider := netip.PrefixFrom(p.Addr(), 32-need).Masked()
		d.Fail(at, Error{Key: path, What: "subnet too small for the nodes", Have: fmt.Sprintf("%s with 2^%d - 2 = "+
			"%d addresses", p, host, capacity), Want: fmt.Sprintf("%d, one for each node", len(l.Nodes)),
			Fix: fmt.Sprintf("use %s or a larger one", wider)})
		return false
	}
	nics := lists.Max(l.Nodes, func(n Node) int { return len(n.NICs) })
	for k := range nics {
		// Multicast addresses stop the loop before the end of IPv4.
		sub := nthSubnet(p, k)
		if !slices.ContainsFunc(reserved(), sub.Overlaps) {
			continue
		}
		e := Error{Key: path, What: "subnet cannot be used", Have: p.String(), Want: "unicast addresses outside " +
			"0.0.0.0/8 and 127.0.0.0/8", Fix: "use a private one, such as " + DefaultSubnet}
		if k > 0 {
			e.What = "no room for the subnets of all NICs"
			e.Have = fmt.Sprintf("%s and %d NICs: eth%d gets to %s", p, nics, k, sub)
		}
		d.Fail(at, e)
		return false
	}
	return true
}

func nthSubnet(p netip.Prefix, k int) netip.Prefix {
	base := p.Addr().As4()
	return netip.PrefixFrom(addr4(binary.BigEndian.Uint32(base[:])+uint32(k)<<(32-p.Bits())), p.Bits())
}

func addr4(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// Connect names the NICs and assigns MAC and IP addresses, which depend only on earlier nodes in the file.
func (l *Lab) Connect() {
	// Two NICs with one MAC on one switch would take each other's frames.
	used := make(map[string]bool)
	for i := range l.Nodes {
		n := &l.Nodes[i]
		for k := range n.NICs {
			sub := nthSubnet(l.Fabric.Subnet, k)
			base := sub.Addr().As4()
			// 10.0.0.7 and 10.0.1.7 are always the same machine.
			host := binary.BigEndian.Uint32(base[:]) + uint32(i) + 1
			n.NICs[k] = NIC{
				Name: "eth" + strconv.Itoa(k),
				MAC:  FreeMAC(l.Name, n.Name, k, used),
				Addr: netip.PrefixFrom(addr4(host), sub.Bits()),
			}
		}
	}
}

// FreeMAC returns an unused MAC address, and adds it to used: 52:54:00, the prefix of QEMU and libvirt (its "locally
// administered" bit is set), and three bytes of a hash. So the same lab has the same addresses on every machine.
//
// Short names that differ in one digit must spread over all 24 bits, as with SHA-256.
func FreeMAC(lab, node string, nic int, used map[string]bool) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", lab, node, nic)) // names contain no slash
	n := uint32(sum[0])<<16 | uint32(sum[1])<<8 | uint32(sum[2])
	for ; ; n++ { // a lab has at most 8000 NICs, of 16 million suffixes
		if mac := fmt.Sprintf("52:54:00:%02x:%02x:%02x", byte(n>>16), byte(n>>8), byte(n)); !used[mac] {
			used[mac] = true
			return mac
		}
	}
}
