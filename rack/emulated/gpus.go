package emulated

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/rdma/gpu"
	"github.com/rackless/rackless/vm/qemu"
)

// maxGPUs is the largest tested.
const maxGPUs = 8

func gpuSocket(labDir, node string, i int) string {
	return filepath.Join(labDir, fmt.Sprintf("g-%s-%d.sock", node, i))
}

// gpusOf fills in the defaults of the lab file.
func gpusOf(labDir string, n lab.Node) []qemu.GPU {
	requests := n.GPURequests
	if len(requests) == 0 && n.GPUs > 0 {
		requests = []lab.DeviceRequest{{Count: n.GPUs}}
	}
	var all []qemu.GPU
	for _, r := range requests {
		name := strings.ToLower(r.Model)
		model, _ := gpu.ModelOf(name)
		g := qemu.GPU{Model: name, Memory: int64(model.Memory), Path: lab.GPUPathPIX,
			Personality: gpu.Personality(r.Personality)}
		if g.Personality == "" {
			g.Personality = gpu.Virtio
		}
		if r.Memory > 0 {
			g.Memory = int64(r.Memory)
		}
		if r.Path != "" {
			g.Path = r.Path
		}
		if i, err := strconv.Atoi(strings.TrimPrefix(r.Beside, "eth")); err == nil {
			g.NIC = i
		}
		for range r.Count {
			g.Socket = gpuSocket(labDir, n.Name, len(all))
			all = append(all, g)
		}
	}
	return all
}

// needsVirtio reports whether one of the node's GPUs has the personality virtio.
func needsVirtio(n lab.Node) bool {
	return slices.ContainsFunc(gpusOf("", n), func(g qemu.GPU) bool { return g.Personality == gpu.Virtio })
}

func gpusSupported(n lab.Node) error {
	const host = "to place the lab on a host with GPUs, see rackless plan"
	if n.GPUs == 0 {
		return nil
	}
	asks := "asks for " + words.Count(n.GPUs, "GPU")
	switch {
	case n.GPUs > maxGPUs:
		return fmt.Errorf("%s, and driver qemu gives at most %d: set gpus: %d; %s", asks, maxGPUs, maxGPUs, host)
	case needsVirtio(n) && n.Has("vfio") && !n.Has("gpu"):
		return fmt.Errorf("%s, and its image %s has no driver for those of the personality virtio: set personality: "+
			"vfio for each, or image: %[2]s+gpu; %[3]s", asks, n.Image, host)
	case needsVirtio(n) && !n.OwnImage() && !n.Has("gpu"):
		return fmt.Errorf("%s, and its image %s has no driver for emulated ones: set image: debian-13+gpu; %s", asks,
			n.Image, host)
	case n.NIC == lab.NICVirtio:
		return fmt.Errorf("%s, which need a ConnectX beside them: leave nic: virtio out; %s", asks, host)
	}
	for _, r := range n.GPURequests {
		switch {
		case r.Address != "":
			return fmt.Errorf("asks for the GPU %s, and driver qemu gives emulated ones: set gpus: %d; %s", r.Address,
				n.GPUs, host)
		case r.Vendor != "" || r.NUMANode != nil:
			return fmt.Errorf("asks for GPUs by vendor or NUMA node, and driver qemu gives emulated ones: set gpus: "+
				"%d, or {count: %[1]d, path: sys} for GPUs in another NUMA node than their NIC; %s", n.GPUs, host)
		case r.Model != "" && !slices.Contains(gpu.Models(), strings.ToLower(r.Model)):
			return fmt.Errorf("asks for the GPU model %s, and driver qemu emulates %s: leave model out; %s", r.Model,
				words.Or(gpu.Models()), host)
		}
	}
	return nil
}

// A gpuSet holds the emulated GPUs of a lab by node. Its own lock lets adapters find memory while others change the
// set.
type gpuSet struct {
	mu     sync.RWMutex
	there  map[string][]*gpu.GPU
	wanted map[string][]qemu.GPU // for comparison with a lab's
}

func (s *gpuSet) vram(node string, addr, size uint64) []byte {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return gpu.VRAM(s.there[node], addr, size)
}

// A meter counts the bytes that an adapter has written to and read from the VRAM of each GPU of its node.
type meter [maxGPUs]struct{ written, read atomic.Uint64 }

func (s *gpuSet) count(node string, m *meter, addr, n uint64, written bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, g := range s.there[node] {
		switch {
		case i >= len(m) || g.VRAM(addr, 1) == nil:
		case written:
			m[i].written.Add(n)
			return
		default:
			m[i].read.Add(n)
			return
		}
	}
}

func (s *gpuSet) rate(node string, addr uint64, rates []int64) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, g := range s.there[node] {
		if i < len(rates) && g.VRAM(addr, 1) != nil {
			return rates[i]
		}
	}
	return 0
}

// pathRates returns modelled rates to the node's GPUs, or nil without a profile.
func pathRates(n lab.Node, nic int) []int64 {
	p, ok := lab.ProfileOf(n.Profile)
	if !ok {
		return nil
	}
	s := qemu.Spec{GPUs: gpusOf("", n), NUMANodes: n.NUMANodes()}
	for i := range n.NICs {
		s.NICs = append(s.NICs, qemu.NIC{NUMA: n.NUMANodeOf(i)})
	}
	rates := make([]int64, len(s.GPUs))
	for i := range rates {
		rates[i] = p.Rates[s.PathOf(nic, i)]
	}
	return rates
}

func (s *gpuSet) of(node string) []*gpu.GPU {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.there[node]
}

func (s *gpuSet) changed(dir string, l *lab.Lab) []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	for _, n := range l.Nodes {
		if !slices.Equal(s.wanted[n.Name], gpusOf(dir, n)) {
			names = append(names, n.Name)
		}
	}
	for name := range s.there {
		if !slices.Contains(l.NodeNames(), name) {
			names = append(names, name)
		}
	}
	return names
}

// add calls reach when adapters must ask again for memory.
func (s *gpuSet) add(node string, gpus []qemu.GPU, reach func(), log func(format string, args ...any)) error {
	var made []*gpu.GPU
	for i, g := range gpus {
		one, err := gpu.Listen(gpu.Config{Name: fmt.Sprintf("%s.gpu%d", node, i), Socket: g.Socket,
			Memory: uint64(g.Memory), Model: g.Model, Personality: g.Personality, Reach: reach, Log: log})
		if err != nil {
			errs := lists.Map(made, (*gpu.GPU).Close)
			return errors.Join(append(errs, fmt.Errorf("GPU %d of node %s: %w", i, node, err))...)
		}
		made = append(made, one)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.there == nil {
		s.there, s.wanted = make(map[string][]*gpu.GPU), make(map[string][]qemu.GPU)
	}
	s.there[node], s.wanted[node] = made, gpus
	return nil
}

// remove must follow the end of the node's adapters, which may use the memory.
func (s *gpuSet) remove(node string) error {
	s.mu.Lock()
	all := s.there[node]
	delete(s.there, node)
	delete(s.wanted, node)
	s.mu.Unlock()
	return errors.Join(lists.Map(all, (*gpu.GPU).Close)...)
}

func (s *gpuSet) close() error {
	s.mu.RLock()
	var names []string
	for name := range s.there {
		names = append(names, name)
	}
	s.mu.RUnlock()
	return errors.Join(lists.Map(names, s.remove)...)
}

func (s *gpuSet) restore(node, template string) error {
	for i, g := range s.of(node) {
		state, err := os.ReadFile(filepath.Join(template, qemu.GPUState(i)))
		if err == nil {
			err = g.Restore(state)
		}
		if err != nil {
			return fmt.Errorf("GPU %d of node %s: %w", i, node, err)
		}
	}
	return nil
}
