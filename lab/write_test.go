package lab

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestScalar(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"a word stays plain", "builtin", "builtin"},
		{"hyphens stay plain", "vm-01", "vm-01"},
		{"a number is quoted", "01", `"01"`},
		{"a number with an exponent is quoted", "1e3", `"1e3"`},
		{"truth values are quoted", "true", `"true"`},
		{"truth values of YAML 1.1 are quoted", "no", `"no"`},
		{"null is quoted", "null", `"null"`},
		{"a path is quoted", "a/b c.qcow2", `"a/b c.qcow2"`},
		{"a quote is escaped", `a"b\c`, `"a\"b\\c"`},
		{"what cannot be seen is escaped", "a\u2028b", `"a\u2028b"`},
		{"nothing is quoted", "", `""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := scalar(tt.text); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestResolvedFileSaysWhatTheMTUDoes(t *testing.T) {
	for mtu, want := range map[int]string{
		1500: "The largest payload, 4096, needs 4192; the default is 4200.",
		4200: "this MTU carries 4096.",
		9000: "4200 carries as much with smaller buffers.",
	} {
		l := mustParse(t, fmt.Sprintf("name: x\nfabric: {mtu: %d}\nnodes: {vm: {}}", mtu))
		if got := string(l.YAML()); !strings.Contains(got, want) {
			t.Errorf("mtu %d: want %q in:\n%s", mtu, want, got)
		}
	}
}

func TestResolvedFileNamesItsDriver(t *testing.T) {
	for _, d := range drivers() {
		l := mustParse(t, "name: x\ndriver: "+string(d)+"\n"+forDriver(d)+"nodes: {vm: {}}")
		if got := string(l.YAML()); !strings.Contains(got, "\ndriver: "+string(d)+" # ") {
			t.Errorf("driver %s is not explained in:\n%s", d, got)
		}
	}
}

func forDriver(d Driver) string {
	if d == DriverVSphere {
		return "vsphere: {host: e1, template: 'a b', port_group: \"true\", settings: {a.b: TRUE, n: 0x10}, " +
			"clone: linked, networks: [n, 'o p'], datastore: d, resource_pool: c/Resources/p, " +
			"power_policy: low, customize: {domain: a.b, address: 192.0.2.1/24, dns: [192.0.2.2]}, " +
			"switches: {dvs: {uplinks: [vmnic3], port_groups: [\"no\", 'b c'], vlan: 7, hosts: [e2, e1]}, " +
			"'v S': {kind: standard}}}\n"
	}
	return ""
}

func reserveText(t *rapid.T) string {
	text := rapid.SampledFrom([]string{
		"N", "{}", "{cores: N}", "{memory: 0B}", "{cores: N, memory: 8GiB}", "{numa_nodes: {3: N, 0: {memory: 1GiB}}}",
		"{cores: 9, numa_nodes: {'1': {cores: N, memory: 512M}}}",
	}).Draw(t, "reserve")
	return strings.ReplaceAll(text, "N", strconv.Itoa(rapid.IntRange(1, 9).Draw(t, "cores")))
}

// Addresses work only for a single node.
func devicesText(t *rapid.T, rates, addresses bool, addr int) string {
	texts := []string{"1", "3", "[1, 1]", "{count: 2}", "{vendor: nvidia, model: '3090'}", "[{numa_node: 0}, 1]"}
	if rates {
		texts = append(texts, "{rate: 25Gb/s}", "[{count: 2, vendor: \"0x15b3\", rate: 2500Mb/s}]")
	}
	if addresses {
		texts = append(texts, fmt.Sprintf("%02x:00.0", addr), fmt.Sprintf("['0000:%02x:00.1', DEV%d]", addr, addr),
			fmt.Sprintf("['0000%04X:00:1f.7', {count: 2}]", addr))
	}
	return rapid.SampledFrom(texts).Draw(t, "devices")
}

func labText(t *rapid.T) string {
	var b strings.Builder
	maybe := func(label string) bool { return rapid.Bool().Draw(t, label) }
	pages, memories := []string{"auto", "off"}, []string{"MiB", "M", "GiB", "G"}
	if maybe("whole pages?") {
		pages, memories = []string{"auto", "off", "1GiB", "2MiB"}, []string{"GiB", "G"}
	}
	name := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,19}`)
	fmt.Fprintf(&b, "name: '%s'\n", name.Draw(t, "name"))
	if maybe("driver?") {
		driver := rapid.SampledFrom(drivers()).Draw(t, "driver")
		fmt.Fprintf(&b, "driver: %s\n%s", driver, forDriver(driver))
	}
	if maybe("workload?") {
		fmt.Fprintf(&b, "workload: %s\n", rapid.SampledFrom(Workloads()).Draw(t, "workload"))
	}
	if maybe("reserve?") {
		fmt.Fprintf(&b, "host: {reserve: %s}\n", reserveText(t))
	}
	if maybe("hugepages?") {
		fmt.Fprintf(&b, "hugepages: %s\n", rapid.SampledFrom(pages).Draw(t, "hugepages"))
	}
	if maybe("tenants?") {
		fmt.Fprintf(&b, "tenants: %s\n", rapid.SampledFrom([]string{"read", "ignore", "'a b/c.json'", "./no"}).Draw(t,
			"tenants"))
	}
	if maybe("fabric?") {
		// Subnets have room for 30 nodes and 16 NICs.
		fmt.Fprintf(&b, "fabric: {mtu: %d, subnet: 10.%d.0.0/%d}\n", rapid.IntRange(MinMTU, MaxMTU).Draw(t, "mtu"),
			rapid.IntRange(0, 255).Draw(t, "octet"), rapid.IntRange(16, 26).Draw(t, "length"))
	}
	fixed := 0 // addresses drawn so far
	settings := func(label string, addresses bool) []string {
		var keys []string
		add := func(key, text string) { keys = append(keys, key+": "+text) }
		devices := func(rates bool) string { fixed++; return devicesText(t, rates, addresses, fixed) }
		if maybe(label + " cpus?") {
			add("cpus", rapid.SampledFrom([]string{"1", "64", "4096", "auto"}).Draw(t, "cpus"))
		}
		// The default of 256MiB is not a multiple of 1 GiB.
		if label == "defaults" || maybe(label+" memory?") {
			unit := rapid.SampledFrom(memories).Draw(t, "unit")
			add("memory", rapid.SampledFrom([]string{fmt.Sprintf("%d%s", 2*rapid.IntRange(128, 8192).Draw(t, "memory"),
				unit), "auto"}).Draw(t, "memory"))
		}
		if maybe(label + " image?") {
			image := rapid.StringMatching(`/[ -~ä-ü€]{0,39}`).Draw(t, "image")
			keys = append(keys, "image: '"+strings.ReplaceAll(image, "'", "''")+"'")
		}
		if maybe(label + " setup?") {
			add("setup", rapid.SampledFrom([]string{"[]", "[modprobe x]",
				"[{run: \"a\\nb\", check: 'no'}, 'x: \"y'' # z']"}).Draw(t, "setup"))
		}
		if maybe(label + " nics?") {
			add("nics", devices(true))
		}
		if maybe(label + " gpus?") {
			add("gpus", rapid.SampledFrom([]string{"0", "[]", "64", devices(false)}).Draw(t, "gpus"))
		}
		if maybe(label + " vfs?") {
			add("vfs", rapid.SampledFrom([]string{"0", "13", "NIC0", devices(true)}).Draw(t, "vfs"))
		}
		if maybe(label + " nic?") {
			add("nic", string(rapid.SampledFrom(nicModels()).Draw(t, "nic")))
		}
		for _, k := range []string{"smt", "guest_numa"} {
			if maybe(label + " " + k + "?") {
				add(k, string(rapid.SampledFrom(choices()).Draw(t, k)))
			}
		}
		return keys
	}
	fmt.Fprintf(&b, "defaults: {%s}\n", strings.Join(settings("defaults", false), ", "))
	// Names end with a letter, so that the numbers added by count cannot make two of them equal.
	nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{0,15}[a-z]`), 1, 6, rapid.ID[string]).Draw(t,
		"nodes")
	if len(nodes) > 1 && maybe("affinity?") {
		apart := rapid.SampledFrom([]string{"numa: same", "numa: different", "nic: different",
			"numa: same, nic: different"}).Draw(t, "apart")
		fmt.Fprintf(&b, "affinity:\n- {nodes: ['v%s', 'v%s'], %s}\n", nodes[0], nodes[1], apart)
	}
	b.WriteString("nodes:\n")
	for _, n := range nodes {
		n = "v" + n
		count := maybe(n + " count?")
		keys := settings(n, !count)
		if count {
			keys = append(keys, fmt.Sprintf("count: %d", rapid.IntRange(1, 5).Draw(t, "count")))
		}
		fmt.Fprintf(&b, "  %s: {%s}\n", n, strings.Join(keys, ", "))
	}
	return b.String()
}

// Every valid lab file matches the schema, and its resolved form means the same.
func TestResolvedFilesMeanTheSame(t *testing.T) {
	s := compile(t)
	rapid.Check(t, func(t *rapid.T) {
		text := labText(t)
		l, err := Parse("drawn.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		again, err := Parse("resolved.yaml", l.YAML())
		if err != nil {
			t.Fatalf("%s\n%v", l.YAML(), err)
		}
		if diff := cmp.Diff(l, again, prefixes); diff != "" {
			t.Fatalf("(-first +again):\n%s", diff)
		}
		if string(again.YAML()) != string(l.YAML()) {
			t.Fatal("the resolved file of the resolved file differs")
		}
		for _, doc := range [][]byte{[]byte(text), l.YAML()} {
			if err := validate(s, doc); err != nil {
				t.Fatalf("the schema refuses it: %v\n%s", err, doc)
			}
		}
		if changes := Diff(l, again); len(changes) != 0 {
			t.Fatalf("differs from itself: %v", changes)
		}
		consistent(t, l)
	})
}

// Later stages rely on these invariants.
func consistent(t *rapid.T, l *Lab) {
	taken := map[string]string{}
	claim := func(kind, value, owner string) {
		if other, ok := taken[kind+value]; ok {
			t.Fatalf("%s and %s share the %s %s", other, owner, kind, value)
		}
		taken[kind+value] = owner
	}
	for _, n := range l.Nodes {
		claim("name", n.Name, n.Name)
		if n.CPUs < MinCPUs || n.Memory < MinMemory || n.Memory%MiB != 0 || n.Image == "" || len(n.NICs) < MinNICs ||
			n.SMT == "" || n.GuestNUMA == "" {
			t.Fatalf("%s is not complete: %+v", n.Name, n)
		}
		total := func(all []DeviceRequest) (sum int) {
			for _, r := range all {
				if r.Count < 1 || r.Address != "" && r.Count != 1 {
					t.Fatalf("%s asks for %+v", n.Name, r)
				}
				sum += r.Count
			}
			return sum
		}
		if g, p, v := total(n.GPURequests), total(n.NICRequests), total(n.VFRequests); g != n.GPUs || v != n.VFs ||
			p+v != len(n.NICs) {
			t.Fatalf("%s asks for %d GPUs, %d NICs and %d VFs, and has %d, %d and %d", n.Name, g, p, v, n.GPUs,
				len(n.NICs)-n.VFs, n.VFs)
		}
		for k, nic := range n.NICs {
			if nic.Name != fmt.Sprintf("eth%d", k) {
				t.Fatalf("NIC %d of %s is called %s", k, n.Name, nic.Name)
			}
			claim("mac", nic.MAC, n.Name)
			claim("address", nic.Addr.Addr().String(), n.Name)
			if k == 0 && nic.Addr.Masked() != l.Fabric.Subnet {
				t.Fatalf("%s has %s, outside of %s", n.Name, nic.Addr, l.Fabric.Subnet)
			}
			if nic.Addr.Addr() == nic.Addr.Masked().Addr() {
				t.Fatalf("%s has the network's own address %s", n.Name, nic.Addr)
			}
		}
	}
}
