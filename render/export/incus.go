package export

import (
	"embed"
	"fmt"
	"text/template"

	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/render"
)

//go:embed incus/*.tmpl
var incusFiles embed.FS

var incusTemplates = template.Must(template.New("incus").Funcs(functions).ParseFS(incusFiles, "incus/*.tmpl"))

// An incusInstance is a node of the plan, for the templates.
type incusInstance struct {
	Made, Node, Name string
	Seed             render.Seed
	CPUs, Memory     string
	Hugepages        bool
	Devices          []incusDevice
}

type incusDevice struct {
	Name, Address string
	GPU           bool
}

// Incus returns the configuration of each node of the plan, and the commands that make virtual machines of them.
func Incus(in render.Input) ([]render.Artifact, error) {
	files, err := incus(in)
	if err != nil {
		return nil, fmt.Errorf("export incus: %w", err)
	}
	return files, nil
}

func incus(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, err
	}
	name := func(node string) string { return dns(in.Plan.Lab + "-" + node) }
	if err := unique(planned(in), name); err != nil {
		return nil, err
	}
	seeds, err := render.Seeds(in, false)
	if err != nil {
		return nil, err
	}
	var nodes []incusInstance
	var files []render.Artifact
	for i := range in.Plan.Nodes {
		n := &in.Plan.Nodes[i]
		v := incusInstance{Made: in.Made, Node: n.Name, Name: name(n.Name), Seed: seeds[i], CPUs: n.CPUs().String(),
			Memory: kibi(n.MemoryBytes, "B"), Hugepages: pageBytes(n) > 0}
		if n.CPUs().Len() == 1 { // "3" would be three CPUs, wherever they are
			v.CPUs = fmt.Sprintf("%[1]d-%[1]d", n.VCPUs[0])
		}
		if v.Devices, err = incusDevices(in, n); err != nil {
			return nil, fmt.Errorf("node %q: %w", n.Name, err)
		}
		data, err := filled(incusTemplates, "instance.yaml", v)
		if err != nil {
			return nil, err
		}
		nodes, files = append(nodes, v), append(files, text(n.Name+".yaml", data))
	}
	script, err := filled(incusTemplates, "create.sh", struct {
		Made  string
		Nodes []incusInstance
	}{in.Made, nodes})
	return append([]render.Artifact{{Path: "create.sh", Mode: 0o755, Data: []byte(script)}}, files...), err
}

func incusDevices(in render.Input, n *plan.Node) (all []incusDevice, err error) {
	for i, c := range whole(n) {
		all = append(all, incusDevice{fmt.Sprintf("%s%d", c.Kind, i), c.ID, c.Kind == plan.KindGPU})
	}
	for _, p := range n.Ports() {
		if p.Card == nil || p.Card.Kind != plan.KindVF {
			continue
		}
		id := p.Card.ID
		if p.Card.VF != nil {
			id = fmt.Sprintf("%s/vf%d", id, *p.Card.VF)
		}
		a, err := render.Address(in, id)
		if err != nil {
			return nil, err
		}
		all = append(all, incusDevice{p.Name, a.String(), false})
	}
	return all, nil
}
