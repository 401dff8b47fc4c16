// Package docs holds the documents that the program prints.
package docs

import _ "embed"

// LabSchema is the JSON schema (draft 2020-12) of the lab file, for editors and other tools. The tests of package lab
// generate it.
//
//go:embed lab.schema.json
var LabSchema []byte
