package emulated

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm"
)

func daemonOf(t *testing.T, all []checks.Adapter, gpus []listedGPU) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rll")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, agentsSocket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var q request
			if json.NewDecoder(conn).Decode(&q) == nil && q.List && all != nil {
				_ = json.NewEncoder(conn).Encode(listed{Adapters: all, GPUs: gpus})
			}
			conn.Close()
		}
	}()
	return dir
}

// Such a node runs on without a network: it is neither running nor as it was.
func TestNodesThatLostTheirAdapters(t *testing.T) {
	t.Parallel()
	alive, err := vm.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	earlier := alive
	earlier.PID++
	l := parseText(t, "name: x\nnodes: {a: {nic: connectx-5, nics: 2}, b: {nic: connectx-5}, c: {nic: virtio}}\n")
	adapters := func(connected ...bool) (all []checks.Adapter) {
		all = []checks.Adapter{{Node: "a", NIC: "eth0"}, {Node: "a", NIC: "eth1"}, {Node: "b", NIC: "eth0"}}
		for i := range all {
			all[i].Connected = connected[i]
		}
		return all
	}
	for name, test := range map[string]struct {
		listed []checks.Adapter
		gpus   []listedGPU
		daemon *vm.Process // of the nodes' adapters
		want   map[string]string
	}{
		"all are connected": {adapters(true, true, true), nil, &alive, map[string]string{}},
		"one has lost its machine": {adapters(true, false, true), nil, &alive,
			map[string]string{"a": "the connection to its NIC eth1 ended"}},
		"a GPU has lost its machine": {adapters(true, true, true), []listedGPU{{Node: "a",
			Status: gpu.Status{Connected: true}},
			{Node: "b"}}, &alive, map[string]string{"b": "the connection to its GPU 0 ended"}},
		"the daemon is another": {adapters(true, true, true), nil, &earlier,
			map[string]string{"a": "the lab's daemon ended", "b": "the lab's daemon ended"}},
		"the daemon cannot be asked": {nil, nil, &alive, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := daemonOf(t, test.listed, test.gpus)
			s := &rack.State{Lab: l, Ready: true, Daemon: &alive}
			for _, n := range l.Nodes {
				node := &rack.Node{Name: n.Name, Process: alive, Ready: true}
				if n.ConnectX() {
					node.Adapters = test.daemon
				}
				s.Nodes = append(s.Nodes, node)
			}
			lost, err := findLost(t.Context(), dir, s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if got := whole(s, lost); got != (len(test.want) == 0) {
				t.Errorf("up leaves the lab as it was: %v", got)
			}
			u := &upRun{Rack: &rack.Rack{Lab: l}, lost: lost}
			keep, drop := u.sort(s)
			for _, n := range drop {
				if test.want[n.Name] == "" {
					t.Errorf("%s is started again", n.Name)
				}
			}
			if len(drop) != len(test.want) || len(keep)+len(drop) != len(s.Nodes) {
				t.Errorf("%d nodes stay and %d go", len(keep), len(drop))
			}
		})
	}
	t.Run("a daemon that does not answer", func(t *testing.T) {
		t.Parallel()
		s := &rack.State{Lab: l, Daemon: &alive, Nodes: []*rack.Node{{Name: "a", Adapters: &alive}}}
		if lost, err := findLost(t.Context(), t.TempDir(), s); err == nil ||
			!strings.HasPrefix(err.Error(), "lab x: its daemon does not answer: ") {
			t.Errorf("got %v, %v", lost, err)
		}
	})
}
