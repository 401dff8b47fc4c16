package lab

import (
	"bytes"
	_ "embed"
	"text/template"
)

//go:embed starter.yaml.tmpl
var starterText string

var starter = template.Must(template.New("starter").Parse(starterText))

// Starter returns a lab file with two nodes. With devices, each gets a GPU and a NIC of a host; otherwise the nodes are
// emulated. The first line names the schema, for completion in editors.
func Starter(name string, devices bool) []byte {
	var b bytes.Buffer
	if err := starter.Execute(&b, map[string]any{"Name": name, "Devices": devices}); err != nil {
		panic(err) // the template is part of this package
	}
	return b.Bytes()
}
