package export

import (
	"bytes"
	"embed"
	"fmt"
	"text/template"

	"github.com/rackless/rackless/render"
)

//go:embed terraform/*.tmpl
var terraformFiles embed.FS

var terraformTemplates = template.Must(template.New("terraform").Funcs(functions).
	ParseFS(terraformFiles, "terraform/*.tmpl"))

// Terraform returns a configuration of dmacvicar/libvirt for Terraform and OpenTofu, and a stylesheet for each node of
// the plan. The provider has words for few of the things that a plan decides. It passes the domain that it makes
// through a stylesheet, though: each of these puts the domain of the plan in its place, whole.
func Terraform(in render.Input) ([]render.Artifact, error) {
	if err := check(&in); err != nil {
		return nil, fmt.Errorf("export terraform-libvirt: %w", err)
	}
	domains, err := render.Domains(in)
	if err != nil {
		return nil, fmt.Errorf("export terraform-libvirt: %w", err)
	}
	type domain struct{ Node, Name string }
	page := struct {
		Made    string
		Domains []domain
	}{Made: in.Made}
	var sheets []render.Artifact
	for i, d := range domains {
		node := in.Plan.Nodes[i].Name
		// In a stylesheet braces in attributes are expressions.
		if bytes.ContainsAny(d.Data, "{}") {
			return nil, fmt.Errorf("export terraform-libvirt: node %q: its domain has braces, which a stylesheet "+
				"would take for expressions", node)
		}
		page.Domains = append(page.Domains, domain{node, render.DomainName(in.Plan.Lab, node)})
		sheet, err := filled(terraformTemplates, "domain.xsl", string(d.Data[bytes.Index(d.Data, []byte("<domain ")):]))
		if err != nil {
			return nil, fmt.Errorf("export terraform-libvirt: %w", err)
		}
		sheets = append(sheets, text(node+".xsl", sheet))
	}
	main, err := filled(terraformTemplates, "main.tf", page)
	if err != nil {
		return nil, fmt.Errorf("export terraform-libvirt: %w", err)
	}
	return append([]render.Artifact{text("main.tf", main)}, sheets...), nil
}
