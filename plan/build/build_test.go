package build_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/internal/golden"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

func readHost(t testing.TB, path string) *topology.Host {
	t.Helper()
	h, err := inspect.ReadFile(t.Context(), filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func epyc(t testing.TB) *topology.Host { return readHost(t, "../../examples/hosts/epyc-7551p.ttar") }
func h20(t testing.TB) *topology.Host  { return readHost(t, "../../examples/hosts/h20.txt") }

type change func(*lab.Node)

// labOf returns a lab of n nodes with 4 CPUs, 4 GiB and no devices.
func labOf(n int, changes ...change) *lab.Lab {
	l := &lab.Lab{Name: "test", Workload: lab.WorkloadMixed, Hugepages: lab.HugepagesAuto, Tenants: lab.TenantsRead}
	for i := range n {
		node := lab.Node{Name: "vm0" + string(rune('0'+i)), CPUs: 4, Memory: 4 * lab.GiB, SMT: lab.Auto,
			GuestNUMA: lab.Auto}
		for _, c := range changes {
			c(&node)
		}
		l.Nodes = append(l.Nodes, node)
	}
	return l
}

func cpus(n int) change         { return func(v *lab.Node) { v.CPUs = n } }
func autoCPUs() change          { return func(v *lab.Node) { v.CPUs, v.AutoCPUs = 1, true } }
func memory(b lab.Bytes) change { return func(v *lab.Node) { v.Memory = b } }
func autoMemory() change        { return func(v *lab.Node) { v.AutoMemory = true } }
func smt(s lab.Setting) change  { return func(v *lab.Node) { v.SMT = s } }

func gpus(requests ...lab.DeviceRequest) change {
	return func(v *lab.Node) {
		v.GPURequests = requests
		for _, r := range requests {
			v.GPUs += r.Count
		}
	}
}

func nics(requests ...lab.DeviceRequest) change {
	return func(v *lab.Node) {
		v.NICRequests = requests
		for _, r := range requests {
			v.NICs = append(v.NICs, make([]lab.NIC, r.Count)...)
		}
	}
}

func vfs(requests ...lab.DeviceRequest) change {
	return func(v *lab.Node) {
		v.VFRequests = requests
		for _, r := range requests {
			v.NICs = append(v.NICs, make([]lab.NIC, r.Count)...)
			v.VFs += r.Count
		}
	}
}

func some(n int) lab.DeviceRequest     { return lab.DeviceRequest{Count: n} }
func at(addr string) lab.DeviceRequest { return lab.DeviceRequest{Count: 1, Address: addr} }

func problem(t testing.TB, h *topology.Host, l *lab.Lab, o build.Options) *plan.Problem {
	t.Helper()
	p, err := build.Problem(h, l, o)
	if err != nil {
		t.Fatalf("Problem: %v", err)
	}
	return p
}

// pretty has one line per list element, so that changes are readable.
func pretty(t *testing.T, p *plan.Problem) []byte {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("{\n")
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for first := true; d.More(); first = false {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if !first {
			b.WriteString(",\n")
		}
		b.WriteString("  \"" + key.(string) + "\": ")
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || len(list) == 0 {
			b.Write(value)
			continue
		}
		for i, e := range list {
			b.WriteString(map[bool]string{true: "[\n    ", false: ",\n    "}[i == 0])
			b.Write(e)
		}
		b.WriteString("\n  ]")
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

func TestProblemsOfTheExamples(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		host func(testing.TB) *topology.Host
		lab  *lab.Lab
		o    build.Options
	}{
		{"epyc-two-nodes", epyc, labOf(2, cpus(28), memory(32*lab.GiB), gpus(some(1)), nics(some(1))),
			build.Options{HostName: "epyc-7551p"}},
		{"epyc-vfs-and-auto", epyc, labOf(4, autoCPUs(), autoMemory(),
			vfs(lab.DeviceRequest{Count: 1, Vendor: "mellanox"})), build.Options{HostName: "epyc-7551p"}},
		{"h20-four-nodes", h20, labOf(4, cpus(40), memory(256*lab.GiB), gpus(some(2)), nics(some(1))),
			build.Options{HostName: "h20"}},
		{"h20-eight-nodes-measured", h20, labOf(8, cpus(20), memory(64*lab.GiB), gpus(some(1)), vfs(some(1))),
			build.Options{
				HostName: "h20",
				Model: &build.Model{Source: "ib_write_bw --use_cuda, one pair after the other",
					Weights: map[string]int64{"numa_span": 2000}, Pairs: []build.MeasuredPair{
						{"GPU0", "NIC0", 392}, {"GPU1", "NIC0", 390}, {"GPU2", "NIC0", 350}, {"GPU3", "NIC0", 391.9},
					}},
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := problem(t, test.host(t), test.lab, test.o)
			got := pretty(t, p)
			var back plan.Problem
			if err := json.Unmarshal(got, &back); err != nil {
				t.Fatalf("the golden form is not JSON: %v", err)
			}
			if diff := cmp.Diff(p, &back); diff != "" {
				t.Errorf("the JSON form loses something (-problem +read back):\n%s", diff)
			}
			golden.Check(t, filepath.Join("testdata", "new", test.name+".json"), got)
		})
	}
}
