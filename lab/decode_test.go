package lab

import (
	"strings"
	"testing"
)

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
		{"a key of an affinity in a node", node("numa: different"),
			`it belongs to an entry of affinity, as in "- {nodes: [vm00, vm01], numa: different}"`},
		{"a key of a selector in a node", node("vendor: nvidia"),
			`it belongs to gpus, nics or vfs, as in "gpus: {vendor: nvidia}"`},
		{"cores of a node", node("cores: 4"), "it belongs to host.reserve; the virtual CPUs of a node are cpus"},
		{"a key that is cut short, and one of another place", node("gpu: 1"), "did you mean gpus?"},
		{"how many NICs for what they are", node("nic: 2"), "the number of NICs is nics: 2"},
		{"a card's driver", node("nic: mlx5"), "write connectx-4-lx, connectx-5, connectx-6 or connectx-7"},
		{"a card with a slip", node("nic: conectx-6"), "did you mean connectx-6?"},
		{"the same in a selector", node("gpus: {numa: 1}"), "did you mean numa_node?"},
		{"reserve at the top", "reserve: 4\n" + node(""), "it belongs below host"},
		{"hugepages in a node", node("hugepages: 1GiB"), "it belongs to the lab: do not indent it"},
		{"smt at the top", "smt: off\n" + node(""), "it belongs to a node, or below defaults for all nodes"},
		{"a rate of GPUs", node("gpus: {rate: 25Gb/s}"), `it belongs to nics or vfs, as in "nics: {rate: 25Gb/s}"`},
		{"an address as a key", node("gpus: {address: GPU0}"), `write the address alone, as in "gpus: 0000:06:00.0"`},
		{"auto with a slip", node("cpus: atuo"), "did you mean auto?"},
		{"auto in upper case", node("memory: AUTO"), "did you mean auto?"},
		{"a truth value for a setting", node("smt: true"), "write on"},
		{"the other truth value", node("guest_numa: false"), "write off"},
		{"a truth value of YAML 1.1", node("smt: no"), "write off"},
		{"a setting with a slip", node("smt: onn"), "did you mean on?"},
		{"pages as QEMU writes them", "hugepages: 1G\n" + node(""), "write 1GiB"},
		{"pages as the kernel writes them", "hugepages: 2048\n" + node(""), "write 2MiB"},
		{"pages as a truth value", "hugepages: false\n" + node(""), "write off"},
		{"pages by another word", "hugepages: none\n" + node(""), "write off"},
		{"tenants with a slip", "tenants: ingore\n" + node(""), "did you mean ignore?"},
		{"tenants in a file without a dot", "tenants: machines\n" + node(""),
			`for the file of this name write "./machines"`},
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

func TestEveryFaultIsReported(t *testing.T) {
	_, err := Parse("f", []byte(`
name: X
driver: x
workload: x
fabric: {mtu: x, subnet: x}
host: {reserve: {cores: x, memory: x, numa_nodes: {x: 1, 0: {cores: x, memory: x}}}}
hugepages: x
tenants: x
affinity: [x, {nodes: x, numa: x, nic: x}]
defaults: {cpus: x, memory: x, image: [], nics: x, gpus: x, vfs: x, smt: x, guest_numa: x}
nodes:
  a: {cpus: x, memory: x, image: [], nics: x, gpus: {count: x, vendor: 1, model: 1, numa_node: x},
      vfs: [x, {rate: x}], smt: x, guest_numa: x, count: x}
`))
	if errs, ok := err.(Errors); !ok || len(errs) != 1+1+1+2+5+1+1+4+8+(3+1+4+2+2+1) {
		t.Errorf("got %d faults:\n%v", len(errs), err)
	} else if len(errs.Unwrap()) != len(errs) {
		t.Errorf("unwraps to %d errors", len(errs.Unwrap()))
	}
}

// Checks that need all keys would only repeat faults in other words.
func TestFollowingFaultsAreNotReported(t *testing.T) {
	_, err := Parse("f", []byte("name: x\nfabric: {subnet: 10.0.0.0/30}\nnodes: {vm: {count: 4, cpus: 9999}}"))
	if errs, ok := err.(Errors); !ok || len(errs) != 1 || errs[0].Key != "nodes.vm.cpus" {
		t.Errorf("got %v", err)
	}
}

func TestUTF16IsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"with a byte order mark":    "\xff\xfen\x00a\x00m\x00e\x00",
		"without a byte order mark": "n\x00a\x00m\x00e\x00",
	} {
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(),
			"save the file as UTF-8 text") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
