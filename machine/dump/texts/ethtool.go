package texts

import (
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// subjectDevice returns the device of the first line ("NIC statistics for eth0:"), else of the command line.
func (r *reader) subjectDevice(head string) *topology.Netdev {
	name := r.Subject
	first, _, _ := strings.Cut(strings.TrimSpace(r.Text.Text), "\n")
	if _, rest, ok := strings.Cut(strings.TrimSpace(first), head); ok {
		name = strings.TrimSuffix(rest, ":")
	}
	if name == "" {
		r.note(0, "which network device this is, is not told: %s NETDEV names it above its text", r.Kind.Name)
		name = "unnamed"
	}
	return netdev(r.nic(name), name)
}

// ethtoolCounters reads the nonzero counters of errors and discards; others differ at each reading.
func (r *reader) ethtoolCounters() {
	d := r.subjectDevice("NIC statistics for ")
	for p := range r.pairs() {
		trouble(&d.Counters, p.key, p.value)
		if topology.IsFlow(p.key) {
			record(&d.Flow, p.key, p.value)
		}
	}
}

// record records a counter, also zero.
func record(counters *map[string]uint64, name, value string) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil || len(*counters) >= maxSettings {
		return
	}
	if *counters == nil {
		*counters = map[string]uint64{}
	}
	(*counters)[name] = n
}

// cmaTOS reads a number, or sysfs's "Global tclass=106".
func (r *reader) cmaTOS() {
	device, _, _ := strings.Cut(r.Subject, "/")
	for _, line := range r.lines() {
		_, value, ok := strings.Cut(line, "tclass=")
		if !ok {
			value = line
		}
		if n := count(value); n != nil && *n < 256 && device != "" {
			_, p := rdma(r.nic(device), device, new(1))
			p.TOS = n
			return
		}
	}
}

func trouble(counters *map[string]uint64, name, value string) {
	n, err := strconv.ParseUint(value, 10, 64)
	if err == nil && n > 0 && topology.IsTrouble(name) && len(*counters) < maxSettings {
		if *counters == nil {
			*counters = map[string]uint64{}
		}
		(*counters)[name] = n
	}
}

// rdmaStatistic reads "link mlx5_0/1 rx_write_requests 0 ...", on one line or several.
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
		for i := 0; p != nil && i+1 < len(words); i += 2 {
			trouble(&p.Counters, words[i], words[i+1])
			if congestion(words[i]) {
				record(&p.Flow, words[i], words[i+1])
			}
		}
	}
}

func congestion(name string) bool {
	return strings.Contains(name, "cnp") || strings.Contains(name, "ecn_marked")
}
