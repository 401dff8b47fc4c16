package lab

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestDiff(t *testing.T) {
	const pair = "name: pair\nnodes: {a: {}, b: {}}"
	tests := []struct {
		name     string
		old, new string
		want     []string
		effect   Effect
	}{
		{"equal labs", pair, pair, nil, ""},
		{"the same lab in other words", pair,
			"name: pair\ndriver: auto\ndefaults: {cpus: 1}\nnodes: {a: , b: {memory: 256M}}", nil, ""},
		{"an MTU", pair, "name: pair\nfabric: {mtu: 1500}\nnodes: {a: {}, b: {}}",
			[]string{"lab: fabric.mtu 4200 -> 1500 (live)"}, Live},
		{"a workload", pair, "name: pair\nworkload: rdma-latency\nnodes: {a: {}, b: {}}",
			[]string{"lab: workload mixed -> rdma-latency (live)"}, Live},
		{"an appended node", pair, "name: pair\nnodes: {a: {}, b: {}, c: {gpus: 1}}",
			[]string{"c: added with cpus 1, memory 256MiB, image builtin, nics 1, gpus 1 (live)"}, Live},
		{"the last node removed", pair, "name: pair\nnodes: {a: {}}",
			[]string{"b: removed (live)"}, Live},
		{"the first node removed moves the others up", pair, "name: pair\nnodes: {b: {}}",
			[]string{"a: removed (live)", "b: address 10.0.0.2/24 -> 10.0.0.1/24 (live)"}, Live},
		{"another order", pair, "name: pair\nnodes: {b: {}, a: {}}",
			[]string{"b: address 10.0.0.2/24 -> 10.0.0.1/24 (live)", "a: address 10.0.0.1/24 -> 10.0.0.2/24 (live)"},
			Live},
		{"another subnet", pair, "name: pair\nfabric: {subnet: 10.9.0.0/16}\nnodes: {a: {}, b: {}}",
			[]string{"lab: fabric.subnet 10.0.0.0/24 -> 10.9.0.0/16 (live)",
				"a: address 10.0.0.1/24 -> 10.9.0.1/16 (live)",
				"b: address 10.0.0.2/24 -> 10.9.0.2/16 (live)"}, Live},
		{"everything of one node", pair, "name: pair\nnodes: {a: {}, b: {cpus: 2, memory: 1G, image: c.img, nics: 2, " +
			"gpus: 3}}",
			[]string{"b: cpus 1 -> 2 (recreate)", "b: memory 256MiB -> 1GiB (recreate)",
				"b: image builtin -> c.img (recreate)",
				"b: nics 1 -> 2 (recreate)", "b: gpus 0 -> 3 (recreate)"}, Recreate},
		{"fewer NICs", "name: pair\nnodes: {a: {nics: 2}}", "name: pair\nnodes: {a: {}}",
			[]string{"a: nics 2 -> 1 (recreate)"}, Recreate},
		{"another NIC", pair, "name: pair\nnodes: {a: {nic: virtio}, b: {}}",
			[]string{"a: nic auto -> virtio (recreate)"}, Recreate},
		{"a NIC left open", "name: pair\nnodes: {a: {nic: virtio}, b: {nic: connectx-5}}", pair, nil, ""},
		{"a driver", pair, "name: pair\ndriver: libvirt\nnodes: {a: {}, b: {}}",
			[]string{"lab: driver auto -> libvirt (rebuild)"}, Rebuild},
		{"another host of vSphere", "name: pair\ndriver: vsphere\nvsphere: {host: a, template: t}\nnodes: {a: {}}",
			"name: pair\ndriver: vsphere\nvsphere: {host: b, template: t}\nnodes: {a: {}}",
			[]string{"lab: vsphere.host a -> b (recreate)"}, Recreate},
		{"a new name", pair, "name: couple\nnodes: {a: {}, b: {}}",
			[]string{"lab: name pair -> couple (rebuild)"}, Rebuild},
		{"what the host keeps", pair, "name: pair\nhost: {reserve: {cores: 4, numa_nodes: {0: 2}}}\nnodes: {a: " +
			"{}, b: {}}",
			[]string{"lab: host.reserve none -> {cores: 4, numa_nodes: {0: {cores: 2}}} (recreate)"}, Recreate},
		{"pages and tenants", pair, "name: pair\nhugepages: off\ntenants: ignore\nnodes: {a: {}, b: {}}",
			[]string{"lab: hugepages auto -> off (recreate)", "lab: tenants read -> ignore (recreate)"}, Recreate},
		{"an affinity", "name: pair\naffinity: [{nodes: [a, b], numa: same}]\nnodes: {a: {}, b: {}}", pair,
			[]string{"lab: affinity {nodes: [a, b], numa: same} -> none (recreate)"}, Recreate},
		{"an affinity in other words", "name: x\naffinity: [{nodes: [vm], nic: different}]\nnodes: {vm: {count: 2}}",
			"name: x\naffinity: [{nodes: [vm00, vm01], nic: different}]\nnodes: {vm: {count: 2}}", nil, ""},
		{"placement of one node", pair, "name: pair\nnodes: {a: {}, b: {cpus: auto, memory: auto, smt: on, " +
			"guest_numa: off}}",
			[]string{"b: cpus 1 -> auto (recreate)", "b: memory 256MiB -> auto (recreate)",
				"b: smt auto -> on (recreate)",
				"b: guest_numa auto -> off (recreate)"}, Recreate},
		{"devices of one node", pair, "name: pair\nnodes: {a: {}, b: {gpus: [GPU0, 06:00.0], nics: {rate: 25Gb/s}, " +
			"vfs: 2}}",
			[]string{"b: nics 1 -> {count: 1, rate: 25Gb/s} (recreate)",
				`b: gpus 0 -> [GPU0, "0000:06:00.0"] (recreate)`, "b: vfs 0 -> 2 (recreate)"}, Recreate},
		{"a device in other words", "name: pair\nnodes: {a: {gpus: 06:00.0}}",
			"name: pair\nnodes: {a: {gpus: ['00000000:06:00.0']}}", nil, ""},
		{"a node with devices", pair, "name: pair\nnodes: {a: {}, b: {}, c: {cpus: auto, vfs: 2, gpus: {model: H20}}}",
			[]string{"c: added with cpus auto, memory 256MiB, image builtin, nics 0, gpus {count: 1, model: " +
				"\"H20\"}, vfs 2 (live)"}, Live},
		{"steps of setup", pair, "name: pair\nnodes: {a: {setup: [swapoff -a, {run: \"x\", check: y}]}, b: {}}",
			[]string{`a: setup none -> "swapoff -a", {run: x, check: "y"} (live)`}, Live},
		{"the controller of Slurm", "name: x\nnodes: {a: {image: debian-12+slurm}, b: {image: debian-12+slurm}}",
			"name: x\nslurm: {controller: b}\nnodes: {a: {image: debian-12+slurm}, b: {image: debian-12+slurm}}",
			[]string{"lab: slurm.controller a -> b (live)"}, Live},
		{"an architecture", "name: x\nnodes: {a: {}}", "name: x\narch: arm64\nnodes: {a: {}}",
			[]string{"lab: arch of this machine -> arm64 (rebuild)"}, Rebuild},
		{"several switches", pair, "name: pair\nfabric: {topology: leaf-spine, leaves: 2, spines: 3, rate: 1Gb/s}\n" +
			"nodes: {a: {}, b: {}}",
			[]string{"lab: fabric.topology one switch -> leaf-spine with 2 leaves and 3 spines at 1Gb/s (rebuild)"},
			Rebuild},
		{"another leaf", "name: x\nfabric: {topology: leaf-spine, leaves: 2, spines: 2}\nnodes: {a: {}, b: {}}",
			"name: x\nfabric: {topology: leaf-spine, leaves: 2, spines: 2}\nnodes: {a: {}, b: {leaf: 0}}",
			[]string{"b: leaf 1 -> 0 (recreate)"}, Recreate},
		{"a shared home", "name: x\nnodes: {a: {image: debian-12}, b: {}}",
			"name: x\nhome: shared\nnodes: {a: {image: debian-12}, b: {}}",
			[]string{"a: home own -> shared (recreate)"}, Recreate},
		{"a count that grows", "name: x\nnodes: {vm: {count: 2}}", "name: x\nnodes: {vm: {count: 3}}",
			[]string{"vm02: added with cpus 1, memory 256MiB, image builtin, nics 1 (live)"}, Live},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			changes := Diff(mustParse(t, tt.old), mustParse(t, tt.new))
			var got []string
			for _, c := range changes {
				got = append(got, c.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if effect := Dearest(changes); effect != tt.effect {
				t.Errorf("as a whole %q, want %q", effect, tt.effect)
			}
		})
	}
}

func TestDiffFields(t *testing.T) {
	got := Diff(mustParse(t, "name: x\nnodes: {a: {}}"), mustParse(t, "name: x\nnodes: {a: {cpus: 2}}"))
	want := []Change{{Node: "a", Key: "cpus", Old: "1", New: "2", Effect: Recreate}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A MAC can change without a change of the NIC's name only after a hash collision.
func TestDiffTellsOfMACs(t *testing.T) {
	from, to := mustParse(t, "name: x\nnodes: {a: {}}"), mustParse(t, "name: x\nnodes: {a: {}}")
	to.Nodes[0].NICs[0].MAC = "52:54:00:00:00:01"
	got := Diff(from, to)
	if len(got) != 1 || got[0].Key != "mac" || got[0].New != "52:54:00:00:00:01" || got[0].Effect != Recreate {
		t.Errorf("got %v", got)
	}
}

// Fields that an older version did not record are no changes.
func TestDiffOfLabsThatWereRecordedBefore(t *testing.T) {
	now := mustParse(t, "name: x\nnodes: {a: {nics: 2}, b: {}}")
	then := mustParse(t, "name: x\nnodes: {a: {nics: 2}, b: {}}")
	then.Hugepages, then.Tenants = "", ""
	for i := range then.Nodes {
		n := &then.Nodes[i]
		n.SMT, n.GuestNUMA, n.NICRequests = "", "", nil
	}
	if got := Diff(then, now); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

func TestDiffProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parse := func(text string) *Lab {
			l, err := Parse("drawn.yaml", []byte(text))
			if err != nil {
				t.Fatalf("%s\n%v", text, err)
			}
			return l
		}
		text := labText(t)
		a, b := parse(text), parse(labText(t))
		there, back := Diff(a, b), Diff(b, a)
		// auto keeps the model, so the difference exists in one direction only.
		nic := func(c Change) bool { return c.Key == "nic" }
		there, back = slices.DeleteFunc(there, nic), slices.DeleteFunc(back, nic)
		if len(there) != len(back) {
			t.Fatalf("%d changes there, %d back:\n%v\n%v", len(there), len(back), there, back)
		}
		for _, c := range there {
			if c.Old == c.New || c.Effect == "" || c.Key == "" {
				t.Fatalf("a change that is none: %+v", c)
			}
		}
		grown := Diff(a, parse(text+"  zz-last-0: {}\n"))
		if len(grown) != 1 || grown[0].Node != "zz-last-0" || grown[0].Effect != Live {
			t.Fatalf("appending a node changes %v", grown)
		}
		if !strings.HasPrefix(grown[0].String(), "zz-last-0: added with ") {
			t.Fatalf("prints %s", grown[0])
		}
	})
}
