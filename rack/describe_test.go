package rack

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/facts"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/vm"
)

func twoNICs(t *testing.T) lab.Node {
	t.Helper()
	l, err := lab.Parse("x.yaml", []byte("name: x\nnodes:\n  a: {nics: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return l.Nodes[0]
}

func TestDescribeNode(t *testing.T) {
	n := twoNICs(t)
	began := time.Unix(1000, 0)
	running := &Node{
		Process: vm.Process{PID: 7}, Cloned: true, Started: began,
		Facts: &facts.Node{Host: topology.Host{NICs: []topology.NIC{
			{Name: "eth0", Devices: []topology.RDMADevice{{Name: "rxe1", Ports: []topology.RDMAPort{{Number: 1,
				GIDs: []topology.GID{{Index: 3, GID: "::ffff:10.0.0.1", Type: "RoCE v2", Netdev: "eth0"}}}}}}},
			{Name: "eth1", Devices: []topology.RDMADevice{{Name: "rxe0"}}},
		}}},
	}
	gid := 3
	nics := []NICDescription{
		{Name: "eth0", MAC: n.NICs[0].MAC, Address: "10.0.0.1/24", RDMA: "rxe1", GID: &gid},
		{Name: "eth1", MAC: n.NICs[1].MAC, Address: "10.0.1.1/24", RDMA: "rxe0"},
	}
	bare := []NICDescription{{Name: "eth0", MAC: n.NICs[0].MAC, Address: "10.0.0.1/24"},
		{Name: "eth1", MAC: n.NICs[1].MAC,
			Address: "10.0.1.1/24"}}
	tests := []struct {
		name string
		in   NodeStatus
		want NodeDescription
	}{
		{"one that runs", NodeStatus{Lab: n, Node: running, State: vm.Running},
			NodeDescription{Name: "a", State: "running", PID: 7, CPUs: 1, Memory: 256 << 20, Cloned: true,
				Started: &began,
				NICs:    nics}},
		{"one that was not started yet", NodeStatus{Lab: n, State: Starting},
			NodeDescription{Name: "a", State: "starting", CPUs: 1, Memory: 256 << 20, NICs: bare}},
		{"one that does not say", NodeStatus{Lab: n, Node: &Node{Started: began},
			Err: errors.New("refused")},
			NodeDescription{Name: "a", State: "unknown", Error: "refused", CPUs: 1, Memory: 256 << 20, Started: &began,
				NICs: bare}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, describeNode(tt.in)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
