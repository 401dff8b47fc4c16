package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/invopop/jsonschema"
)

// schemaID names the schema; editors use it as a key, nothing is fetched from there.
const schemaID = "https://github.com/rackless/rackless/docs/lab.schema.json"

// Patterns that only the schema needs: the parser gives better messages by reading the value.
const (
	memoryPattern = `^[1-9][0-9]*(B|KiB|MiB|GiB|TiB|M|G)$`
	octetPattern  = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	subnetPattern = `^(` + octetPattern + `\.){3}` + octetPattern + `/([89]|[12][0-9]|30)$`
)

// Schema returns the JSON schema (draft 2020-12) of the lab file, for editors and for other tools. It accepts every
// file that Parse accepts. Parse refuses more: what needs arithmetic, such as a subnet that is too small.
func Schema() []byte {
	r := &jsonschema.Reflector{
		Anonymous:      true, // no $id from Go's package path
		DoNotReference: true, // one tree: it reads better in an editor, and it is small
		ExpandedStruct: true,
	}
	s := r.Reflect(&file{})
	s.ID = schemaID
	s.Title = "rackless lab file"
	// Marshalling cannot fail: a schema is made of strings, numbers and lists.
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("print the lab file's schema: %v", err))
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		panic(fmt.Sprintf("indent the lab file's schema: %v", err))
	}
	b.WriteByte('\n')
	return b.Bytes()
}

// JSONSchemaExtend adds to the schema of the document what Go's types do not say.
func (file) JSONSchemaExtend(s *jsonschema.Schema) {
	name := property(s, "name")
	name.Pattern, name.MaxLength = namePattern, length(MaxName)
	words(property(s, "driver"), drivers(), DefaultDriver)
	words(property(s, "workload"), workloads(), DefaultWorkload)
	nullable(s, "fabric")
	nullable(s, "defaults")
}

// JSONSchemaExtend adds the ranges of the fabric.
func (fileFabric) JSONSchemaExtend(s *jsonschema.Schema) {
	numbers(property(s, "mtu"), MinMTU, MaxMTU, DefaultMTU)
	asText(s, "subnet", subnetPattern, DefaultSubnet)
}

// JSONSchemaExtend adds the ranges of the settings.
func (settings) JSONSchemaExtend(s *jsonschema.Schema) {
	numbers(property(s, "cpus"), MinCPUs, MaxCPUs, DefaultCPUs)
	numbers(property(s, "nics"), MinNICs, MaxNICs, DefaultNICs)
	numbers(property(s, "gpus"), MinGPUs, MaxGPUs, DefaultGPUs)
	asText(s, "memory", memoryPattern, DefaultMemory.String())
	image := property(s, "image")
	image.Pattern, image.MaxLength, image.Default = imagePattern, length(maxImage), DefaultImage
}

// JSONSchemaExtend adds the range of count to the settings of a node. Go would promote the method of settings here,
// so it is called by name.
func (n fileNode) JSONSchemaExtend(s *jsonschema.Schema) {
	n.settings.JSONSchemaExtend(s)
	count := property(s, "count")
	count.Minimum, count.Maximum = number(1), number(MaxNodes)
}

// JSONSchema describes the nodes as the mapping that they are in the file.
func (fileNodeList) JSONSchema() *jsonschema.Schema {
	r := &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true}
	node := r.Reflect(&fileNode{})
	node.Version = "" // only the root of a schema says its draft
	one := uint64(1)
	return &jsonschema.Schema{
		Type:                 "object",
		MinProperties:        &one,
		PropertyNames:        &jsonschema.Schema{Pattern: namePattern, MaxLength: length(MaxName)},
		AdditionalProperties: orNull(node),
	}
}

// property returns the schema of a key. The keys are those of the struct's tags, so a miss is a slip in this file.
func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	p, ok := s.Properties.Get(key)
	if !ok {
		panic(fmt.Sprintf("schema of the lab file: no key %q", key))
	}
	return p
}

// asText describes a key as the text that it is in the file. Reflection does not look at MarshalText: it takes Bytes
// for a number and netip.Prefix for an object.
func asText(s *jsonschema.Schema, key, pattern, fallback string) {
	*property(s, key) = jsonschema.Schema{Type: "string", Pattern: pattern, Default: fallback,
		Description: property(s, key).Description}
}

// nullable allows a key whose lines are all commented out.
func nullable(s *jsonschema.Schema, key string) {
	p := property(s, key)
	description := p.Description
	p.Description = "" // it belongs to the key, not to one of the two alternatives
	either := orNull(p)
	either.Description = description
	s.Properties.Set(key, either)
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
}

func numbers(s *jsonschema.Schema, low, high, fallback int) {
	s.Minimum, s.Maximum, s.Default = number(low), number(high), fallback
}

func words[T ~string](s *jsonschema.Schema, all []T, fallback T) {
	for _, w := range all {
		s.Enum = append(s.Enum, string(w))
	}
	s.Default = string(fallback)
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

func length(n int) *uint64 {
	u := uint64(n)
	return &u
}
