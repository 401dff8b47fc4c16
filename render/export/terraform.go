package export

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rackless/rackless/render"
)

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
	var b strings.Builder
	b.WriteString(head(in, "Untested: the provider was not at hand. It defines and starts the domains; the network "+
		"\"default\", the disks that they name, and what the host needs (rackless prepare) have to be there."))
	b.WriteString(`
terraform {
  required_providers {
    libvirt = {
      source  = "dmacvicar/libvirt"
      version = "~> 0.8.0" # 0.9 has no stylesheets
    }
  }
}

provider "libvirt" {
  uri = "qemu:///system"
}
`)
	var sheets []render.Artifact
	for i, d := range domains {
		node := in.Plan.Nodes[i].Name
		// In a stylesheet braces in attributes are expressions.
		if bytes.ContainsAny(d.Data, "{}") {
			return nil, fmt.Errorf("export terraform-libvirt: node %q: its domain has braces, which a stylesheet "+
				"would take for expressions", node)
		}
		fmt.Fprintf(&b, `
resource "libvirt_domain" %q {
  name = %q
  xml {
    xslt = file("${path.module}/%s.xsl")
  }
}
`, node, render.DomainName(in.Plan.Lab, node), node)
		domain := d.Data[bytes.Index(d.Data, []byte("<domain ")):]
		sheet := "<!-- The domain of the plan, in place of the provider's: see main.tf. -->\n" +
			"<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\">\n" +
			"<xsl:output omit-xml-declaration=\"yes\"/>\n<xsl:template match=\"/domain\">\n" + string(domain) +
			"</xsl:template>\n</xsl:stylesheet>\n"
		sheets = append(sheets, text(node+".xsl", sheet))
	}
	return append([]render.Artifact{text("main.tf", b.String())}, sheets...), nil
}
