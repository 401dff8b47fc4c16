package rivals

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

// The facts are those of Nova's documentation (thread policies) and of the comments in _pack_instance_onto_cores.
func TestNovaPacksVCPUsOntoSiblings(t *testing.T) {
	t.Parallel()
	four := [][]int{{0, 4}, {1, 5}, {2, 6}, {3, 7}}
	for _, tt := range []struct {
		name     string
		siblings [][]int
		vcpus    int
		prefer   []int
		isolate  []int
	}{
		{"whole cores in order", four, 4, []int{0, 4, 1, 5}, []int{0, 1, 2, 3}},
		{"an odd one leaves a thread over", four, 3, []int{0, 4, 1}, []int{0, 1, 2}},
		{"a core with one thread left is passed over", [][]int{{1, 5}, {6}, {3, 7}}, 4, []int{1, 5, 3, 7}, nil},
		{"single threads where pairs do not do", [][]int{{1, 5}, {6}, {7}}, 3, []int{1, 6, 7}, nil},
		{"everything where nothing else does", [][]int{{1, 5}, {6}, {7}}, 4, []int{1, 5, 6, 7}, nil},
		{"too few", [][]int{{1, 5}}, 3, nil, nil},
		{"more vCPUs than cores", four, 5, []int{0, 4, 1, 5, 2}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.prefer, packPrefer(tt.siblings, tt.vcpus)); diff != "" {
				t.Errorf("prefer (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.isolate, packIsolate(tt.siblings, 2, tt.vcpus)); diff != "" {
				t.Errorf("isolate (-want +got)\n%s", diff)
			}
		})
	}
}

// cells returns the NUMA nodes of each lab node's cores, "0|1,2", or the refusal.
func cells(p *plan.Problem, o *Outcome) string {
	if o.Placement == nil {
		return o.Refused
	}
	node := map[int]int{}
	for _, c := range p.Cores {
		node[c.ID] = c.NUMANode
	}
	var all []string
	for _, n := range o.Placement.Nodes {
		var nodes []int
		for _, c := range n.Cores {
			nodes = append(nodes, node[c])
		}
		all = append(all, numbers(nodes))
	}
	return strings.Join(all, "|")
}

func TestNovaOrdersHostCells(t *testing.T) {
	t.Parallel()
	m := machine{nodes: 3, cores: 8, threads: 2, packages: 1, l3: 8, far: 20, pages: 32}
	gpu := func(node int) plan.Device {
		return plan.Device{ID: "0000:0" + string(rune('1'+node)) + ":00.0", Kind: plan.KindGPU, NUMANode: &node,
			Bundle: node, Whole: true}
	}
	for _, tt := range []struct {
		name         string
		change       func(p *plan.Problem)
		spread, pack string
	}{
		{"equal cells go in order", func(p *plan.Problem) {
			p.Requests = []plan.Request{request("a", 2, 2), request("b", 2, 2), request("c", 2, 2)}
		}, "0|1|2", "0|0|0"},
		{"CPUs count more than memory", func(p *plan.Problem) {
			*p.NUMANodes[0].Pages = 64
			p.Cores[3].Tenant = "old"
			p.Requests = []plan.Request{request("a", 2, 2)}
		}, "1", "0"},
		{"memory decides between equal CPUs", func(p *plan.Problem) {
			*p.NUMANodes[2].Pages = 64
			*p.NUMANodes[1].Pages = 16
			p.Requests = []plan.Request{request("a", 2, 2)}
		}, "2", "1"},
		{"cells with devices come first for those who want some, whatever the strategy", func(p *plan.Problem) {
			p.Devices = []plan.Device{gpu(2)}
			p.Requests = []plan.Request{request("a", 2, 2)}
			p.Requests[0].GPUs = []plan.Want{{Count: 1, Any: []int{0}}}
		}, "2", "2"},
		{"and last for those who do not", func(p *plan.Problem) {
			p.Devices = []plan.Device{gpu(0)}
			p.Requests = []plan.Request{request("a", 2, 2), request("b", 2, 2)}
			p.Requests[1].GPUs = []plan.Want{{Count: 1, Any: []int{0}}}
		}, "1|0", "1|0"},
		{"an instance larger than a cell gets as many guest cells as it needs", func(p *plan.Problem) {
			p.Requests = []plan.Request{request("a", 12, 12)}
		}, "0-1", "0-1"},
		{"memory can be the reason too", func(p *plan.Problem) {
			p.Requests = []plan.Request{request("a", 3, 70)}
		}, "0-2", "0-2"},
		{"nothing is overcommitted", func(p *plan.Problem) {
			p.Requests = []plan.Request{request("a", 8, 2), request("b", 8, 2), request("c", 8, 2), request("d", 1, 1)}
		}, "d: no valid host was found: NUMATopologyFilter finds no host cells for hw:numa_nodes=1 or more",
			"d: no valid host was found: NUMATopologyFilter finds no host cells for hw:numa_nodes=1 or more"},
		{"more than the host", func(p *plan.Problem) {
			p.Requests = []plan.Request{request("a", 25, 2)}
		}, "a: the host is too small for it, whatever hw:numa_nodes",
			"a: the host is too small for it, whatever hw:numa_nodes"},
	} {
		for id, want := range map[string]string{"nova": tt.spread, "nova-pack": tt.pack} {
			t.Run(tt.name+": "+id, func(t *testing.T) {
				t.Parallel()
				p := m.problem()
				tt.change(p)
				addPaths(p, byNUMA)
				if got := cells(p, place(t, p, id)); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
	}
}

// A guest cell for each host cell leaves nothing to choose, and Nova does not sort then: the larger guest cell goes to
// the first host cell, although the second has more CPUs free.
func TestNovaDoesNotSortHostCellsThatAllAreNeeded(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 2, cores: 4, threads: 1, packages: 2, l3: 4, far: 20, pages: 16}.problem()
	p.Cores[0].Tenant = "web"
	p.Requests = []plan.Request{{Name: "a", VCPUs: 5, Threads: 1, Cores: 5, Pages: 2, GuestNUMA: "auto"}}
	o, err := Place(p, "nova")
	if err != nil || o.Placement == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5}, o.Placement.Nodes[0].Cores); diff != "" {
		t.Errorf("cores (-want +got)\n%s", diff)
	}
}

func TestNovaReservesInEachNUMANode(t *testing.T) {
	t.Parallel()
	h := newHost(epycPair())
	h.reserve(true)
	if got := keptCores(h); got != "0,8,16,24" {
		t.Errorf("spread: got %s", got)
	}
	h = newHost(epycPair())
	h.reserve(false)
	if got := keptCores(h); got != "0-3" {
		t.Errorf("lowest: got %s", got)
	}
}

func keptCores(h *host) string {
	var kept []int
	for c := range h.p.Cores {
		if h.reserved[c] {
			kept = append(kept, h.p.Cores[c].ID)
		}
	}
	return numbers(kept)
}

func TestTheReserveServesNodesAndBusyPackagesFirst(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 2, cores: 4, threads: 2, packages: 2, l3: 4, far: 20, pages: 8}.problem()
	p.ReserveCores = 3
	p.NUMANodes[1].ReserveCores = 1
	p.Packages[0].Busy = "nvme0n1 is the root disk"
	p.Cores[0].Tenant = "old"
	h := newHost(p)
	h.reserve(false)
	if got := keptCores(h); got != "1-2,4" {
		t.Errorf("got %s, want 1-2,4", got)
	}
}

func TestNovaWidensTheFlavorForDevicesOnOtherNodes(t *testing.T) {
	t.Parallel()
	p := epycPair()
	p.ReserveCores = 0
	p.Requests = []plan.Request{request("a", 4, 4)}
	p.Requests[0].GPUs = []plan.Want{{Count: 1, Any: []int{1}}}
	p.Requests[0].NICs = []plan.Want{{Count: 1, Any: []int{3}}}
	o := place(t, p, "nova")
	if got := cells(p, o); got != "1,3" {
		t.Errorf("got cells %s, want 1,3", got)
	}
	want := []string{"a: no host cells for hw:numa_nodes=1; placed with hw:numa_nodes=2 and PCI NUMA policy legacy"}
	if diff := cmp.Diff(want, o.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}

	p.Requests[0].Cores, p.Requests[0].VCPUs, p.Requests[0].Pages = 1, 2, 1 // cannot be split
	o = place(t, p, "nova")
	want = []string{"a: no host cells for hw:numa_nodes=1; placed with hw:numa_nodes=1 and PCI NUMA policy preferred"}
	if diff := cmp.Diff(want, o.Notes); diff != "" {
		t.Errorf("notes (-want +got)\n%s", diff)
	}
}

func TestNovaUsesPoolsFromTheirEnd(t *testing.T) {
	t.Parallel()
	nic := func(id string, node *int, bundle, vfs int) plan.Device {
		return plan.Device{ID: id, Kind: plan.KindNIC, NUMANode: node, Model: "m", Bundle: bundle, Whole: true,
			VFs: vfs}
	}
	p := machine{nodes: 2, cores: 4, threads: 2, packages: 1, l3: 4, far: 20, pages: 8}.problem()
	p.Devices = []plan.Device{nic("0000:01:00.0", new(0), 0, 2), nic("0000:02:00.0", new(0), 1, 2),
		nic("0000:03:00.0", nil, 2, 2), nic("0000:41:00.0", new(1), 3, 2)}
	all := []int{0, 1, 2, 3}
	for _, tt := range []struct {
		name      string
		want      want
		cells     []int
		preferred bool
		whole     []int
		vfs       []plan.VFCount
		ok        bool
	}{
		{"whole devices of one pool: the last first", want{plan.Want{Count: 1, Any: all}, wantNIC}, []int{0}, false,
			[]int{1}, nil, true},
		{"a device without a node where the cell has too few", want{plan.Want{Count: 3, Any: all}, wantNIC}, []int{0},
			false, []int{0, 1, 2}, nil, true},
		{"not one of another node under legacy", want{plan.Want{Count: 4, Any: all}, wantNIC}, []int{0}, false, nil,
			nil, false},
		{"but under preferred", want{plan.Want{Count: 4, Any: all}, wantNIC}, []int{0}, true, all, nil, true},
		{"virtual functions: a pool for each parent, in order", want{plan.Want{Count: 3, Any: all}, wantVF}, []int{0},
			false, nil, []plan.VFCount{{Device: 0, Count: 2}, {Device: 1, Count: 1}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := *p
			r := request("a", 1, 1)
			if tt.want.kind == wantVF {
				r.VFs = []plan.Want{tt.want.Want}
			} else {
				r.NICs = []plan.Want{tt.want.Want}
			}
			q.Requests = []plan.Request{r}
			h := newHost(&q)
			n, ok := h.novaDevices(0, tt.cells, tt.preferred)
			slices.Sort(n.NICs)
			if ok != tt.ok || !slices.Equal(n.NICs, tt.whole) || !slices.Equal(n.VFs, tt.vfs) {
				t.Errorf("got %v %v %v, want %v %v %v", n.NICs, n.VFs, ok, tt.whole, tt.vfs, tt.ok)
			}
			if slices.Max(h.gone) != 0 || h.vfs[0] != 2 {
				t.Error("the trial took devices")
			}
		})
	}
}

func TestNovaIsolatesALabNodeWithoutSMT(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 2, cores: 4, threads: 2, packages: 1, l3: 4, far: 20, pages: 8}.problem()
	p.Requests = []plan.Request{{Name: "a", VCPUs: 4, Threads: 1, Cores: 4, Pages: 1}, {Name: "b", VCPUs: 4, Threads: 1,
		Cores: 4, Pages: 1}, request("c", 1, 1)}
	o := place(t, p, "nova")
	if want := "c: no valid host was found"; !strings.HasPrefix(o.Refused, want) {
		t.Errorf("the siblings of isolated vCPUs were given away: %+v", o)
	}
	p.Requests = p.Requests[:2]
	if got := cells(p, place(t, p, "nova")); got != "0|1" {
		t.Errorf("got %s, want 0|1", got)
	}
}

func TestNovaGivesUpInBoundedTime(t *testing.T) {
	t.Parallel()
	p := machine{nodes: 32, cores: 4, threads: 2, packages: 1, l3: 4, far: 20, pages: 8}.problem()
	nowhere := plan.Device{ID: "0000:01:00.0", Kind: plan.KindNIC, NUMANode: new(0), Whole: true}
	other := nowhere
	other.ID, other.NUMANode, other.Bundle = "0000:02:00.0", new(31), 1
	p.Devices = []plan.Device{nowhere, other}
	p.NUMANodes[31].Pages = new(int64(0)) // the second NIC's node holds nobody
	p.Requests = []plan.Request{request("a", 60, 60)}
	p.Requests[0].NICs = []plan.Want{{Count: 2, Any: []int{0, 1}}}
	o := place(t, p, "nova")
	if want := "a: no valid host was found: given up after 50000 fits of guest cells"; o.Refused != want {
		t.Errorf("got %q, want %q", o.Refused, want)
	}
}
