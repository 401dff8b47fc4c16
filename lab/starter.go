package lab

import (
	"bytes"
	_ "embed"
	"text/template"
)

//go:embed starter.yaml.tmpl
var starterText string

var starter = template.Must(template.New("starter").Parse(starterText))

// Starter is a lab file to begin with: a pair of nodes, with comments on what else there is. With
// devices each node gets a GPU and a NIC of a host; else the pair is emulated. The first line tells
// editors the schema, for completion.
func Starter(name string, devices bool) []byte {
	var b bytes.Buffer
	if err := starter.Execute(&b, map[string]any{"Name": name, "Devices": devices}); err != nil {
		panic(err) // the template is of this package
	}
	return b.Bytes()
}
