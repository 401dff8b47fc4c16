package texts

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

// word returns "PORT_ACTIVE" of "PORT_ACTIVE (4)".
func word(s string) string {
	before, _, _ := strings.Cut(s, " (")
	return strings.TrimSpace(before)
}

var portStates = map[string]string{"initializing": "INIT", "initialize": "INIT", "armed": "ARMED", "active": "ACTIVE",
	"down": "DOWN", "port_active": "ACTIVE", "port_down": "DOWN", "port_init": "INIT", "port_armed": "ARMED"}

func portState(s string) string { return cmp.Or(portStates[strings.ToLower(s)], strings.ToUpper(s)) }

// physState returns "LinkUp" for ibv_devinfo's "LINK_UP"; other tools print sysfs's name.
func physState(s string) string {
	if s != strings.ToUpper(s) {
		return s
	}
	out := ""
	for part := range strings.SplitSeq(strings.ToLower(s), "_") {
		if part != "" {
			out += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return out
}

// guid returns "946d:ae03:00cd:e72c" for "0x946dae0300cde72c".
func guid(s string) string {
	digits := strings.ReplaceAll(strings.TrimPrefix(s, "0x"), ":", "")
	if len(digits) != 16 {
		return ""
	}
	return fmt.Sprintf("%s:%s:%s:%s", digits[:4], digits[4:8], digits[8:12], digits[12:])
}

// gid returns sysfs's format: eight groups of four digits.
func gid(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return ""
	}
	b := a.As16()
	groups := make([]string, 8)
	for i := range groups {
		groups[i] = fmt.Sprintf("%02x%02x", b[2*i], b[2*i+1])
	}
	return strings.Join(groups, ":")
}

// lid returns nil for 0, no LID, and for 0xffff, the permissive LID before a subnet manager has found the port.
func lid(s string) *int {
	if n := count(s); n != nil && *n > 0 && *n < 0xffff {
		return n
	}
	return nil
}

// rate ignores the lowest rate on Ethernet, which ports report if their speed is unknown.
func rate(p *topology.RDMAPort, gbps float64) {
	if p.State != "DOWN" && gbps > 0 && gbps < 1e6 && !(p.LinkLayer == "Ethernet" && gbps <= 2.5) {
		p.RateGbps = &gbps
	}
}

var gidEntry = lazyregexp.New(`^GID\[ *(\d+)\]$`)

// A text may begin in the middle of a device.
var (
	hcaLine     = lazyregexp.New(`^hca_id:`)
	devinfoLine = lazyregexp.New(`^(?:hca_id|` + devinfoKeys + `):\s|` +
		`^transport:\s+(?:InfiniBand|iWARP|usNIC|unspecified)|^port:\s+\d+(?:$|\s+state:)|^state:\s+PORT_|^GID\[`)
	// devinfoInline matches a key after another, in a text without line breaks.
	devinfoInline = lazyregexp.New(`(\S)[ \t]+((?:transport|port|state|` + devinfoKeys + `):\s)`)
)

// nodeTypes maps transports to sysfs's node types. RoCE also has InfiniBand; EFA is unspecified.
var nodeTypes = map[string]string{"iWARP": "4: RNIC", "usNIC": "5: usNIC", "usNIC UDP": "6: usNIC UDP",
	"unspecified": "7: unspecified"}

const devinfoKeys = `fw_ver|node_guid|sys_image_guid|vendor_part_id|hw_ver|board_id|phys_port_cnt|(?:max|active)_mtu|` +
	`sm_lid|port_lid|port_lmc|link_layer|active_width|active_speed|phys_state`

// unfold breaks lines before each further key. It runs twice, because matches cannot overlap.
func (r *reader) unfold(inline func() *regexp.Regexp) {
	for range 2 {
		r.Text.Text = inline().ReplaceAllString(r.Text.Text, "$1\n$2")
	}
}

// piece returns the device on the command line, or an unnamed one, and a port, for a text that begins in the middle of
// a device; else no device. port is the prefix of lines with a port number.
func (r *reader) piece(names func() *regexp.Regexp, port string) (*topology.RDMADevice, *topology.RDMAPort) {
	begun, numbered := false, false
	for _, line := range r.lines() {
		if names().MatchString(line) {
			break
		}
		begun = begun || r.Kind.Form().MatchString(line)
		numbered = numbered || strings.HasPrefix(line, port)
	}
	if !begun {
		return nil, &topology.RDMAPort{}
	}
	name := r.Subject
	if name == "" {
		r.note(0, "which RDMA device this is, is not told: %s names it in its first line", r.Kind.Name)
		name = "unnamed"
	}
	if numbered {
		return rdma(r.nic(name), name, nil)
	}
	// The port's line was cut off; most devices have one port.
	return rdma(r.nic(name), name, new(1))
}

func (r *reader) ibvDevinfo() {
	// Facts of ports above the first port go into a dummy.
	r.unfold(devinfoInline)
	d, p := r.piece(hcaLine, "port:")
	width, speed := 0.0, 0.0
	for l := range r.pairs() {
		if l.key == "hca_id" && l.value != "" {
			d, _ = rdma(r.nic(l.value), l.value, nil)
			p = &topology.RDMAPort{}
			continue
		}
		if d == nil {
			continue
		}
		if m := gidEntry().FindStringSubmatch(l.key); m != nil {
			value, kind, _ := strings.Cut(l.value, ",")
			value, kind = gid(strings.TrimSpace(value)), strings.TrimSpace(kind)
			index := count(m[1])
			if value == "" || index == nil {
				r.note(l.line, "%q is not a GID", l.value)
			} else if strings.Trim(value, "0:") != "" && p.Number > 0 {
				p.GIDs = append(p.GIDs, topology.GID{Index: *index, GID: value, Type: gidType(kind)})
			}
			continue
		}
		switch l.key {
		case "fw_ver":
			d.Firmware = l.value
		case "transport":
			name, _, _ := strings.Cut(l.value, " (")
			d.NodeType = nodeTypes[name]
		case "node_guid":
			d.NodeGUID = guid(l.value)
		case "board_id":
			d.Board = l.value
		case "port":
			if n := count(l.value); n != nil && *n > 0 {
				_, p = rdma(r.nic(d.Name), d.Name, n)
				width, speed = 0, 0
			}
		// "active_width: 4X (2)" and "active_speed: 25.0 Gbps (32)": the speed is that of one lane.
		case "active_width", "active_speed":
			number, _, _ := strings.Cut(strings.ReplaceAll(l.value, "X", " "), " ")
			v, _ := strconv.ParseFloat(number, 64)
			if l.key == "active_width" {
				width = v
			} else {
				speed = v
			}
			rate(p, width*speed)
		default:
			r.portFact(p, l.line, l.key, word(l.value))
		}
	}
}

// portFact accepts spaces or underscores in keys.
func (r *reader) portFact(p *topology.RDMAPort, line int, key, value string) {
	switch strings.ReplaceAll(strings.ToLower(key), "_", " ") {
	case "state":
		p.State = portState(value)
	case "physical state", "phys state":
		p.PhysState = physState(value)
	case "active mtu":
		p.ActiveMTU = count(value)
	case "base lid", "port lid":
		p.LID = lid(value)
	case "rate":
		number, _, _ := strings.Cut(value, " ")
		if v, err := strconv.ParseFloat(number, 64); err == nil {
			rate(p, v)
		} else {
			r.note(line, "%q is not a rate", value)
		}
	case "link layer":
		// A rate that came before may mean unknown on this link layer.
		if p.LinkLayer = value; p.RateGbps != nil {
			v := *p.RateGbps
			p.RateGbps = nil
			rate(p, v)
		}
	}
}

func gidType(s string) string {
	switch s = strings.ToLower(s); {
	case strings.Contains(s, "v2"):
		return "RoCE v2"
	case strings.Contains(s, "v1"), s == "ib":
		return "IB/RoCE v1"
	}
	return ""
}

// The name has a colon if the text is for one port.
var (
	caLine     = lazyregexp.New(`^(?:CA|iWARP RNIC):? '([^']+)'`)
	ibstatLine = lazyregexp.New(`^(?:CA|iWARP RNIC):? '|^Port \d+:(?: +State:.*)?$|` +
		`^State: (?:Active|Down|Initializing|Armed|Polling)$|^Physical state: [A-Z]\w+$|^Rate: [\d.]+$|` +
		`^(?:Base|SM) lid: \d+$|^LMC: \d$|^Capability mask: 0x|^Port GUID: 0x|^Link layer: (?:InfiniBand|Ethernet)$`)
	ibstatInline = lazyregexp.New(`(\S)[ \t]+((?:CA type|Number of ports|(?:Firm|Hard)ware version|` +
		`(?:Node|System image|Port) GUID|Port \d+|State|Physical state|Rate|(?:Base|SM) lid|LMC|Capability mask|` +
		`Link layer):)`)
)

func (r *reader) ibstat() {
	r.unfold(ibstatInline)
	d, p := r.piece(caLine, "Port ")
	for n, line := range r.lines() {
		if m := caLine().FindStringSubmatch(line); m != nil {
			d, _ = rdma(r.nic(m[1]), m[1], nil)
			p = &topology.RDMAPort{}
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || d == nil {
			continue
		}
		if number, isPort := strings.CutPrefix(key, "Port "); isPort && value == "" {
			if i := count(number); i != nil && *i > 0 {
				_, p = rdma(r.nic(d.Name), d.Name, i)
			}
			continue
		}
		switch key {
		case "Firmware version":
			d.Firmware = value
		case "Node GUID":
			d.NodeGUID = guid(value)
		default:
			r.portFact(p, n, key, value)
		}
	}
}

func (r *reader) ibvDevices() {
	for _, line := range r.lines() {
		if f := strings.Fields(line); len(f) == 2 && guid(f[1]) != "" && !strings.HasPrefix(f[0], "-") {
			d, _ := rdma(r.nic(f[0]), f[0], nil)
			d.NodeGUID = guid(f[1])
		}
	}
}

var statusHead = lazyregexp.New(`^Infiniband device '([^']+)' port (\d+) status:`)

// ibstatus reads a state's name after its number: "4: ACTIVE".
func (r *reader) ibstatus() {
	var p *topology.RDMAPort
	for n, line := range r.lines() {
		if m := statusHead().FindStringSubmatch(line); m != nil {
			_, p = rdma(r.nic(m[1]), m[1], count(m[2]))
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || p == nil {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if _, state, numbered := strings.Cut(value, ": "); numbered && strings.HasSuffix(key, "state") {
			value = state
		}
		if g := gid(value); key == "default gid" && g != "" {
			p.GIDs = []topology.GID{{GID: g}}
		}
		r.portFact(p, n, key, value)
	}
}

// ibdevLine also matches the fields of -v.
var ibdevLine = lazyregexp.New(
	`^(?:((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) )?(\S+) (?:\(.*?(?: fw (\S+) )?)?` +
		`port (\d+) (?:\((\w+) *\) )?==> (\S+)(?: \((\w+) *\))?`)

// ibdev2netdev skips N/A, for no network device.
func (r *reader) ibdev2netdev() {
	for _, m := range r.matches(ibdevLine) {
		nic := r.nic(m[2])
		nic.Address = cmp.Or(address(m[1]), nic.Address)
		d, p := rdma(nic, m[2], count(m[4]))
		d.Firmware = cmp.Or(m[3], d.Firmware)
		p.State = portState(m[5])
		if m[6] != "N/A" && m[6] != "NA" {
			netdev(nic, m[6]).State = strings.ToLower(m[7])
		}
	}
}

var rdmaDevLine = lazyregexp.New(`^\d+: ([\w.-]+): (node_type .*)`)

func (r *reader) rdmaDev() {
	for _, value := range r.objects(rdmaDevLine) {
		d, _ := rdma(r.nic(value["ifname"]), value["ifname"], nil)
		d.Firmware, d.NodeGUID = value["fw"], guid(value["node_guid"])
	}
}

// objects reads iproute2's JSON objects, or lines with a device name, possibly a port number, and "key value key
// value". Objects without a name are skipped.
func (r *reader) objects(line func() *regexp.Regexp) (out []map[string]string) {
	var list []map[string]any
	if strings.HasPrefix(strings.TrimSpace(r.Text.Text), "[") {
		r.json(&list)
	}
	for _, object := range list {
		value := map[string]string{}
		for k, v := range object {
			value[k] = fmt.Sprint(v)
		}
		if value["ifname"] != "" {
			out = append(out, value)
		}
	}
	if list != nil {
		return out
	}
	for _, m := range r.matches(line) {
		value := map[string]string{"ifname": m[1]}
		if len(m) > 3 {
			value["port"] = m[2]
		}
		words := strings.Fields(m[len(m)-1])
		for i := 0; i+1 < len(words); i += 2 {
			value[words[i]] = words[i+1]
		}
		out = append(out, value)
	}
	return out
}

// iproute2 before version 5 numbers the devices.
var rdmaLine = lazyregexp.New(`^(?:link |\d+/\d+: )([\w.-]+)/(\d+):? (.*\bstate .*)`)

func (r *reader) rdmaLink() {
	for _, value := range r.objects(rdmaLine) {
		port := count(value["port"])
		if port == nil {
			continue
		}
		nic := r.nic(value["ifname"])
		_, p := rdma(nic, value["ifname"], port)
		p.State, p.PhysState = portState(value["state"]), physState(value["physical_state"])
		p.LID = lid(value["lid"])
		if name := value["netdev"]; name != "" {
			netdev(nic, name)
		}
	}
}

// gidLine matches device, port, index, GID, IPv4 address (if any), version, netdev.
var gidLine = lazyregexp.New(`^([\w.-]+)\s+(\d+)\s+(\d+)\s+([0-9a-fA-F:]{15,})\s+(?:[\d.]+\s+)?(v[12]|IB)?\s*(\S*)`)

func (r *reader) showGIDs() {
	for n, m := range r.matches(gidLine) {
		value, index, port := gid(m[4]), count(m[3]), count(m[2])
		if value == "" || index == nil || port == nil {
			r.note(n, "%q is not a GID", m[4])
			continue
		}
		nic := r.nic(m[1])
		_, p := rdma(nic, m[1], port)
		p.GIDs = append(p.GIDs, topology.GID{Index: *index, GID: value, Type: gidType(m[5]), Netdev: m[6]})
		if m[6] != "" {
			netdev(nic, m[6])
		}
	}
}
