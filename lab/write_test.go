package lab

import (
	"fmt"
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
		l := mustParse(t, "name: x\ndriver: "+string(d)+"\nnodes: {vm: {}}")
		if got := string(l.YAML()); !strings.Contains(got, "\ndriver: "+string(d)+" # ") {
			t.Errorf("driver %s is not explained in:\n%s", d, got)
		}
	}
}

// labText draws the text of a valid lab file.
func labText(t *rapid.T) string {
	var b strings.Builder
	maybe := func(label string) bool { return rapid.Bool().Draw(t, label) }
	name := rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,19}`)
	fmt.Fprintf(&b, "name: '%s'\n", name.Draw(t, "name"))
	if maybe("driver?") {
		fmt.Fprintf(&b, "driver: %s\n", rapid.SampledFrom(drivers()).Draw(t, "driver"))
	}
	if maybe("workload?") {
		fmt.Fprintf(&b, "workload: %s\n", rapid.SampledFrom(workloads()).Draw(t, "workload"))
	}
	if maybe("fabric?") {
		// Room for 30 nodes and for the subnets of eight NICs.
		fmt.Fprintf(&b, "fabric: {mtu: %d, subnet: 10.%d.0.0/%d}\n", rapid.IntRange(MinMTU, MaxMTU).Draw(t, "mtu"),
			rapid.IntRange(0, 255).Draw(t, "octet"), rapid.IntRange(16, 26).Draw(t, "length"))
	}
	settings := func(label string) []string {
		var keys []string
		if maybe(label + " cpus?") {
			keys = append(keys, fmt.Sprintf("cpus: %d", rapid.IntRange(MinCPUs, MaxCPUs).Draw(t, "cpus")))
		}
		if maybe(label + " memory?") {
			unit := rapid.SampledFrom([]string{"MiB", "M", "GiB", "G"}).Draw(t, "unit")
			keys = append(keys, fmt.Sprintf("memory: %d%s", rapid.IntRange(256, 16384).Draw(t, "memory"), unit))
		}
		if maybe(label + " image?") {
			image := rapid.StringMatching(`[ -~ä-ü€]{1,40}`).Draw(t, "image")
			keys = append(keys, "image: '"+strings.ReplaceAll(image, "'", "''")+"'")
		}
		if maybe(label + " nics?") {
			keys = append(keys, fmt.Sprintf("nics: %d", rapid.IntRange(MinNICs, MaxNICs).Draw(t, "nics")))
		}
		if maybe(label + " gpus?") {
			keys = append(keys, fmt.Sprintf("gpus: %d", rapid.IntRange(MinGPUs, MaxGPUs).Draw(t, "gpus")))
		}
		return keys
	}
	if maybe("defaults?") {
		fmt.Fprintf(&b, "defaults: {%s}\n", strings.Join(settings("defaults"), ", "))
	}
	b.WriteString("nodes:\n")
	// Names end with a letter, so that no number that count adds can make two of them equal.
	nodes := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9-]{0,15}[a-z]`), 1, 6, rapid.ID[string]).Draw(t, "nodes")
	for _, n := range nodes {
		n = "v" + n
		keys := settings(n)
		if maybe(n + " count?") {
			keys = append(keys, fmt.Sprintf("count: %d", rapid.IntRange(1, 5).Draw(t, "count")))
		}
		fmt.Fprintf(&b, "  %s: {%s}\n", n, strings.Join(keys, ", "))
	}
	return b.String()
}

// Whatever a lab file says: it resolves to a consistent lab, the schema takes it, and the resolved file means the same.
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

// consistent checks what the later stages rely on.
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
		if n.CPUs < MinCPUs || n.Memory < MinMemory || n.Memory%MiB != 0 || n.Image == "" || len(n.NICs) < MinNICs {
			t.Fatalf("%s is not complete: %+v", n.Name, n)
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
