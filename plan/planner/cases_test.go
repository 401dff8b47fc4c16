package planner

import (
	"errors"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan"
)

// The requests are refused by counting. The message must name nothing else.
func TestAReasonNamesOnlyWhatConflicts(t *testing.T) {
	t.Parallel()
	h, name, err := Hosts{}.Read(t.Context(), "../../examples/hosts/h20.txt")
	if err != nil {
		t.Fatal(err)
	}
	for nodes, want := range map[string]string{
		"{vm: {count: 9, cpus: 4, memory: 8GiB, gpus: 1, nics: 0}}": "vm00 to vm08 cannot all be placed: 9 GPUs are " +
			"asked for and 8 are there",
		"{vm: {count: 5, cpus: 4, memory: 8GiB, nics: 1}}": "vm00 to vm04 cannot all be placed: 5 NICs are asked for " +
			"and 4 are there",
		"{a: {count: 2, cpus: 90, memory: 4GiB, nics: 0}, " +
			"g: {count: 3, cpus: 4, memory: 4GiB, gpus: 3, nics: 0}}": "g00, g01 and g02 cannot all be placed: " +
			"9 GPUs are asked for and 8 are there",
		"{vm: {count: 3, cpus: 4, memory: 4GiB, nics: 0}}\n" +
			"affinity: [{nodes: [vm], numa: different}]": "vm00, vm01 and vm02 cannot all be placed: " +
			"they must be on different NUMA nodes, and 2 NUMA nodes have cores to give",
		"{vm: {count: 3, cpus: 64, memory: 4GiB, nics: 0}}": "vm00, vm01 and vm02 cannot all be placed: each " +
			"needs 32 " +
			"cores (64 vCPUs), and of 96 cores 94 can be given (the host keeps 2 cores)",
	} {
		l, err := lab.Parse("lab.yaml", []byte("name: x\nnodes: "+nodes))
		if err != nil {
			t.Fatal(err)
		}
		q, err := New(name, "lab.yaml", l, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.Solve(t.Context(), h, l)
		if reason, ok := errors.AsType[*plan.Infeasible](err); !ok || reason.Message != want {
			t.Errorf("%s\nwant %s\n got %v", nodes, want, err)
		}
	}
}

// Another solver once found a better plan, or one at all.
func TestNoWorsePlanIsLeft(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, host, lab string
		most            int64
	}{
		{"two lab nodes that take all cores of the same NUMA nodes", "xml/192em64t-24n8c2t.xml", `name: same
workload: rdma-latency
host: {reserve: {cores: 24}}
nodes: {vm: {count: 2, cpus: auto, memory: 94GiB, smt: 'on', nics: 2}}
affinity: [{nodes: [vm00, vm01], numa: same}]
`, 54752}, // 49556 without the term for cores near devices
		{"eight lab nodes under caches of which a tenant has some cores each", "x86-xml/AMD-19h-Zen3-2xEpyc-7763.xml",
			`name: eight
workload: rdma-latency
tenants: testdata/eight-on-two-7763.tenants.json
defaults: {nics: 0}
nodes:
  n0: {cpus: 24, memory: 106GiB}
  n1: {cpus: 14, memory: 31GiB}
  n2: {cpus: 8, memory: 45GiB}
  n3: {cpus: 4, memory: 23GiB}
  n4: {cpus: 10, memory: 68GiB, guest_numa: off}
  n5: {cpus: 9, memory: 18944MiB}
  n6: {cpus: 1, memory: 15GiB}
  n7: {cpus: 4, memory: 44GiB, guest_numa: off}
affinity: [{nodes: [n3, n0], numa: same}]
`, 1500},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, name, err := Hosts{}.Read(t.Context(), "../../machine/dump/hwlocxml/testdata/"+tt.host)
			if err != nil {
				t.Fatal(err)
			}
			l, err := lab.Parse("lab.yaml", []byte(tt.lab))
			if err != nil {
				t.Fatal(err)
			}
			q, err := New(name, "lab.yaml", l, "")
			if err != nil {
				t.Fatal(err)
			}
			q.Steps = 3_000_000
			r, err := q.Solve(t.Context(), h, l)
			if err != nil {
				t.Fatal(err)
			}
			if r.Plan.Cost > tt.most {
				t.Errorf("cost %d, want at most %d", r.Plan.Cost, tt.most)
			}
		})
	}
}
