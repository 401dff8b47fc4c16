package export

import (
	"embed"
	"errors"
	"fmt"
	"text/template"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/plan/render"
)

//go:embed ansible/*.tmpl
var ansibleFiles embed.FS

// Ansible's expressions use braces.
var ansibleTemplates = template.Must(template.New("ansible").Delims("<<", ">>").Funcs(functions).
	ParseFS(ansibleFiles, "ansible/*.tmpl"))

// Ansible returns an inventory with a group of the lab's name. Full nodes of an emulated lab are reached through
// rackless ssh, all others by their first address on the fabric.
func Ansible(in render.Input) ([]render.Artifact, error) {
	l := in.Lab
	if l == nil {
		return nil, errors.New("export ansible: no lab")
	}
	full := l.RunBy() == lab.DriverQEMU
	for _, n := range l.Nodes {
		full = full && n.Full()
	}
	data, err := filled(ansibleTemplates, "inventory.yaml", struct {
		Made string
		Lab  *lab.Lab
		Full bool
	}{in.Made, l, full})
	if err != nil {
		return nil, fmt.Errorf("export ansible: %w", err)
	}
	return []render.Artifact{text("inventory.yaml", data)}, nil
}
