package texts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/machine/topology"
)

// ipLine matches "2: eth0@if3: <BROADCAST,UP> mtu 9000 qdisc mq state UP ...".
var ipLine = lazyregexp.New(`^(\d+): ([^\s:@]+)(?:@(\S+))?: <([A-Z_,0-9-]*)> mtu (\d+) (.*)`)

func (r *reader) ipJSON() {
	var list []struct {
		Name      string   `json:"ifname"`
		Parent    string   `json:"link"`
		Type      string   `json:"link_type"`
		Flags     []string `json:"flags"`
		MTU       *int     `json:"mtu"`
		Master    string   `json:"master"`
		OperState string   `json:"operstate"`
		MAC       string   `json:"address"`
	}
	r.json(&list)
	for _, l := range list {
		if l.Name == "" || l.Type == "loopback" || l.Parent != "" || isSoftware(l.Name) {
			continue
		}
		d := netdev(r.nic(l.Name), l.Name)
		d.MTU, d.State, d.Master, d.MAC = l.MTU, strings.ToLower(l.OperState), l.Master, l.MAC
		carrier(d, l.Flags)
	}
}

// carrier is unknown if the device is down, because LOWER_UP is missing then.
func carrier(d *topology.Netdev, flags []string) {
	if slices.Contains(flags, "UP") {
		d.Carrier = new(slices.Contains(flags, "LOWER_UP"))
	}
}

// ipLink skips software devices, which belong to no NIC.
func (r *reader) ipLink() {
	if strings.HasPrefix(strings.TrimSpace(r.Text.Text), "[") {
		r.ipJSON()
		return
	}
	var d *topology.Netdev
	for _, line := range r.lines() {
		if m := ipLine().FindStringSubmatch(line); m != nil {
			// "eth0.100@eth0" is on top of another device, and "eth0@if3" the end of a pair in a container.
			if d = nil; m[2] == "lo" || m[3] != "" || isSoftware(m[2]) {
				continue
			}
			d = netdev(r.nic(m[2]), m[2])
			d.MTU = count(m[5])
			carrier(d, strings.Split(m[4], ","))
			words := strings.Fields(m[6])
			for i, word := range words[:max(0, len(words)-1)] {
				switch word {
				case "state":
					d.State = strings.ToLower(words[i+1])
				case "master":
					d.Master = words[i+1]
				}
			}
		} else if words := strings.Fields(line); d != nil && len(words) > 1 && strings.HasPrefix(words[0], "link/") &&
			strings.Trim(words[1], "0:") != "" {
			d.MAC = words[1]
		}
	}
}

// ipBrief matches ip -br link or ip -br addr: a device and its state, and from link also MAC address and flags.
var ipBrief = lazyregexp.New(`^([\w.-]+)(@\S+)? +(UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN) +` +
	`(?:([0-9a-f]{2}(?::[0-9a-f]{2}){5,19}) +<([A-Z_,0-9-]*)>$|[0-9a-f.:]+/\d+)`)

// ipBriefBare is for a device without an address.
var ipBriefBare = lazyregexp.New(`^([\w.-]+)(@\S+)? +(UP|DOWN|UNKNOWN|DORMANT|LOWERLAYERDOWN)$`)

func (r *reader) ipBrief() {
	for _, line := range r.lines() {
		m := ipBrief().FindStringSubmatch(line)
		if bare := ipBriefBare().FindStringSubmatch(line); bare != nil {
			m = append(bare, "", "")
		}
		if m == nil || m[1] == "lo" || m[2] != "" || isSoftware(m[1]) {
			continue
		}
		d := netdev(r.nic(m[1]), m[1])
		d.State, d.MAC = strings.ToLower(m[3]), m[4]
		carrier(d, strings.Split(m[5], ","))
	}
}

var software = []string{"docker", "br-", "veth", "virbr", "vnet", "tap", "tun", "bond", "team", "dummy", "ifb", "cali",
	"flannel", "cni", "vxlan", "wg", "ovs", "fwbr", "fwpr", "fwln", "vmbr", "sit", "gre", "erspan", "ip6tnl", "tunl",
	"lxc", "kube", "nodelocaldns", "cilium"}

func isSoftware(name string) bool {
	return slices.ContainsFunc(software, func(s string) bool { return strings.HasPrefix(name, s) })
}

// ethtool skips the speed "Unknown!" of ports without a link.
func (r *reader) ethtool() {
	d := r.subjectDevice("Settings for ")
	for p := range r.pairs() {
		if name, ok := strings.CutPrefix(p.key, "Settings for "); ok {
			d = netdev(r.nic(name), name)
			continue
		}
		switch p.key {
		case "Speed":
			if v, err := strconv.ParseInt(strings.TrimSuffix(p.value, "Mb/s"), 10, 64); err == nil && v > 0 {
				d.SpeedMbps = &v
			}
		case "Link detected":
			answer, _, _ := strings.Cut(p.value, " ")
			d.Carrier = new(answer == "yes")
		}
	}
}

// ethtoolDriver takes the device's name from the command line; the text has its PCI function.
func (r *reader) ethtoolDriver() {
	value := map[string]string{}
	for p := range r.pairs() {
		if _, twice := value[p.key]; !twice {
			value[p.key] = p.value
		}
	}
	nic := &topology.NIC{}
	if a := address(value["bus-info"]); a != nil {
		nic = r.nicAt(*a)
	} else if r.Subject != "" {
		nic = r.nic(r.Subject)
	} else {
		r.note(0, "neither the command line nor bus-info says which network device this is")
		return
	}
	nic.Driver = value["driver"]
	nic.Firmware = word(value["firmware-version"])
	if r.Subject != "" {
		netdev(nic, r.Subject)
	}
}

const priorities = 8

// mlnxQoS reads the row "enabled", with 0 or 1 for each priority, and "buffer", with the number of its buffer.
func (r *reader) mlnxQoS() {
	q := &topology.QoS{}
	for n, line := range r.lines() {
		if value, ok := strings.CutPrefix(line, "Priority trust state:"); ok {
			q.Trust = strings.TrimSpace(value)
		}
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "enabled" && q.PFC == nil:
			q.PFC = []int{}
			for i, word := range words[1:] {
				switch word {
				case "1":
					q.PFC = append(q.PFC, i)
				case "0":
				default:
					r.note(n, "%q is neither 0 nor 1", word)
				}
			}
		case words[0] == "buffer" && len(words) == priorities+1 && q.Buffers == nil:
			for _, word := range words[1:] {
				if b := count(word); b != nil {
					q.Buffers = append(q.Buffers, *b)
				}
			}
			if len(q.Buffers) != priorities {
				q.Buffers = nil
			}
		case strings.HasPrefix(line, "prio:") && len(words) == 2:
			mapDSCP(q, words)
		}
	}
	if r.Subject == "" {
		r.note(0, "the command line does not say which network device this is: mlnx_qos -i NETDEV")
		return
	}
	if q.Trust != "" || q.PFC != nil {
		netdev(r.nic(r.Subject), r.Subject).QoS = q
	}
}

// mapDSCP reads "prio:3 dscp:31,30,29,". A priority may have several lines.
func mapDSCP(q *topology.QoS, words []string) {
	prio := count(strings.TrimPrefix(words[0], "prio:"))
	list, ok := strings.CutPrefix(words[1], "dscp:")
	if prio == nil || !ok || *prio >= priorities {
		return
	}
	for word := range strings.SplitSeq(list, ",") {
		// 07 and 08 are decimal.
		if d, err := strconv.ParseUint(word, 10, 6); err == nil {
			if q.DSCP == nil {
				q.DSCP = map[int]int{}
			}
			q.DSCP[int(d)] = *prio
		}
	}
}

// settingLine matches a name with present and next values. A star marks a pending change.
var settingLine = lazyregexp.New(`^\*? *([A-Z][A-Z0-9_]*(?:\[[\d.]+\])?)((?: {2,}|\t+)\S.*)$`)

// deviceTypeForm matches ConnectX6DX, BlueField3.
var deviceTypeForm = lazyregexp.New(`^(ConnectX|BlueField)(\d)(\w*)$`)

// deviceType returns "ConnectX-6 Dx".
func deviceType(s string) string {
	m := deviceTypeForm().FindStringSubmatch(s)
	if m == nil {
		return s
	}
	name := m[1] + "-" + m[2]
	if m[3] != "" {
		name += " " + m[3][:1] + strings.ToLower(m[3][1:])
	}
	return name
}

// A ConnectX-7 has 250 settings.
const maxSettings = 1000

func (r *reader) mlxconfig() {
	var nic *topology.NIC
	model := ""
	for n, line := range r.lines() {
		key, name, _ := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); key == "Device type" {
			model = deviceType(name)
		}
		if key == "Device" || key == "PCI device" {
			if address(name) != nil {
				nic = r.nicAt(*address(name))
			} else if name != "" {
				nic = r.nic(name)
			}
			if nic != nil {
				nic.Model = cmp.Or(nic.Model, model)
			}
			continue
		}
		m := settingLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if nic == nil {
			if at := address(r.Subject); at != nil {
				nic = r.nicAt(*at)
			} else if nic = r.nic(cmp.Or(r.Subject, "unnamed")); r.Subject == "" {
				r.note(n, "which NIC this is, is not told: mlxconfig -d DEVICE names it above its text")
			}
		}
		words := strings.Fields(m[2])
		if len(nic.Settings) == maxSettings {
			r.note(n, "more than %d settings", maxSettings)
			return
		}
		// With -e there are default, present, and next values.
		if len(words) == 3 && words[1] != words[2] {
			r.note(n, "%s is %s now and %s after the next reset of the firmware", m[1], words[1], words[2])
		}
		if nic.Settings == nil {
			nic.Settings = map[string]string{}
		}
		nic.Settings[m[1]] = words[len(words)-1]
	}
}

// mstLine matches devices in the table of -v and in the list without it.
var mstLine = lazyregexp.New(`^DEVICE_TYPE +MST |^\w+\(rev:\w+\)\s+(\S+)\s+(\S+)(.*)$|` +
	`^(/dev/mst/mt\S+) +- PCI|^domain:bus:dev\.fn=(\S+)`)

// mstStatus tells columns by the form of words, because empty ones have no placeholder.
func (r *reader) mstStatus() {
	path := ""
	for _, m := range r.matches(mstLine) {
		if path = cmp.Or(m[4], path); m[1] != "" {
			path = m[1]
		}
		at := address(cmp.Or(m[2], m[5]))
		if at == nil {
			continue
		}
		nic := r.nicAt(*at)
		if strings.HasPrefix(path, "/dev/") {
			nic.Name = path
		}
		for word := range strings.FieldsSeq(strings.ReplaceAll(m[3], ",", " ")) {
			if name, isNet := strings.CutPrefix(word, "net-"); isNet {
				netdev(nic, name)
			} else if node, err := strconv.Atoi(word); err == nil {
				if node >= 0 { // -1 means no node
					nic.NUMANode = &node
				}
			} else if word != "NA" && word != "-" && nic.Devices == nil {
				rdma(nic, word, nil)
			}
		}
	}
}
