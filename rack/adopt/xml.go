package adopt

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan/render"
)

// domainXML rewrites only changed elements; everything else keeps its bytes, comments and order.
type domainXML struct{}

func parse(text string) (*libvirtxml.Domain, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("only a whole domain can be edited: %w", err)
	}
	d.CPUTune = cmp.Or(d.CPUTune, &libvirtxml.DomainCPUTune{})
	return &d, nil
}

// plannedIsolation returns the CPUs that a domain's plan isolates, or nil.
func plannedIsolation(text string) *topology.CPUSet {
	var d struct {
		Metadata struct {
			Mark render.Mark `xml:"https://github.com/rackless/rackless/libvirt/1 node"`
		} `xml:"metadata"`
	}
	if xml.Unmarshal([]byte(text), &d) != nil || d.Metadata.Mark.Isolated == "" {
		return nil
	}
	cpus, err := topology.ParseCPUSet(d.Metadata.Mark.Isolated)
	if err != nil {
		return nil // somebody has changed the mark
	}
	return &cpus
}

func (domainXML) emulator(text string, cpus topology.CPUSet) (string, error) {
	d, err := parse(text)
	if err != nil {
		return "", err
	}
	d.CPUTune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: cpus.String()}
	d.CPUTune.IOThreadPin = nil
	for _, id := range ioThreads(d) {
		d.CPUTune.IOThreadPin = append(d.CPUTune.IOThreadPin,
			libvirtxml.DomainCPUTuneIOThreadPin{IOThread: id, CPUSet: cpus.String()})
	}
	return replace(text, &libvirtxml.Domain{CPUTune: d.CPUTune}, "cputune")
}

// ioThreads gives I/O threads without a number the lowest free ones, like libvirt.
func ioThreads(d *libvirtxml.Domain) []uint {
	var ids []uint
	if d.IOThreadIDs != nil {
		ids = lists.Map(d.IOThreadIDs.IOThreads, func(t libvirtxml.DomainIOThread) uint { return t.ID })
	}
	for id := uint(1); uint(len(ids)) < d.IOThreads; id++ {
		ids = lists.Add(ids, id)
	}
	return ids
}

func (domainXML) reorder(text string, cpus []int) (string, error) {
	d, err := parse(text)
	if err != nil {
		return "", err
	}
	d.CPUTune.VCPUPin = vcpuPins(cpus)
	return replace(text, &libvirtxml.Domain{CPUTune: d.CPUTune}, "cputune")
}

func vcpuPins(cpus []int) (pins []libvirtxml.DomainCPUTuneVCPUPin) {
	for v, cpu := range cpus {
		pins = append(pins, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(v), CPUSet: fmt.Sprint(cpu)})
	}
	return pins
}

func (domainXML) memory(text string, t *topology.Tenant, h *topology.Host) (string, error) {
	d, err := parse(text)
	if err != nil {
		return "", err
	}
	pins := map[int]topology.CPUSet{}
	var all topology.CPUSet
	for _, p := range t.Pins {
		pins[p.VCPU], all = p.CPUs, all.Union(p.CPUs)
	}
	nodes := topology.CPUs(h.NodesOf(all)...)
	if nodes.IsEmpty() {
		return "", errors.New("no virtual CPU is pinned to a NUMA node that the host is known to have")
	}
	tune := &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: "strict",
		Nodeset: nodes.String()}}
	if d.CPU != nil && d.CPU.Numa != nil {
		for i, c := range d.CPU.Numa.Cell {
			own := nodes
			if list, err := topology.ParseCPUSet(c.CPUs); err == nil && !list.IsEmpty() {
				var cpus topology.CPUSet
				for v := range list.All() {
					cpus = cpus.Union(pins[v])
				}
				own = topology.CPUs(h.NodesOf(cpus)...)
			}
			cell := uint(i)
			if c.ID != nil {
				cell = *c.ID
			}
			tune.MemNodes = append(tune.MemNodes, libvirtxml.DomainNUMATuneMemNode{
				CellID: cell, Mode: "strict", Nodeset: own.String()})
		}
	}
	return replace(text, &libvirtxml.Domain{NUMATune: tune}, "numatune")
}

func (domainXML) place(text string, p *placement) (string, error) {
	d, err := parse(text)
	if err != nil {
		return "", err
	}
	files, err := render.Domains(p.input)
	if err != nil {
		return "", err
	}
	planned, err := parse(string(files[0].Data))
	if err != nil {
		return "", err
	}
	tune := planned.CPUTune
	iothreads := tune.IOThreadPin
	tune.IOThreadPin = nil
	for _, id := range ioThreads(d) {
		for _, pin := range iothreads[:min(1, len(iothreads))] {
			pin.IOThread = id
			tune.IOThreadPin = append(tune.IOThreadPin, pin)
		}
	}
	tune.EmulatorPin = cmp.Or(tune.EmulatorPin, d.CPUTune.EmulatorPin)
	d.CPUTune.VCPUPin, d.CPUTune.EmulatorPin = vcpuPins(p.cpus()), tune.EmulatorPin
	d.CPUTune.IOThreadPin = tune.IOThreadPin
	vcpu := *planned.VCPU
	vcpu.Value = uint(p.vcpus)
	if d.VCPU != nil {
		vcpu.Current = d.VCPU.Current
	}
	if text, err = replace(text, &libvirtxml.Domain{VCPU: &vcpu}, "vcpu"); err != nil {
		return "", err
	}
	if text, err = replace(text, &libvirtxml.Domain{CPUTune: d.CPUTune}, "cputune"); err != nil {
		return "", err
	}
	cpu := cmp.Or(d.CPU, &libvirtxml.DomainCPU{Mode: "host-passthrough"})
	numa := planned.NUMATune
	if p.cells {
		cpu.Topology, cpu.Numa = planned.CPU.Topology, planned.CPU.Numa
	} else if numa != nil && cpu.Numa != nil {
		// A single cell stays one, with memory on all nodes of the plan.
		for i, c := range cpu.Numa.Cell {
			cell := uint(i)
			if c.ID != nil {
				cell = *c.ID
			}
			numa.MemNodes = append(numa.MemNodes, libvirtxml.DomainNUMATuneMemNode{
				CellID: cell, Mode: "strict", Nodeset: numa.Memory.Nodeset})
		}
	}
	if text, err = replace(text, &libvirtxml.Domain{NUMATune: numa}, "numatune"); err != nil {
		return "", err
	}
	if !p.cells {
		return text, nil
	}
	return replace(text, &libvirtxml.Domain{CPU: cpu}, "cpu")
}

// order is libvirt's order of elements. A new element is inserted after the last that precedes it here.
var order = []string{"name", "uuid", "title", "description", "metadata", "maxMemory", "memory", "currentMemory",
	"memoryBacking", "vcpu", "vcpus", "iothreads", "iothreadids", "cputune", "numatune", "resource", "os", "features",
	"cpu"}

func replace(text string, d *libvirtxml.Domain, name string) (string, error) {
	data, err := render.XML(d)
	if err != nil {
		return "", err
	}
	fresh, err := children(string(data))
	if err != nil {
		return "", err
	}
	at, ok := fresh[name]
	if !ok {
		return text, nil
	}
	element := strings.TrimSpace(string(data[at.from:at.to]))
	have, err := children(text)
	if err != nil {
		return "", err
	}
	if old, ok := have[name]; ok {
		return text[:old.from] + element + text[old.to:], nil
	}
	behind := -1
	for _, before := range order {
		if before == name {
			break
		}
		if e, ok := have[before]; ok {
			behind = max(behind, e.to)
		}
	}
	if behind < 0 {
		return "", errors.New("no element of the domain stands before <" + name + ">: is it a domain?")
	}
	return text[:behind] + "\n  " + element + text[behind:], nil
}

func beside(text string) (string, error) {
	have, err := children(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	at := 0
	for _, name := range []string{"vcpu", "cputune", "numatune", "cpu"} {
		if e, ok := have[name]; ok && e.from >= at {
			b.WriteString(strings.TrimSpace(text[at:e.from]))
			at = e.to
		}
	}
	b.WriteString(strings.TrimSpace(text[at:]))
	return b.String(), nil
}

type span struct{ from, to int }

// children are by name, the first of each.
func children(text string) (map[string]span, error) {
	found := map[string]span{}
	d := xml.NewDecoder(strings.NewReader(text))
	depth, begin, name := 0, 0, ""
	for {
		before := int(d.InputOffset())
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		switch e := token.(type) {
		case xml.StartElement:
			if depth++; depth == 2 {
				begin, name = before+bytes.IndexByte([]byte(text[before:]), '<'), e.Name.Local
			}
		case xml.EndElement:
			if depth--; depth == 1 {
				if _, ok := found[name]; !ok {
					found[name] = span{begin, int(d.InputOffset())}
				}
			}
		}
	}
}
