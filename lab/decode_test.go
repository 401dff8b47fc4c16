package lab

import (
	"strings"
	"testing"
)

func TestJoin(t *testing.T) {
	tests := []struct{ path, name, want string }{
		{"", "name", "name"},
		{"nodes", "vm00", "nodes.vm00"},
		{"nodes.vm00", "cpus", "nodes.vm00.cpus"},
		{"nodes", "a.b", `nodes."a.b"`},
		{"nodes", "", `nodes.""`},
		{"nodes", "\x1b", `nodes."\x1b"`},
	}
	for _, tt := range tests {
		if got := join(tt.path, tt.name); got != tt.want {
			t.Errorf("join(%q, %q) = %s, want %s", tt.path, tt.name, got, tt.want)
		}
	}
}

func TestOrList(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := orList(words); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestSuggestions(t *testing.T) {
	node := func(keys string) string { return "name: x\nnodes: {vm: {" + keys + "}}" }
	tests := []struct{ name, text, want string }{
		{"a slip of the finger", node("cpsu: 1"), "did you mean cpus?"},
		{"a key in upper case", node("Memory: 1GiB"), "did you mean memory?"},
		{"a short form", node("mem: 1GiB"), "did you mean memory?"},
		{"the name of another tool", node("vcpus: 1"), "did you mean cpus?"},
		{"a key of the fabric in a node", node("mtu: 1500"), "it belongs below fabric"},
		{"a subnet at the top", "subnet: 10.0.0.0/8\n" + node(""), "it belongs below fabric"},
		{"a setting at the top", "cpus: 2\n" + node(""), "it belongs to a node, or below defaults for all nodes"},
		{"count in defaults", "defaults: {count: 2}\n" + node(""), `it belongs to one node, as in "vm: {count: 16}"`},
		{"a key of the lab in a node", node("driver: qemu"), "it belongs to the lab: do not indent it"},
		{"a node at the top", "vm7: {}\n" + node(""), "if it is the name of a node, move it below nodes"},
		{"a number for a node", "name: x\nnodes: {vm: 16}", `for equal nodes write "vm: {count: 16}"`},
		{"a list of nodes", "name: x\nnodes: [a, b]", `write every node as a key, as in "vm00: {}"`},
		{"a driver that is near", "driver: libvrit\n" + node(""), "did you mean libvirt?"},
		{"a quoted number", node("cpus: '4'"), "remove the quotes"},
		{"a number as text", node("image: 12"), `to mean it as text, quote it: "12"`},
		{"true as a key", "name: x\nnodes: {true: {}}", `to mean it as text, quote it: "true"`},
		{"infinity as text", node("image: .inf"), `to mean it as text, quote it: ".inf"`},
		{"an underscore in a name", "name: my_lab\nnodes: {vm: {}}", "write my-lab"},
		{"an address without a length", "fabric: {subnet: 10.1.2.3}\n" + node(""), "add a length: 10.1.2.0/24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			if err == nil {
				t.Fatal("accepted")
			}
			first, _, _ := strings.Cut(err.Error(), "\n")
			if !strings.HasSuffix(first, "; "+tt.want) {
				t.Errorf("got %s\nwant it to end with %s", first, tt.want)
			}
		})
	}
}

func TestNoSuggestionIsBetterThanAWrongOne(t *testing.T) {
	for _, text := range []string{
		"name: x\nnodes: {vm: {disk: 1}}", "name: x\nnodes: {vm: {zone: 1}}", "name: x\ndriver: kvm\nnodes: {vm: {}}",
		"name: x\nnodes: {vm: {cpus: [1]}}", "name: X.Y\nnodes: {vm: {}}",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil {
			t.Fatalf("%s: accepted", text)
		}
		if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasSuffix(first, ")") {
			t.Errorf("%s: got %s", text, first)
		}
	}
}

// All faults of a file are reported in one run, each once.
func TestEveryFaultIsReported(t *testing.T) {
	_, err := Parse("f", []byte(`
name: X
driver: x
workload: x
fabric: {mtu: x, subnet: x}
defaults: {cpus: x, memory: x, image: [], nics: x, gpus: x}
nodes:
  a: {cpus: x, memory: x, image: [], nics: x, gpus: x, count: x}
`))
	if errs, ok := err.(Errors); !ok || len(errs) != 1+1+1+2+5+6 {
		t.Errorf("got %d faults:\n%v", len(errs), err)
	} else if len(errs.Unwrap()) != len(errs) {
		t.Errorf("unwraps to %d errors", len(errs.Unwrap()))
	}
}

// What needs all keys at once is not checked on top of faults: it would only repeat them in other words.
func TestFollowingFaultsAreNotReported(t *testing.T) {
	_, err := Parse("f", []byte("name: x\nfabric: {subnet: 10.0.0.0/30}\nnodes: {vm: {count: 4, cpus: 99}}"))
	if errs, ok := err.(Errors); !ok || len(errs) != 1 || errs[0].Key != "nodes.vm.cpus" {
		t.Errorf("got %v", err)
	}
}
