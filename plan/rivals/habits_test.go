package rivals

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

func TestFloatingIsSpreadAndSaid(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 2, cores: 8, threads: 2, packages: 2, l3: 8, far: 20, pages: 16}.problem()
	p.ReserveCores = 2
	p.Requests = []plan.Request{request("a", 4, 8), request("b", 4, 20)}
	o := place(t, p, "libvirt-default")
	want := []plan.NodePlacement{
		{Cores: []int{2, 3, 8, 9}, Memory: []plan.NodePage{{NUMANode: 0, Pages: 4}, {NUMANode: 1, Pages: 4}}},
		{Cores: []int{4, 5, 10, 11}, Memory: []plan.NodePage{{NUMANode: 0, Pages: 10}, {NUMANode: 1, Pages: 10}}},
	}
	if diff := cmp.Diff(want, o.Placement.Nodes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	broken := []string{"a and b float over the same CPUs",
		"a and b float over the host's CPUs too: nothing is kept for it"}
	if diff := cmp.Diff(broken, o.Broken); diff != "" {
		t.Errorf("broken (-want +got)\n%s", diff)
	}
}

func TestMemoryThatIsUsedUpComesFromTheNearestNode(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 3, cores: 2, threads: 1, packages: 1, l3: 2, far: 30, pages: 8}.problem()
	p.NUMANodes[0].Distances = []int{10, 30, 20}
	*p.NUMANodes[0].Pages = 2
	h := newHost(p)
	got, err := h.touch(6, []int{0, 1}, []int{0, 1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]plan.NodePage{{NUMANode: 0, Pages: 2}, {NUMANode: 2, Pages: 4}}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestPinningByHand(t *testing.T) {
	t.Parallel()
	m := machine{nodes: 2, cores: 4, threads: 2, packages: 2, l3: 4, far: 20, pages: 16}
	for _, tt := range []struct {
		name     string
		id       string
		requests []plan.Request
		cores    []string
		broken   []string
		refused  string
	}{
		{"CPU by CPU, two domains meet on the threads of the same cores", "hand-vcpupin",
			[]plan.Request{request("a", 3, 2), request("b", 3, 2)}, []string{"1-2,4", "1,3,7"},
			[]string{"a and b share cores 1-5"}, ""},
		{"core by core, each has its own", "hand-vcpupin-cores",
			[]plan.Request{request("a", 3, 2), request("b", 3, 2)}, []string{"1-3", "4-6"}, nil, ""},
		{"without SMT the first thread of each core is taken", "hand-vcpupin",
			[]plan.Request{{Name: "a", VCPUs: 3, Threads: 1, Cores: 3, Pages: 2}, {Name: "b", VCPUs: 4, Threads: 1,
				Cores: 4, Pages: 2}}, []string{"1-3", "4-7"}, nil, ""},
		{"the list is used up", "hand-vcpupin-cores",
			[]plan.Request{request("a", 5, 2), request("b", 3, 2)}, nil, nil, "b: 4 CPUs are left, 6 vCPUs to pin"},
		{"memory is bound to the nodes of the CPUs", "hand-vcpupin-cores",
			[]plan.Request{request("a", 2, 17)}, nil, nil,
			"a: not enough memory: 16 pages of 1 GiB on NUMA nodes 0, 17 asked for"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := m.problem()
			p.ReserveCores = 1
			p.Requests = tt.requests
			o := place(t, p, tt.id)
			var cores []string
			if o.Placement != nil {
				for _, n := range o.Placement.Nodes {
					cores = append(cores, numbers(n.Cores))
				}
			}
			if diff := cmp.Diff(tt.cores, cores); diff != "" {
				t.Errorf("cores (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.broken, o.Broken); diff != "" {
				t.Errorf("broken (-want +got)\n%s", diff)
			}
			if o.Refused != tt.refused {
				t.Errorf("refused %q, want %q", o.Refused, tt.refused)
			}
		})
	}
}

func TestDevicesAreTakenInAddressOrder(t *testing.T) {
	t.Parallel()
	nic := func(id string, bundle, vfs int) plan.Device {
		return plan.Device{ID: id, Kind: plan.KindNIC, Bundle: bundle, Whole: true, VFs: vfs}
	}
	p := machine{nodes: 1, cores: 8, threads: 2, packages: 1, l3: 8, pages: 16}.problem()
	p.Devices = []plan.Device{nic("0000:01:00.0", 0, 4), nic("0000:01:00.1", 0, 4), nic("0000:02:00.0", 1, 4),
		nic("0000:03:00.0", 2, 4)}
	any := []int{0, 1, 2, 3}
	ask := func(name string, change func(r *plan.Request)) plan.Request {
		r := request(name, 1, 1)
		change(&r)
		return r
	}
	whole := func(n int, from ...int) func(r *plan.Request) {
		return func(r *plan.Request) { r.NICs = append(r.NICs, plan.Want{Count: n, Any: from}) }
	}
	vfs := func(n int) func(r *plan.Request) {
		return func(r *plan.Request) { r.VFs = append(r.VFs, plan.Want{Count: n, Any: any}) }
	}
	for _, tt := range []struct {
		name     string
		requests []plan.Request
		want     string
	}{
		{"the first that is free", []plan.Request{ask("a", whole(1, any...)), ask("b", whole(1, any...))}, "0| 2|"},
		{"a bundle that one has is not on offer to another", []plan.Request{ask("a", whole(1, 1, 2)),
			ask("b", whole(1, any...))}, "1| 2|"},
		{"but to the same one", []plan.Request{ask("a", whole(2, any...))}, "0-1|"},
		{"what a later one names is left to it, with its bundle", []plan.Request{ask("a", whole(1, any...)),
			ask("b", whole(1, 1))}, "2| 1|"},
		{"a named one goes before any", []plan.Request{ask("a", func(r *plan.Request) {
			whole(1, any...)(r)
			whole(1, 0)(r)
		})}, "0-1|"},
		{"virtual functions fill a NIC before the next", []plan.Request{ask("a", vfs(3)), ask("b", vfs(2))},
			"|0x3 |0x1 1x1"},
		{"a NIC with virtual functions in use is not given whole, nor its bundle", []plan.Request{ask("a", vfs(1)),
			ask("b", whole(1, any...))}, "|0x1 2|"},
		{"and one that is given whole gives no virtual functions", []plan.Request{ask("a", whole(1, any...)),
			ask("b", vfs(1))}, "0| |2x1"},
		{"too few", []plan.Request{ask("a", whole(3, 0, 1, 3)), ask("b", whole(2, any...))}, "b: 1 of 2 NICs are free"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := *p
			q.Requests = tt.requests
			o := place(t, &q, "hand-vcpupin-cores")
			got := o.Refused
			if o.Placement != nil {
				var parts []string
				for _, n := range o.Placement.Nodes {
					text := numbers(n.NICs) + "|"
					for k, v := range n.VFs {
						if k > 0 {
							text += " "
						}
						text += numbers([]int{v.Device}) + "x" + numbers([]int{v.Count})
					}
					parts = append(parts, text)
				}
				got = strings.Join(parts, " ")
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestARivalCannotBeToldAffinity(t *testing.T) {
	t.Parallel()
	p := epycPair()
	for i := range p.Requests {
		p.Requests[i].VCPUs, p.Requests[i].Cores = 24, 12
	}
	p.Affinity = []plan.Affinity{{Requests: []int{0, 1}, NUMA: plan.Same, NIC: plan.Same}}
	o := place(t, p, "hand-vcpupin-cores")
	want := []string{"vm00 and vm01 are not on same NUMA nodes", "vm00 and vm01 are not on same NICs"}
	if diff := cmp.Diff(want, o.Broken); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	p.Affinity[0] = plan.Affinity{Requests: []int{0, 1}, NUMA: plan.Different, NIC: plan.Different}
	if o = place(t, p, "hand-vcpupin-cores"); len(o.Broken) > 0 {
		t.Errorf("kept by chance, but called broken: %q", o.Broken)
	}
}
