package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/render"
)

// reframeSite is a site configuration of ReFrame, version 4.
type reframeSite struct {
	Systems      []reframeSystem      `json:"systems"`
	Environments []reframeEnvironment `json:"environments"`
}

type reframeSystem struct {
	Name       string             `json:"name"`
	About      string             `json:"descr"`
	Hostnames  []string           `json:"hostnames"`
	Modules    string             `json:"modules_system"`
	Partitions []reframePartition `json:"partitions"`
}

type reframePartition struct {
	Name      string          `json:"name"`
	About     string          `json:"descr"`
	Scheduler string          `json:"scheduler"`
	Launcher  string          `json:"launcher"`
	Access    []string        `json:"access,omitempty"`
	Environs  []string        `json:"environs"`
	MaxJobs   int             `json:"max_jobs"`
	Processor map[string]int  `json:"processor,omitempty"`
	Devices   []reframeDevice `json:"devices,omitempty"`
	Extras    map[string]any  `json:"extras"`
}

type reframeDevice struct {
	Type  string `json:"type"`
	Count int    `json:"num_devices"`
}

type reframeEnvironment struct {
	Name     string   `json:"name"`
	CC       string   `json:"cc"`
	CXX      string   `json:"cxx"`
	FTN      string   `json:"ftn"`
	Features []string `json:"features"`
}

// ReFrame returns a site configuration in which the lab is a system. Nodes of one shape are a partition, whose jobs
// Slurm takes where the lab's image has it, and mpirun starts on the nodes otherwise.
func ReFrame(in render.Input) ([]render.Artifact, error) {
	l := in.Lab
	if l == nil {
		return nil, errors.New("export reframe: no lab")
	}
	s := reframeSystem{Name: l.Name, About: "lab " + l.Name + " of rackless", Modules: "nomod"}
	site := reframeSite{Environments: []reframeEnvironment{
		{Name: "builtin", CC: "gcc", CXX: "g++", FTN: "gfortran", Features: []string{}},
		{Name: "mpi", CC: "mpicc", CXX: "mpicxx", FTN: "mpifort", Features: []string{"mpi"}}}}
	var shapes []lab.Node
	for _, n := range l.Nodes {
		s.Hostnames = append(s.Hostnames, "^"+n.Name+"$")
		i := slices.IndexFunc(shapes, func(o lab.Node) bool { return alike(o, n) })
		if i < 0 {
			shapes = append(shapes, n)
			s.Partitions = append(s.Partitions, partition(l, n, len(shapes)))
			i = len(shapes) - 1
		}
		p := &s.Partitions[i]
		p.Extras["nodes"] = append(p.Extras["nodes"].([]string), n.Name)
		p.MaxJobs++
	}
	site.Systems = []reframeSystem{s}
	data, err := json.MarshalIndent(site, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("export reframe: %w", err)
	}
	return []render.Artifact{text("reframe.json", string(data)+"\n")}, nil
}

// alike reports whether jobs may take one node for the other.
func alike(a, b lab.Node) bool {
	return a.CPUs == b.CPUs && a.AutoCPUs == b.AutoCPUs && a.Memory == b.Memory && a.GPUs == b.GPUs &&
		len(a.NICs) == len(b.NICs) && a.Image == b.Image
}

func partition(l *lab.Lab, n lab.Node, number int) reframePartition {
	p := reframePartition{Name: fmt.Sprintf("nodes%d", number), About: "nodes like " + n.Name, Scheduler: "local",
		Launcher: "local", Environs: []string{"builtin"}, Extras: map[string]any{"nodes": []string(nil),
			"mtu": l.Fabric.MTU, "nics": len(n.NICs)}}
	if n.Has("mpi") {
		p.Launcher, p.Environs = "mpirun", append(p.Environs, "mpi")
	}
	if n.Has("slurm") {
		p.Scheduler, p.Launcher = "squeue", "srun"
	}
	if !n.AutoCPUs { // else the planner decides, and the node itself tells
		p.Processor = map[string]int{"num_cpus": n.CPUs}
	}
	if n.GPUs > 0 {
		p.Devices = []reframeDevice{{Type: "gpu", Count: n.GPUs}}
	}
	return p
}
