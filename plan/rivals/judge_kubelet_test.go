package rivals

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/plan"
)

// The machine and its pods as testdata/kubelet reads them, and what it answers.
type kubeletMachine struct {
	Policy   string        `json:"policy"`
	CPUs     []kubeletCPU  `json:"cpus"`
	Reserved []int         `json:"reserved"`
	Memory   map[int]int64 `json:"memory"`
	Pods     []kubeletPod  `json:"pods"`
}

type kubeletCPU struct{ CPU, Core, Socket, Node int }

type kubeletPod struct {
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
}

type kubeletAnswer struct {
	CPUs    []int  `json:"cpus,omitempty"`
	Nodes   []int  `json:"nodes,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// kubeletPods places a lab by our rules of the kubelet, until a pod is refused.
func kubeletPods(p *plan.Problem, policy string) (m kubeletMachine, ours []kubeletAnswer) {
	h := newHost(p)
	h.reserve(true)
	m = kubeletMachine{Policy: policy, Memory: map[int]int64{}, Reserved: []int{}}
	for _, c := range h.cpuTopology() {
		m.CPUs = append(m.CPUs, kubeletCPU{c.id, c.core, c.socket, c.node})
		if !h.free(c.id) {
			m.Reserved = append(m.Reserved, c.id)
		}
	}
	for k, n := range h.nodes {
		m.Memory[n] = h.total[k] << 30
	}
	for i := range p.Requests {
		r := &p.Requests[i]
		m.Pods = append(m.Pods, kubeletPod{max(r.VCPUs, r.Cores*h.cpuTopology().perCore()), r.Pages << 30})
		booked := slices.Clone(h.unbooked)
		if err := h.pod(i, policy); err != nil {
			return m, append(ours, kubeletAnswer{Refused: err.Error()})
		}
		var a kubeletAnswer
		for cpu, user := range h.user {
			if user == i {
				a.CPUs = append(a.CPUs, cpu)
			}
		}
		slices.Sort(a.CPUs)
		for k := range h.nodes {
			if h.unbooked[k] < booked[k] {
				for j, n := range h.nodes {
					if h.groups[k].has(j) {
						a.Nodes = append(a.Nodes, n)
					}
				}
				break
			}
		}
		ours = append(ours, a)
	}
	return m, ours
}

// TestKubeletDecidesTheSame holds the rules of the kubelet against its own managers, on machines by chance.
func TestKubeletDecidesTheSame(t *testing.T) {
	if !*judges {
		t.Skip("make test-judges compiles the managers of the kubelet")
	}
	var machines []kubeletMachine
	var ours [][]kubeletAnswer
	for seed := range uint64(3000) {
		policy := []string{bestEffort, restricted, singleNUMANode}[seed%3]
		m, answers := kubeletPods(randomHost(rand.New(rand.NewPCG(seed, 34))), policy)
		machines, ours = append(machines, m), append(ours, answers)
	}
	var said [][]kubeletAnswer
	ask(t, machines, &said, "kubelet/kubelet")
	placed, refused := 0, 0
	for k, all := range ours {
		for i := range min(len(all), len(said[k])) {
			a, b := &said[k][i], &all[i]
			if a.Refused != "" && b.Refused != "" {
				refused++ // each in words of its own
				continue
			}
			placed++
			if diff := cmp.Diff(a, b); diff != "" {
				data, _ := json.Marshal(machines[k])
				t.Errorf("machine %d, pod %d (-kubelet +rivals):\n%s%s", k, i, diff, data)
				break
			}
		}
	}
	if placed < 1000 || refused < 1000 {
		t.Error("the machines are too easy or too hard to tell")
	}
	seen(t, anyOfKubelet, fmt.Sprintf("none of %d pods", placed+refused))
	t.Logf("%d pods placed and %d refused on %d machines", placed, refused, len(machines))
}
