// Package vram moves bytes between the memory of each GPU and each RDMA adapter of a running lab, and compares them.
//
// A program in each node allocates memory of a GPU with the kernel's driver, exports it as a dma-buf, registers that
// with an adapter, and writes and reads it by RDMA of the adapter to itself. It looks at the bytes with the CPU. If the
// GPUs are emulated, the emulation has counted the bytes as well.
package vram

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/parallel"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/rack/verify/checks"
	"github.com/rackless/rackless/vm/guest"
)

// Size is in bytes, each way.
const Size = 4 << 20

// A Report tells which adapters have reached which GPUs.
type Report struct {
	Lab      string         `json:"lab"`
	Status   finding.Status `json:"status"` // failed if a pair has
	Emulated bool           `json:"emulated"`
	Pairs    []Pair         `json:"pairs"` // by node, GPU and adapter
}

// A Pair is a node's GPU and adapter.
type Pair struct {
	Node    string             `json:"node"`
	GPU     int                `json:"gpu"`         // from 0, by PCI address
	Address string             `json:"gpu_address"` // PCI
	NIC     string             `json:"nic,omitempty"`
	Device  string             `json:"rdma_device"`
	Path    topology.PathClass `json:"path,omitempty"`
	Status  finding.Status     `json:"status"`
	Bytes   int64              `json:"bytes"` // to be moved each way
	// Written and Read are the adapter's bytes to and from this GPU's memory, by the emulation's count. They are nil if
	// it does not emulate the GPU.
	Written *uint64 `json:"vram_written,omitempty"`
	Read    *uint64 `json:"vram_read,omitempty"`
	// Received and Sent are the adapter's bytes by the node's driver, with headers.
	Received int64 `json:"received"`
	Sent     int64 `json:"sent"`
	// Step failed: allocate, open, register, connect, write, read, compare or count.
	Step    string   `json:"step,omitempty"`
	Error   string   `json:"error,omitempty"`
	Errno   string   `json:"errno,omitempty"`  // such as "EINVAL"
	Kernel  []string `json:"kernel,omitempty"` // messages meanwhile
	Seconds float64  `json:"seconds"`
}

type line struct {
	End     bool     `json:"end"`
	GPUs    int      `json:"gpus"`
	Devices []string `json:"devices"`

	GPU      int      `json:"gpu"`
	Address  string   `json:"address"`
	GPUPCI   place    `json:"gpu_pci"`
	Device   string   `json:"device"`
	NICPCI   place    `json:"nic_pci"`
	Bytes    int64    `json:"bytes"`
	Received int64    `json:"received"`
	Sent     int64    `json:"sent"`
	Step     string   `json:"step"`
	Error    string   `json:"error"`
	Errno    string   `json:"errno"`
	Kernel   []string `json:"kernel"`
	Seconds  float64  `json:"seconds"`
}

type place struct {
	Path    string   `json:"path,omitempty"`
	NUMA    int      `json:"numa_node"`
	Regions []uint64 `json:"regions"`
}

// A Lab is a *rack.Rack except in tests.
type Lab interface {
	Run(ctx context.Context, node string, c guest.Command) (guest.Result, error)
	VRAM(ctx context.Context) ([]rack.VRAM, error)
	HasVRAM() bool
	EndpointOf(node string, nic int) (bench.Endpoint, error)
}

// Check covers all GPUs and adapters of a lab. done is called with the number of finished nodes.
func Check(ctx context.Context, r *rack.Rack, done func(nodes int)) (*Report, error) {
	out := &Report{Lab: r.Lab.Name, Status: finding.OK, Emulated: r.Emulated()}
	type result struct {
		pairs []Pair
		err   error
	}
	nodes := 0
	err := parallel.InOrder(ctx, r.Lab.Nodes, func(ctx context.Context, n lab.Node) (got result) {
		names := lists.Map(n.NICs, func(nic lab.NIC) string { return nic.Name })
		got.pairs, got.err = node(ctx, r, n.Name, names)
		return got
	}, func(got result) error {
		nodes++
		done(nodes)
		out.Pairs = append(out.Pairs, got.pairs...)
		return got.err
	})
	if err != nil {
		return nil, err
	}
	if len(out.Pairs) == 0 {
		return nil, fmt.Errorf("lab %s has no GPU with an RDMA NIC: set gpus: 1 and image: debian-13+gpu in its "+
			"file",
			out.Lab)
	}
	if slices.ContainsFunc(out.Pairs, func(p Pair) bool { return p.Status == finding.Failed }) {
		out.Status = finding.Failed
	}
	return out, nil
}

func node(ctx context.Context, r Lab, name string, nics []string) ([]Pair, error) {
	before, err := r.VRAM(ctx)
	if err != nil {
		return nil, err
	}
	res, err := r.Run(ctx, name, guest.Command{Argv: []string{"python3", "-", "pairs", strconv.Itoa(Size)},
		Stdin: []byte(checks.BytesProgram)})
	if errors.Is(err, guest.ErrNoProgram) {
		return nil, fmt.Errorf("%s: it has no python3: its image needs the set gpu", name)
	}
	if err != nil {
		return nil, err
	}
	lines, err := parse(res.Stdout)
	if err != nil || res.ExitCode != 0 {
		last, _ := bench.LastLine(append(res.Stderr, res.Stdout...))
		return nil, fmt.Errorf("%s: the program ended with status %d: %w: %s", name, res.ExitCode,
			errors.Join(err, errors.New("see its last line")), last)
	}
	after, err := r.VRAM(ctx)
	if err != nil {
		return nil, err
	}
	netdevs := make(map[string]string) // by RDMA device
	for i, nic := range nics {
		if ep, err := r.EndpointOf(name, i); err == nil {
			netdevs[ep.Device] = nic
		}
	}
	return lists.Map(lines, func(l line) Pair {
		p := l.pair(name)
		p.NIC = netdevs[l.Device]
		if r.HasVRAM() {
			p.count(l, before, after)
		}
		return p
	}), nil
}

// parse requires the last line, which has the number of pairs.
func parse(stdout []byte) (all []line, err error) {
	in := bufio.NewScanner(bytes.NewReader(stdout))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("line %d of its output: %w", len(all)+1, err)
		}
		if l.End {
			if want := l.GPUs * len(l.Devices); want != len(all) {
				return nil, fmt.Errorf("it has %d pairs of GPUs and NICs, and reported %d", want, len(all))
			}
			return all, nil
		}
		all = append(all, l)
	}
	return nil, errors.Join(in.Err(), errors.New("its output is cut off"))
}

func (l line) pair(node string) Pair {
	p := Pair{Node: node, GPU: l.GPU, Address: l.Address, Device: l.Device, Path: between(l.GPUPCI, l.NICPCI),
		Status: finding.OK, Bytes: l.Bytes, Received: l.Received, Sent: l.Sent, Step: l.Step, Error: l.Error,
		Errno: l.Errno, Kernel: l.Kernel, Seconds: l.Seconds}
	if l.Error != "" {
		p.Status = finding.Failed
	}
	return p
}

// count adds the emulation's counts. The pair has failed if they are less than the bytes that it moved.
func (p *Pair) count(l line, before, after []rack.VRAM) {
	of := func(all []rack.VRAM) *rack.Moved {
		g := lists.Find(all, func(g rack.VRAM) bool {
			return g.Node == p.Node && g.Address != 0 && slices.Contains(l.GPUPCI.Regions, g.Address)
		})
		if g.Node == "" || p.NIC == "" {
			return nil
		}
		m := g.Of(p.NIC)
		return &m
	}
	was, is := of(before), of(after)
	if was == nil || is == nil {
		return
	}
	p.Written, p.Read = new(is.Written-was.Written), new(is.Read-was.Read)
	if p.Status == finding.OK && (*p.Written < uint64(p.Bytes) || *p.Read < uint64(p.Bytes)) {
		p.Status, p.Step = finding.Failed, "count"
		p.Error = fmt.Sprintf("the NIC has written %d and read %d bytes of this GPU's memory, and not %d",
			*p.Written,
			*p.Read, p.Bytes)
	}
}

// between takes directories in sysfs.
func between(a, b place) topology.PathClass {
	h := &topology.Host{}
	var ends [2]topology.PCIAddr
	for i, p := range []place{a, b} {
		var parent *topology.PCIAddr
		root := ""
		for _, name := range strings.Split(strings.TrimPrefix(path.Clean(p.Path), "/sys/devices/"), "/") {
			if strings.HasPrefix(name, "pci") {
				root, parent = name, nil
				continue
			}
			addr, err := topology.ParsePCIAddr(name)
			if err != nil {
				return topology.PathUnknown
			}
			d := topology.PCIDevice{Address: addr, Parent: parent, Root: root}
			if p.NUMA >= 0 {
				d.NUMANode = new(p.NUMA)
			}
			h.PCI = append(h.PCI, d)
			parent, ends[i] = &addr, addr
		}
	}
	return topology.NewTree(h).Between(ends[0], ends[1])
}
