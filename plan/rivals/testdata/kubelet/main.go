// The program kubelet answers what Kubernetes' own code decides about pods on a machine: the topology manager with the
// static policies of the CPU manager and the memory manager. It is a module of its own, so that Kubernetes is no
// dependency of rackless: the tests of plan/rivals run it.
//
// It reads a JSON list of cases from standard input and writes a list of answers. With an argument it reads that file
// as the kubelet reads its --config, and prints what is wrong with it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	cadvisor "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	features "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/features" // which registers the gates
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

// A machine with its pods, in the order in which they come.
type machine struct {
	Policy   string        `json:"policy"`
	CPUs     []cpu         `json:"cpus"`
	Reserved []int         `json:"reserved"`
	Memory   map[int]int64 `json:"memory"` // bytes, by NUMA node
	Pods     []pod         `json:"pods"`
}

type cpu struct{ CPU, Core, Socket, Node int }

type pod struct {
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"` // bytes
}

// An answer is what becomes of one pod.
type answer struct {
	CPUs    []int  `json:"cpus,omitempty"`
	Nodes   []int  `json:"nodes,omitempty"` // of memory
	Refused string `json:"refused,omitempty"`
}

// config judges a KubeletConfiguration: keys, values, and how they go together.
func config(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, codecs, err := scheme.NewSchemeAndCodecs(serializer.EnableStrict)
	if err != nil {
		return err
	}
	object, _, err := codecs.UniversalDecoder().Decode(data, nil, nil)
	if err != nil {
		return err
	}
	c, ok := object.(*kubeletconfig.KubeletConfiguration)
	if !ok {
		return fmt.Errorf("%s is no KubeletConfiguration", path)
	}
	return validation.ValidateKubeletConfiguration(c, features.DefaultFeatureGate)
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(discard{})
	if len(os.Args) > 1 {
		if err := config(os.Args[1]); err != nil {
			fmt.Println(err)
		}
		return
	}
	var machines []machine
	err := json.NewDecoder(os.Stdin).Decode(&machines)
	all := [][]answer{}
	for i := range machines {
		if err != nil {
			break
		}
		var answers []answer
		answers, err = machines[i].run(context.Background())
		all = append(all, answers)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(all)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// run admits one pod after another, until one is refused.
func (m *machine) run(ctx context.Context) ([]answer, error) {
	details := topology.CPUDetails{}
	sockets, cores := map[int]bool{}, map[int]bool{}
	for _, c := range m.CPUs {
		details[c.CPU] = topology.CPUInfo{NUMANodeID: c.Node, SocketID: c.Socket, CoreID: c.Core}
		sockets[c.Socket], cores[c.Core] = true, true
	}
	info := &cadvisor.MachineInfo{}
	for node := range len(m.Memory) {
		info.Topology = append(info.Topology, cadvisor.Node{Id: node, Memory: uint64(m.Memory[node])})
	}
	manager, err := topologymanager.NewManager(info.Topology, m.Policy, "container", nil)
	if err != nil {
		return nil, err
	}
	cpus, err := cpumanager.NewStaticPolicy(&topology.CPUTopology{NumCPUs: len(m.CPUs), NumCores: len(cores),
		NumSockets: len(sockets), NumNUMANodes: len(m.Memory), CPUDetails: details}, len(m.Reserved),
		cpuset.New(m.Reserved...), manager, map[string]string{cpumanager.FullPCPUsOnlyOption: "true"})
	if err != nil {
		return nil, err
	}
	c := cpuProvider{cpus, cpustate.NewMemoryState()}
	if err := cpus.Start(c.state); err != nil {
		return nil, err
	}
	// The manager wants something to be reserved: 4 KiB, which Memory has beside what pods may have.
	reserved := map[int]map[v1.ResourceName]uint64{}
	for node := range m.Memory {
		reserved[node] = map[v1.ResourceName]uint64{v1.ResourceMemory: 4096}
		info.Topology[node].Memory += 4096
	}
	memory, err := memorymanager.NewPolicyStatic(ctx, info, reserved, manager)
	if err != nil {
		return nil, err
	}
	b := memoryProvider{ctx, memory, memorystate.NewMemoryState(klog.FromContext(ctx))}
	if err := memory.Start(ctx, b.state); err != nil {
		return nil, err
	}
	manager.AddHintProvider(c)
	manager.AddHintProvider(b)

	var answers []answer
	for i, p := range m.Pods {
		uid := fmt.Sprint(i)
		// Requests that equal the limits make a guaranteed pod: the only class that gets CPUs of its own.
		list := v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(p.CPUs), resource.DecimalSI),
			v1.ResourceMemory: *resource.NewQuantity(p.Memory, resource.BinarySI)}
		one := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "vm",
			Resources: v1.ResourceRequirements{Requests: list, Limits: list}}}}}
		one.UID, one.Name = types.UID(uid), uid
		one.Status.QOSClass = v1.PodQOSGuaranteed
		said := manager.Admit(&lifecycle.PodAdmitAttributes{Pod: one})
		if !said.Admit {
			return append(answers, answer{Refused: said.Reason + ": " + said.Message}), nil
		}
		var a answer
		if set, ok := c.state.GetCPUSet(uid, "vm"); ok {
			a.CPUs = set.List()
		}
		for _, block := range b.state.GetMemoryBlocks(uid, "vm") {
			a.Nodes = append(a.Nodes, block.NUMAAffinity...)
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// A cpuProvider is the policy of the CPU manager as the topology manager asks it.
type cpuProvider struct {
	policy cpumanager.Policy
	state  cpustate.State
}

func (p cpuProvider) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return p.policy.GetTopologyHints(p.state, pod, c)
}

func (p cpuProvider) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return p.policy.GetPodTopologyHints(p.state, pod)
}

func (p cpuProvider) Allocate(pod *v1.Pod, c *v1.Container) error {
	return p.policy.Allocate(p.state, pod, c)
}

// A memoryProvider is the policy of the memory manager as the topology manager asks it.
type memoryProvider struct {
	ctx    context.Context
	policy memorymanager.Policy
	state  memorystate.State
}

func (p memoryProvider) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return p.policy.GetTopologyHints(p.ctx, p.state, pod, c)
}

func (p memoryProvider) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return p.policy.GetPodTopologyHints(p.ctx, p.state, pod)
}

func (p memoryProvider) Allocate(pod *v1.Pod, c *v1.Container) error {
	return p.policy.Allocate(p.ctx, p.state, pod, c)
}
