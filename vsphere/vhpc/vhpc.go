// Package vhpc reads the cluster files of VMware's archived vHPC toolkit, and writes lab files from them. Sources: the
// toolkit's docs/common-commands.md and examples/cluster-scripts, commit b8429bc.
package vhpc

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
)

// A machine is a line of [_VMS_] for one virtual machine: its keys, with the sections that it names.
type machine struct {
	name string
	keys map[string]string
}

// A virtualSwitch is a line of [_SVS_] or [_DVS_].
type virtualSwitch struct {
	machine
	standard bool
	hosts    []string
}

// A cluster is what a file describes.
type cluster struct {
	file     string
	machines []machine
	switches []virtualSwitch
	read     func(script string) ([]byte, error)
	makers   map[string]string // by distributed switch, the host of the lab that makes it
}

// maxMachines bounds what the ranges of a file may become.
const maxMachines = 4096

// A File is a lab file for one host.
type File struct {
	Name string // HOST.yaml
	Data []byte
}

// Labs returns a lab file for each host of a cluster file, in the order of their names: a lab of rackless is on one
// host. The planner chooses devices and physical functions, so that only how many there are is taken. What else is not
// carried is listed in a comment, without values: passwords are among them. name is that of the file, for errors, and
// read returns the content of a script that the file names.
func Labs(name string, data []byte, read func(script string) ([]byte, error)) ([]File, error) {
	c, err := parse(name, string(data))
	if err != nil {
		return nil, err
	}
	c.read, c.makers = read, map[string]string{}
	byHost := map[string][]machine{}
	for _, m := range c.machines {
		host := m.keys["host"]
		if host == "" {
			return nil, fmt.Errorf("%s: %s has no host: rackless does not choose among the hosts of a cluster; add "+
				"host: to its line", name, m.name)
		}
		byHost[host] = append(byHost[host], m)
	}
	for _, s := range c.switches {
		for _, host := range slices.Sorted(slices.Values(s.hosts)) {
			if byHost[host] != nil && c.makers[s.name] == "" {
				c.makers[s.name] = host
			}
		}
	}
	var files []File
	taken := map[string]bool{}
	for i, host := range slices.Sorted(maps.Keys(byHost)) {
		short, _, _ := strings.Cut(host, ".")
		if short = identifier(short, ""); short == "" || taken[short] {
			short = fmt.Sprintf("host%02d", i)
		}
		taken[short] = true
		f := File{Name: short + ".yaml", Data: []byte(c.labOf(host, short, byHost[host]))}
		if _, err := lab.Parse(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("%s: the lab of host %s: %w", name, host, err)
		}
		files = append(files, f)
	}
	return files, nil
}

var (
	section = lazyregexp.New(`^\[([^\]]+)\]$`)
	// property is a key with its value, which is one word or a list.
	property = lazyregexp.New(`^([A-Za-z_]+):[ \t]*(\[[^\]]*\]|\S*)[ \t]*`)
	// named is a line of [_VMS_]: a name, in which a range has a colon too, and what the machine has.
	named = lazyregexp.New(`^((?:[^:{}]|\{\{?\d+:\d+\}?\})+):(.*)$`)
	word  = lazyregexp.New(`^(\S+)[ \t]*`)
	// span is {1:4}, of which each machine has the next, or {{1:4}}, of which machines in a row have the same.
	span = lazyregexp.New(`\{\{?(\d{1,6}):(\d{1,6})\}?\}`)
)

// parse reads a file.
func parse(name, text string) (*cluster, error) {
	c := &cluster{file: name}
	sections := map[string]map[string]string{}
	current := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%s:%d: %s", name, i+1, fmt.Sprintf(format, args...))
		}
		if m := section.FindStringSubmatch(line); m != nil {
			current = m[1]
			sections[current] = map[string]string{}
			continue
		}
		switch current {
		case "":
			return nil, fail("a line outside of any section: this is no cluster file of the vHPC toolkit")
		case "_VMS_", "_SVS_", "_DVS_":
			m := named.FindStringSubmatch(line)
			if m == nil {
				return nil, fail("want NAME: SECTION ... KEY: VALUE ..., have %q", line)
			}
			keys, unknown := keysOf(m[2], sections)
			if unknown != "" {
				return nil, fail("no section %q above", unknown)
			}
			if current == "_VMS_" {
				c.machines = append(c.machines, expand(m[1], keys)...)
			} else if err := c.addSwitch(m[1], keys, current == "_SVS_"); err != nil {
				return nil, fail("%v", err)
			}
			if len(c.machines) > maxMachines {
				return nil, fail("more than %d virtual machines", maxMachines)
			}
		default:
			if m := property.FindStringSubmatch(line); m != nil {
				sections[current][m[1]] = m[2]
			}
		}
	}
	if len(c.machines) == 0 {
		return nil, fmt.Errorf("%s: no virtual machines in it: want lines below [_VMS_]", name)
	}
	return c, nil
}

// maxHosts bounds what the range of the hosts of a switch may become.
const maxHosts = 1024

// addSwitch adds a switch. A range of its hosts is all of them.
func (c *cluster) addSwitch(name string, keys map[string]string, standard bool) error {
	s := virtualSwitch{machine: machine{name, keys}, standard: standard}
	n := max(1, size(keys["host"]))
	if keys["host"] == "" || n > maxHosts {
		return fmt.Errorf("switch %s has no host, or more than %d", name, maxHosts)
	}
	for i := range n {
		s.hosts = append(s.hosts, at(keys["host"], i, n))
	}
	c.switches = append(c.switches, s)
	return nil
}

// keysOf returns the keys of a line: those of the sections that it names, and its own, of which later ones win.
func keysOf(line string, sections map[string]map[string]string) (keys map[string]string, unknown string) {
	keys = map[string]string{}
	for line = strings.TrimSpace(line); line != ""; {
		if m := property.FindStringSubmatch(line); m != nil {
			put(keys, m[1], m[2])
			line = line[len(m[0]):]
			continue
		}
		m := word.FindStringSubmatch(line)
		if sections[m[1]] == nil {
			return nil, m[1]
		}
		for _, k := range slices.Sorted(maps.Keys(sections[m[1]])) { // script before sequence
			put(keys, k, sections[m[1]][k])
		}
		line = line[len(m[0]):]
	}
	return keys, ""
}

// put adds a key to others. Scripts add up until sequence gives those so far their place.
func put(keys map[string]string, key, value string) {
	switch key {
	case "script":
		keys[key] = strings.TrimPrefix(keys[key]+"\n"+value, "\n")
	case "sequence":
		keys["script"+value] = keys["script"]
		delete(keys, "script")
	default:
		keys[key] = value
	}
}

// expand returns the machines of a line. The range in the name says how many there are.
func expand(name string, keys map[string]string) []machine {
	n := max(1, size(name))
	if n > maxMachines {
		n = maxMachines + 1
	}
	all := make([]machine, n)
	for i := range all {
		all[i] = machine{at(name, i, n), map[string]string{}}
		for k, v := range keys {
			all[i].keys[k] = at(v, i, n)
		}
	}
	return all
}

// size is the number of values of the first range in a text; 0 for none.
func size(text string) int {
	m := span.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	from, _ := strconv.Atoi(m[1])
	to, _ := strconv.Atoi(m[2])
	return max(0, to-from+1)
}

// at is a text as the machine i of n has it.
func at(text string, i, n int) string {
	return span.ReplaceAllStringFunc(text, func(s string) string {
		m, k := span.FindStringSubmatch(s), size(s)
		if k == 0 {
			return s
		}
		step := i % k
		if strings.HasPrefix(s, "{{") {
			step = i * k / n
		}
		from, _ := strconv.Atoi(m[1])
		return fmt.Sprintf("%0*d", len(m[1]), from+step)
	})
}

// carried are the keys that a lab file has, or that follow from what it has.
var carried = []string{"template", "datacenter", "vm_folder", "host", "cpu", "memory", "pf", "sriov_port_group",
	"device", "latency", "linked", "instant", "cpu_reservation", "memory_reservation", "cores_per_socket", "power",
	"dvs_name", "svs_name", "sriov_dvs_name", "cluster"} // cluster follows from host

// always are keys that a lab does as if they were on.
var always = []string{"cpu_reservation", "memory_reservation", "power"}

// settings are the keys that are settings of virtual machines, with the names that these have, and shared those that
// are carried where all machines of a lab have the same.
var (
	settings = map[string]string{"cpu_shares": "cpu_shares", "memory_shares": "memory_shares",
		"secure_boot": "secure_boot", "mmio_size": "pciPassthru.64bitMMIOSizeGB"}
	shared = append([]string{"pvrdma_port_group", "vgpu", "port_group", "datastore", "resource_pool"},
		slices.Sorted(maps.Keys(settings))...)
)

// labOf writes the lab of one host. What is the same for a whole lab is the first machine's.
func (c *cluster) labOf(host, name string, machines []machine) string {
	first := machines[0].keys
	var b strings.Builder
	fmt.Fprintf(&b, "# Made by rackless init from %s: the virtual machines of %s.\n", words.OneLine(c.file),
		words.OneLine(host))
	customize, told := customizeOf(machines)
	login, user := loginOf(machines)
	told = append(told, user...)
	hostnames := distinct(machines, "guest_hostname")
	if hostnames {
		told = append(told, "guest_hostname")
	}
	left, latency, devices := map[string]bool{}, false, false
	for _, m := range machines {
		for k, v := range m.keys {
			left[k] = left[k] || v != "" && !slices.Contains(carried, k) && !slices.Contains(told, k) &&
				!strings.HasPrefix(k, "script") && (!slices.Contains(shared, k) || !all(machines, k)) ||
				slices.Contains(always, k) && v != "" && !on(v)
		}
		latency = latency || m.keys["latency"] == "high"
		devices = devices || len(items(m.keys["device"])) > 0
	}
	first = maps.Clone(first)
	maps.DeleteFunc(first, func(k, _ string) bool { return left[k] })
	maps.DeleteFunc(left, func(_ string, there bool) bool { return !there })
	if len(left) > 0 {
		fmt.Fprintf(&b, "# Not carried: %s.\n", strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}
	if devices {
		b.WriteString("# Devices were taken for GPUs: write nics where they are NICs.\n")
	}
	b.WriteString(login)
	switches := c.switchesOf(&b, host)
	setups := make([]string, len(machines))
	for i, m := range machines {
		setups[i] = c.setupOf(&b, m)
	}
	fmt.Fprintf(&b, "name: %s\ndriver: vsphere\n", name)
	if latency {
		b.WriteString("workload: rdma-latency\n")
	}
	pool := first["resource_pool"]
	if pool != "" && first["cluster"] != "" {
		pool = first["cluster"] + "/Resources/" + pool
	}
	b.WriteString("vsphere:\n")
	for _, k := range [][2]string{{"host", host}, {"template", first["template"]}, {"datacenter", first["datacenter"]},
		{"folder", first["vm_folder"]}, {"datastore", first["datastore"]}, {"resource_pool", pool},
		{"port_group", first["sriov_port_group"]},
		{"pvrdma", first["pvrdma_port_group"]}, {"vgpu", first["vgpu"]}} {
		if k[1] != "" {
			fmt.Fprintf(&b, "  %s: %s\n", k[0], strconv.Quote(k[1]))
		}
	}
	switch {
	case on(first["linked"]):
		fmt.Fprintf(&b, "  clone: %s\n", lab.CloneLinked)
	case on(first["instant"]):
		fmt.Fprintf(&b, "  clone: %s\n", lab.CloneInstant)
	}
	if pg := first["port_group"]; pg != "" {
		fmt.Fprintf(&b, "  networks: [%s]\n", strconv.Quote(pg))
	}
	b.WriteString(settingsOf(first) + customize + switches)
	if setup := setups[0]; setup != "" && !slices.ContainsFunc(setups, func(s string) bool { return s != setup }) {
		fmt.Fprintf(&b, "defaults: {setup: %s}\n", setup)
		clear(setups)
	}
	b.WriteString("nodes:\n")
	for i, m := range machines {
		want := words.If(hostnames, m.keys["guest_hostname"])
		b.WriteString(node(&m, cmp.Or(want, m.name), fmt.Sprintf("vm%02d", i), setups[i]))
	}
	return b.String()
}

// switchesOf writes the switches that the lab of a host makes: its standard ones, and the distributed ones of which it
// is the first host. What it says of others goes into comments.
func (c *cluster) switchesOf(comments *strings.Builder, host string) string {
	var b strings.Builder
	for _, s := range c.switches {
		maker := c.makers[s.name]
		switch {
		case !slices.Contains(s.hosts, host):
			continue
		case !s.standard && maker != host:
			fmt.Fprintf(comments, "# Switch %s is made by the lab of %s: bring that up first, and take it down last.\n",
				words.OneLine(s.name), words.OneLine(maker))
			continue
		}
		var keys []string
		if s.standard {
			keys = append(keys, "kind: "+string(lab.SwitchStandard))
		}
		if n, err := strconv.Atoi(s.keys["mtu"]); err == nil {
			keys = append(keys, fmt.Sprintf("mtu: %d", n))
		}
		add := func(key string, names []string) {
			if len(names) > 0 {
				keys = append(keys, key+": "+quoted(names))
			}
		}
		add("uplinks", items(s.keys["pnic"]))
		add("port_groups", items(s.keys["port_group"]))
		if !s.standard && len(s.hosts) > 1 {
			add("hosts", s.hosts)
		}
		fmt.Fprintf(&b, "    %s: {%s}\n", strconv.Quote(s.name), strings.Join(keys, ", "))
	}
	if b.Len() == 0 {
		return ""
	}
	return "  switches:\n" + b.String()
}

// quoted writes a list of texts.
func quoted(texts []string) string {
	all := lists.Map(texts, func(t string) string { return strconv.Quote(t) })
	return "[" + strings.Join(all, ", ") + "]"
}

// all reports whether machines have the same value of a key.
func all(machines []machine, key string) bool {
	return !slices.ContainsFunc(machines, func(m machine) bool { return m.keys[key] != machines[0].keys[key] })
}

// settingsOf writes the settings of the virtual machines.
func settingsOf(keys map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		value := keys[key]
		if key == "secure_boot" && value != "" {
			value = strconv.FormatBool(on(value))
		}
		if value != "" {
			list = append(list, settings[key]+": "+strconv.Quote(value))
		}
	}
	return words.If(len(list) != 0, "  settings: {"+strings.Join(list, ", ")+"}\n")
}

// node writes a virtual machine as a node of a name, with another one where that is none of a node.
func node(m *machine, name, other, setup string) string {
	var keys []string
	add := func(key, value string) {
		if value != "" {
			keys = append(keys, key+": "+value)
		}
	}
	count := func(key string) string {
		if n := len(items(m.keys[key])); n > 0 {
			return strconv.Itoa(n)
		}
		return ""
	}
	if n, err := strconv.Atoi(m.keys["cpu"]); err == nil {
		add("cpus", strconv.Itoa(n))
	}
	if gib, err := strconv.ParseFloat(m.keys["memory"], 64); err == nil && gib > 0 && gib < 1<<20 {
		if n := uint64(gib*1024) << 20; n > 0 {
			add("memory", strings.ReplaceAll(words.Exact(n), " ", ""))
		}
	}
	add("vfs", count("pf"))
	add("gpus", count("device"))
	add("setup", setup)
	name = identifier(name, other)
	text := fmt.Sprintf("  %s: {%s}", name, strings.Join(keys, ", "))
	var notes []string
	if name != m.name {
		notes = append(notes, words.OneLine(m.name))
	}
	if m.keys["cpu"] == "" || m.keys["memory"] == "" {
		notes = append(notes, "the template's CPUs and memory: write them here")
	}
	text += words.If(len(notes) > 0, " # "+strings.Join(notes, "; "))
	return text + "\n"
}

// items are the values of a key: one, or a list such as ['a', 'b'].
func items(value string) (all []string) {
	for item := range strings.SplitSeq(strings.Trim(value, "[] "), ",") {
		if item = strings.Trim(item, ` '"`); item != "" {
			all = append(all, item)
		}
	}
	return all
}

// distinct reports whether all machines have values of a key that are names of nodes, no two the same.
func distinct(machines []machine, key string) bool {
	seen := map[string]bool{}
	for _, m := range machines {
		name := identifier(m.keys[key], "")
		if name == "" || seen[name] {
			return false
		}
		seen[name] = true
	}
	return true
}

// on reads a switch of the toolkit.
func on(value string) bool {
	return slices.Contains([]string{"1", "true", "t", "on", "yes", "y"}, strings.ToLower(value))
}

var identifiers = lazyregexp.New(`^[a-z0-9][a-z0-9-]*$`)

// identifier returns a name as lab files have them, or the other one where it cannot be made one.
func identifier(name, other string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	return words.Either(len(name) > lab.MaxName || !identifiers.MatchString(name), other, name)
}
