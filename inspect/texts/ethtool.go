package texts

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/topology"
)

// subjectDevice is the network device that the first line names ("Features for eth0:"), else the command line.
func (r *reader) subjectDevice(head string) *topology.Netdev {
	name := r.Subject
	for _, line := range r.lines() {
		if _, rest, ok := strings.Cut(line, head); ok {
			name = strings.TrimSuffix(rest, ":")
		}
		if line != "" {
			break
		}
	}
	if name == "" {
		r.note(0, "which network device this is, is not told: %s NETDEV names it above its text", r.Kind.Name)
		name = "unnamed"
	}
	return netdev(r.nic(name), name)
}

// offloads are those that matter for throughput, in the words of ethtool -k.
var offloads = []string{"rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
	"generic-segmentation-offload", "generic-receive-offload", "large-receive-offload", "rx-gro-hw", "receive-hashing",
	"ntuple-filters", "hw-tc-offload", "tx-udp-segmentation", "tls-hw-tx-offload", "tls-hw-rx-offload"}

// ethtoolFeatures reads which offloads are on.
func (r *reader) ethtoolFeatures() {
	d := r.subjectDevice("s for ") // "Features", once "Offload parameters"
	for p := range r.pairs() {
		// A value may have a remark: "off [fixed]", "on [requested off]".
		if word, _, _ := strings.Cut(p.value, " "); slices.Contains(offloads, p.key) &&
			(word == "on" || word == "off") {
			lists.Put(&d.Offloads, p.key, word == "on")
		}
	}
}

// ethtoolRings reads how many descriptors the rings have: a block of the most that they can have, and one of now. Both
// blocks have the same keys, so the heading "Current hardware settings:" is what tells them apart.
func (r *reader) ethtoolRings() {
	d := r.subjectDevice("Ring parameters for ")
	now := false
	for p := range r.pairs() {
		name := strings.ToLower(p.key)
		n := count(p.value)
		if strings.Contains(p.key, " parameters for ") && !strings.HasPrefix(p.key, "Ring") {
			return // what ethtool -l or -c prints below it has the same keys
		}
		if now = now || strings.HasPrefix(p.key, "Current hardware"); n == nil || name != "rx" && name != "tx" {
			continue
		}
		ring := d.Rings[name]
		if now {
			ring.Size = *n
		} else {
			ring.Max = *n
		}
		lists.Put(&d.Rings, name, ring)
	}
}

// ethtoolCounters reads the counters of errors and discards that are not 0. Counters of ordinary traffic are left out:
// they say nothing about a fault and differ at each reading.
func (r *reader) ethtoolCounters() {
	d := r.subjectDevice("NIC statistics for ")
	for p := range r.pairs() {
		trouble(&d.Counters, p.key, p.value)
	}
}

// trouble enters a counter of errors or discards that is not 0.
func trouble(counters *map[string]uint64, name, value string) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err == nil && n > 0 && topology.IsTrouble(name) && len(*counters) < maxSettings {
		lists.Put(counters, name, n)
	}
}

// moduleKeys are what is kept of a cable or module.
var moduleKeys = []string{"Identifier", "Vendor name", "Vendor PN", "Vendor SN", "Transmitter technology",
	"Cable assembly length", "Length (Copper or Active cable)", "Length (Copper)", "Length (SMF)", "Length (OM3)",
	"Module temperature", "Laser output power", "Receiver signal average optical power", "Rcvr signal avg optical " +
		"power", "Module State", "LowPwrRequestHW"}

// ethtoolModule reads the cable or module in the port.
func (r *reader) ethtoolModule() {
	d := r.subjectDevice("Module of ")
	for p := range r.pairs() {
		// Modules with several lanes have a line for each: "Laser output power (Channel 1)".
		base, _, _ := strings.Cut(p.key, "(Channel")
		base = strings.TrimRight(base, " ")
		if slices.Contains(moduleKeys, base) && p.value != "" && len(d.Module) < 64 {
			lists.Put(&d.Module, p.key, p.value)
		}
	}
}

// rdmaStatistic reads the counters of ports: "link mlx5_0/1 rx_write_requests 0 ...", on a line or on several.
func (r *reader) rdmaStatistic() {
	var p *topology.RDMAPort
	for _, line := range r.lines() {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "link" {
			device, number, _ := strings.Cut(strings.TrimSuffix(words[1], ":"), "/")
			if port := count(number); port != nil {
				_, p = rdma(r.nic(device), device, port)
			}
			words = words[2:]
		}
		// After the device, names and values take turns.
		for i := 0; p != nil && i+1 < len(words); i += 2 {
			trouble(&p.Counters, words[i], words[i+1])
		}
	}
}

// linkSpeed matches the speed of a port as mlxlink names it: of Ethernet in Gb/s, of InfiniBand for four lanes.
var (
	linkSpeed = lazyregexp.New(`^(?:([0-9.]+)(?:G|GbE)\b|IB-(\w+))`)
	// Gb/s of one lane, as the kernel counts them: four lanes of EDR are 100.
	laneRates = map[string]float64{"SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10.3125, "FDR": 14.0625, "EDR": 25,
		"HDR": 50, "NDR": 100, "XDR": 200}
)

// mlxlink reads the state of a port, and what the tool says is wrong with it. Of a device that is named by its address
// or its path in /dev/mst, the names of its RDMA and network devices are not told.
func (r *reader) mlxlink() {
	if r.Subject == "" {
		r.note(0, "the command line does not say which device this is: mlxlink -d DEVICE")
		return
	}
	port, nic := &topology.RDMAPort{}, r.nic(r.Subject)
	if at := address(r.Subject); at != nil {
		*nic = topology.NIC{Address: at}
	} else if !strings.HasPrefix(r.Subject, "/") {
		_, port = rdma(nic, r.Subject, new(1))
	}
	lanes, speed := 0, 0.0
	for p := range r.pairs() {
		switch p.key {
		case "State":
			if port.State = "DOWN"; p.value == "Active" {
				port.State = "ACTIVE"
			}
		case "Physical state":
			port.PhysState = p.value
		case "Speed":
			// Which technology it is follows from the form of the speed alone.
			if m := linkSpeed.FindStringSubmatch(p.value); m != nil {
				port.LinkLayer = "Ethernet"
				if speed, _ = strconv.ParseFloat(m[1], 64); m[2] != "" {
					port.LinkLayer, speed = "InfiniBand", laneRates[m[2]]
				}
			}
		case "Width":
			lanes = words.Value(count(strings.TrimSuffix(strings.ToLower(p.value), "x")))
		case "Recommendation":
			if p.value != "" && !strings.HasPrefix(p.value, "No issue") {
				port.Diagnosis = p.value
			}
		case "Effective Physical Errors", "Symbol Errors", "Link Down Counter":
			if n, err := strconv.ParseUint(p.value, 10, 64); err == nil && n > 0 {
				lists.Put(&port.Counters, linkCounters[p.key], n)
			}
		}
	}
	if port.LinkLayer == "InfiniBand" {
		port.Lanes = lanes
		speed *= float64(lanes)
	}
	if speed > 0 && port.State == "ACTIVE" {
		port.RateGbps = &speed
	}
	if len(nic.Devices) == 0 {
		if port.RateGbps != nil {
			nic.SpeedMbps = new(int64(speed * 1000))
		}
		if port.Diagnosis != "" {
			r.note(0, "mlxlink says of %s: %s", nic.ID(), port.Diagnosis)
		}
	}
}

// linkCounters are mlxlink's counters in the words of the kernel, where it has them.
var linkCounters = map[string]string{"Effective Physical Errors": "effective_physical_errors",
	"Symbol Errors": "symbol_error", "Link Down Counter": "link_downed"}
