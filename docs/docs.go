// Package docs holds the documents that the program prints.
package docs

import _ "embed"

// LabSchema is the JSON schema (draft 2020-12) of the lab file, for editors and other tools. The tests of package lab
// generate it.
//
//go:embed lab.schema.json
var LabSchema []byte

// PlanSchema and HostSchema are the JSON schemas of plan -o json and inspect -o json.
var (
	//go:embed plan.schema.json
	PlanSchema []byte
	//go:embed host.schema.json
	HostSchema []byte
)
