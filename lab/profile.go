package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A Profile is a machine that an emulated node is modelled on, with defaults of other keys.
type Profile struct {
	Name   string
	CPUs   int
	Memory Bytes
	Image  string
	NIC    NICModel
	NICs   []DeviceRequest
	GPUs   []DeviceRequest
	// Rates are those that adapters of the real machine reached to GPUs, by path, in bits per second.
	Rates map[GPUPath]int64
}

// profiles has h20 with the paths of "nvidia-smi topo -m" on a real server (examples/hosts/h20.txt). Its rates are
// means of ib_write_bw there from NIC0: 195 Gb/s to GPU1; 178.8 and 175.8 to GPU2 and GPU3, while GPU0 reached 195;
// 124.4, 124.2, 124.3 and 119.1 to the others. h20-small has GPU1 with the first NIC of each NUMA node, at a 200th of
// these rates: an emulated lab keeps them, so that the path makes a difference.
func profiles() []Profile {
	gpu := func(nic int, path GPUPath) DeviceRequest {
		return DeviceRequest{Count: 1, Model: "h20", Memory: 64 * MiB, Beside: fmt.Sprintf("eth%d", nic), Path: path}
	}
	return []Profile{{
		Name: "h20", CPUs: 2, Memory: DefaultFullMemory, Image: "debian-13+gpu", NIC: NICConnectX6,
		NICs: []DeviceRequest{{Count: 2, NUMANode: new(0)}, {Count: 2, NUMANode: new(1)}},
		GPUs: []DeviceRequest{gpu(0, GPUPathNode), gpu(0, GPUPathPIX), gpu(1, GPUPathNode), gpu(1, GPUPathPIX),
			gpu(2, GPUPathPIX), gpu(3, GPUPathNode), gpu(3, GPUPathPIX), gpu(3, GPUPathNode)},
		Rates: map[GPUPath]int64{GPUPathPIX: 195e9, GPUPathNode: 177e9, GPUPathSYS: 123e9},
	}, {
		Name: "h20-small", CPUs: 1, Memory: DefaultFullMemory, Image: "debian-13+gpu", NIC: NICConnectX6,
		NICs:  []DeviceRequest{{Count: 1, NUMANode: new(0)}, {Count: 1, NUMANode: new(1)}},
		GPUs:  []DeviceRequest{gpu(0, GPUPathPIX)},
		Rates: map[GPUPath]int64{GPUPathPIX: 975e6, GPUPathSYS: 615e6},
	}}
}

// RateText has the nearest path first.
func (p Profile) RateText() string {
	var all []string
	for _, path := range gpuPaths() {
		if r := p.Rates[path]; r > 0 {
			all = append(all, fmt.Sprintf("%s %g", path, float64(r)/1e9))
		}
	}
	return strings.Join(all, ", ") + " Gb/s"
}

// ModelledRates lists the profiles of the nodes with their rates, "profile h20: pix 195, node 177, sys 123 Gb/s", or
// returns "".
func (l *Lab) ModelledRates() string {
	var all []string
	for _, n := range l.Nodes {
		p, ok := ProfileOf(n.Profile)
		if text := fmt.Sprintf("profile %s: %s", n.Profile, p.RateText()); ok && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return strings.Join(all, "; ")
}

// A ProfileName is the name of a profile.
type ProfileName string

func profileNames() []ProfileName {
	var all []ProfileName
	for _, p := range profiles() {
		all = append(all, ProfileName(p.Name))
	}
	return all
}

// ProfileOf looks up a name.
func ProfileOf(name ProfileName) (p Profile, ok bool) {
	all := profiles()
	if i := slices.Index(profileNames(), name); i >= 0 {
		return all[i], true
	}
	return Profile{}, false
}

// profileName also catches MIG's parts of a GPU, called profiles too.
func (d *decoder) profileName(path string, n ast.Node) *ProfileName {
	slips := map[string]string{}
	if s, ok := n.(*ast.StringNode); ok && IsPartOfGPU(s.Value) {
		slips[s.Value] = NoPartsOfGPUs
	}
	return enum(d, path, n, profileNames(), slips)
}

// profile returns the defaults of nodes if there is none.
func (e *entry) profile() Profile {
	p, ok := ProfileOf(or(e.own.Profile, e.shared.Profile, ""))
	if !ok {
		return Profile{CPUs: DefaultCPUs, Image: DefaultImage, NIC: DefaultNIC}
	}
	path, at := e.written("profile")
	for _, key := range []string{"nics", "gpus", "vfs"} {
		if key == "vfs" && e.vfs().count() == 0 {
			continue
		}
		if other, where := e.written(key); other != e.path {
			e.failOnce(where, Error{Key: other, What: "the profile gives the node its " + key,
				Have: fmt.Sprintf("%s beside %s: %s (line %d)", key, path, p.Name, at.Line),
				Fix:  fmt.Sprintf("remove %s, or the profile", key)})
		}
	}
	return p
}

func fileRequests(all []DeviceRequest) fileDevices {
	var list fileDevices
	for _, r := range all {
		list = append(list, fileDevice{DeviceRequest: r.clone()})
	}
	return list
}

// NUMANodes is one more than the highest one of the NICs and GPUs of an emulated node, or 0 if no place depends on one.
func (n Node) NUMANodes() int {
	nodes := 0
	for _, r := range n.NICRequests {
		if r.NUMANode != nil {
			nodes = max(nodes, *r.NUMANode+1)
		}
	}
	for _, r := range n.GPURequests {
		switch r.Path {
		case GPUPathNode:
			nodes = max(nodes, 1)
		case GPUPathSYS:
			nodes = max(nodes, 2)
		}
	}
	return nodes
}

// NUMANodeOf is for the i-th NIC of an emulated node with NUMA nodes, 0 unless set.
func (n Node) NUMANodeOf(nic int) int {
	for _, r := range n.NICRequests {
		if nic -= r.Count; nic < 0 && r.NUMANode != nil {
			return *r.NUMANode
		} else if nic < 0 {
			break
		}
	}
	return 0
}

// checkNUMA finds GPUs on paths between host bridges if NUMA nodes are hidden.
func (e *entry) checkNUMA(n Node, gpus fileDevices) {
	if n.GuestNUMA != Off {
		return
	}
	hidden, at := e.written("guest_numa")
	for _, r := range gpus {
		need := map[GPUPath]string{GPUPathNode: "a NUMA node", GPUPathSYS: "two NUMA nodes"}[r.Path]
		if need == "" {
			continue
		}
		key, place, fix := "", r.at, "choose path pix, pxb or phb"
		if n.Profile != "" {
			key, place = e.written("profile")
			fix = "the profile"
		} else {
			key, _ = e.written("gpus")
			key = strictyaml.Join(key, "path")
		}
		e.failOnce(place, Error{Key: key, What: fmt.Sprintf("path %s needs %s that the node sees", r.Path, need),
			Have: fmt.Sprintf("%s: off (line %d)", hidden, at.Line),
			Fix:  "remove guest_numa, or " + fix})
	}
}
