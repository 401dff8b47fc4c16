package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/invopop/jsonschema"
)

// schemaID is never fetched.
const schemaID = "https://github.com/rackless/rackless/docs/lab.schema.json"

// The parser gives better messages by parsing the value.
const (
	memoryPattern = `^[1-9][0-9]*(B|KiB|MiB|GiB|TiB|M|G)$`
	keptPattern   = `^(0|[1-9][0-9]*)(B|KiB|MiB|GiB|TiB|M|G)$`
	nodePattern   = `^(0|[1-9][0-9]{0,3})$` // of a NUMA node, as a key
	octetPattern  = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	subnetPattern = `^(` + octetPattern + `\.){3}` + octetPattern + `/([89]|[12][0-9]|30)$`
)

// Tests generate the schema; the program prints the committed file. "go test ./lab -run Schema -update" writes it.

// descriptions are by type and field: "file.Name".
var descriptions = sync.OnceValue(func() map[string]string {
	source, err := parser.ParseFile(token.NewFileSet(), "file.go", nil, parser.ParseComments)
	if err != nil {
		panic(fmt.Sprintf("parse the comments of the lab file's keys: %v", err))
	}
	texts := make(map[string]string)
	ast.Inspect(source, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					texts[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
				}
			}
		}
		return false
	})
	return texts
})

// reflector inlines all types except device requests, for readability in editors, without an $id from Go's package
// path.
func reflector() *jsonschema.Reflector {
	texts := descriptions()
	return &jsonschema.Reflector{Anonymous: true, DoNotReference: true, ExpandedStruct: true,
		LookupComment: func(t reflect.Type, field string) string { return texts[t.Name()+"."+field] }}
}

// makeSchema returns the JSON schema (draft 2020-12). It accepts every valid file, and some files that Parse rejects by
// arithmetic, such as a subnet that is too small.
func makeSchema() []byte {
	s := reflector().Reflect(&file{})
	s.ID = schemaID
	s.Title = "rackless lab file"
	// A schema consists of strings, numbers and lists.
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

// JSONSchemaExtend is for top-level keys.
func (file) JSONSchemaExtend(s *jsonschema.Schema) {
	name := property(s, "name")
	name.Pattern, name.MaxLength = namePattern, length(MaxName)
	oneOfThese(property(s, "driver"), drivers(), DefaultDriver)
	oneOfThese(property(s, "workload"), Workloads(), DefaultWorkload)
	oneOfThese(property(s, "hugepages"), pageSizes(), DefaultHugepages)
	oneOfThese(property(s, "arch"), arches(), "")
	oneOfThese(property(s, "home"), homes(), HomeOwn)
	tenants := property(s, "tenants")
	tenants.Pattern, tenants.MaxLength, tenants.Default = tenantsPattern, length(maxPath), DefaultTenants
	// YAML reads keys whose lines are all commented out as null.
	for _, key := range []string{"host", "fabric", "affinity", "links", "slurm", "vsphere", "traffic", "simulation",
		"defaults"} {
		nullable(s, key)
	}
	port := &jsonschema.Schema{Type: "string", AnyOf: []*jsonschema.Schema{{Pattern: addressPattern},
		{Pattern: deviceNamePattern, MaxLength: length(maxDeviceName)}}}
	links := property(s, "links").AnyOf[0]
	links.Items = &jsonschema.Schema{Type: "array", Items: port, MinItems: length(2), UniqueItems: true}
	s.Definitions = make(jsonschema.Definitions)
	for _, k := range []deviceKind{gpuKind, nicKind, vfKind} {
		s.Definitions[k.key] = k.schema()
		s.Definitions[k.key+"_selector"] = k.selectorSchema()
	}
}

// JSONSchemaExtend describes addresses as strings.
func (Customize) JSONSchemaExtend(s *jsonschema.Schema) {
	property(s, "domain").Pattern = domainPattern
	prefix := &jsonschema.Schema{Type: "string", Pattern: `^(\d{1,3}\.){3}\d{1,3}/\d{1,2}$`}
	*property(s, "address") = jsonschema.Schema{Description: property(s, "address").Description,
		AnyOf: []*jsonschema.Schema{prefix, {Type: "array", Items: prefix}}}
	asText(s, "gateway", addressText, nil)
	servers := property(s, "dns")
	servers.MaxItems = length(maxServers)
	servers.Items = &jsonschema.Schema{Type: "string", Pattern: addressText}
}

// addressText also matches some invalid addresses.
const addressText = `^(\d{1,3}\.){3}\d{1,3}$`

// JSONSchemaExtend adds enumerations.
func (VSphere) JSONSchemaExtend(s *jsonschema.Schema) {
	oneOfThese(property(s, "clone"), clones(), CloneFull)
	oneOfThese(property(s, "power_policy"), powerPolicies(), "")
	oneOfThese(property(s, "passthrough"), passthroughs(), PassthroughStatic)
	for key, long := range map[string]int{"settings": maxInventoryName, "modules": maxModuleOptions} {
		p := property(s, key)
		p.PropertyNames = &jsonschema.Schema{Pattern: settingPattern, MaxLength: length(maxInventoryName)}
		p.MaxProperties = length(maxSettings)
		p.AdditionalProperties = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "number"}, {Type: "boolean"},
			{Type: "string", Pattern: matchPattern, MaxLength: length(long)}}}
	}
	for f := range reflect.TypeFor[VSphere]().Fields() {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); f.Tag.Get("rule") == "inventory" {
			p := property(s, key)
			p.Pattern, p.MaxLength = matchPattern, length(maxInventoryName)
		}
	}
	listOfNames(property(s, "networks"))
	switches := property(s, "switches")
	switches.PropertyNames = &jsonschema.Schema{Pattern: matchPattern, MaxLength: length(maxInventoryName)}
	switches.MaxProperties = length(maxSwitches)
}

// JSONSchemaExtend adds enumerations and ranges.
func (Switch) JSONSchemaExtend(s *jsonschema.Schema) {
	oneOfThese(property(s, "kind"), switchKinds(), SwitchDistributed)
	numbers(property(s, "mtu"), MinMTU, maxSwitchMTU, nil)
	numbers(property(s, "vlan"), 1, maxVLAN, nil)
	for _, key := range []string{"uplinks", "port_groups", "hosts"} {
		listOfNames(property(s, key))
	}
}

func listOfNames(p *jsonschema.Schema) {
	p.MaxItems, p.UniqueItems = length(maxSwitchNames), true
	p.Items = &jsonschema.Schema{Type: "string", Pattern: matchPattern, MaxLength: length(maxInventoryName)}
}

// JSONSchemaExtend allows a null reserve, with all lines commented out, and a plain number of cores.
func (fileHost) JSONSchemaExtend(s *jsonschema.Schema) {
	nullable(s, "reserve")
	either := property(s, "reserve")
	either.AnyOf = append(either.AnyOf, cores())
}

// JSONSchemaExtend adds ranges.
func (fileReserve) JSONSchemaExtend(s *jsonschema.Schema) {
	numbers(property(s, "cores"), 1, MaxCPUs, nil)
	asText(s, "memory", keptPattern, nil)
	nullable(s, "numa_nodes")
}

// JSONSchema describes a mapping, as in the file.
func (fileNUMAReserves) JSONSchema() *jsonschema.Schema {
	node := reflector().Reflect(&fileNUMAReserve{})
	node.Version = ""
	node.MinProperties = length(1)
	return &jsonschema.Schema{
		Type:                 "object",
		PropertyNames:        &jsonschema.Schema{Pattern: nodePattern},
		AdditionalProperties: &jsonschema.Schema{AnyOf: []*jsonschema.Schema{node, cores()}},
	}
}

// JSONSchemaExtend adds ranges.
func (fileNUMAReserve) JSONSchemaExtend(s *jsonschema.Schema) {
	numbers(property(s, "cores"), 1, MaxCPUs, nil)
	asText(s, "memory", keptPattern, nil)
}

func cores() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "integer", Minimum: number(1), Maximum: number(MaxCPUs)}
}

// JSONSchemaExtend requires node names and at least one of numa and nic.
func (fileAffinity) JSONSchemaExtend(s *jsonschema.Schema) {
	nodes := property(s, "nodes")
	*nodes = jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}, MinItems: length(1),
		Description: nodes.Description}
	for _, key := range []string{"numa", "nic"} {
		oneOfThese(property(s, key), affinityValues(), "")
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Required: []string{key}})
	}
}

// JSONSchemaExtend adds ranges.
func (fileFabric) JSONSchemaExtend(s *jsonschema.Schema) {
	numbers(property(s, "mtu"), MinMTU, MaxMTU, DefaultMTU)
	asText(s, "subnet", subnetPattern, DefaultSubnet)
	oneOfThese(property(s, "topology"), topologies(), "")
	numbers(property(s, "leaves"), 1, MaxLeaves, nil)
	numbers(property(s, "spines"), 1, MaxSpines, nil)
	asText(s, "rate", ratePattern, nil)
	s.DependentRequired = map[string][]string{"topology": {"leaves", "spines"}, "leaves": {"topology"},
		"spines": {"topology"}, "rate": {"topology"}}
}

// JSONSchemaExtend adds ranges.
func (settings) JSONSchemaExtend(s *jsonschema.Schema) {
	orWord := func(key string, value *jsonschema.Schema) {
		p := property(s, key)
		*p = jsonschema.Schema{AnyOf: []*jsonschema.Schema{value, {Const: string(Auto)}}, Description: p.Description}
	}
	orWord("cpus", &jsonschema.Schema{Type: "integer", Minimum: number(MinCPUs), Maximum: number(MaxCPUs)})
	property(s, "cpus").Default = DefaultCPUs
	orWord("memory", &jsonschema.Schema{Type: "string", Pattern: memoryPattern})
	property(s, "memory").Default = DefaultMemory.String()
	image := property(s, "image")
	// The pattern allows a package set to be named twice.
	text := strings.TrimSuffix(strings.TrimPrefix(imagePattern, "^"), "+$")
	releases := strings.Join(append(FullReleases(), AnyRelease), "|")
	image.Pattern = "^(" + strings.Join([]string{DefaultImage, "(" + releases + ")(\\+(" +
		strings.Join(PackageSets(), "|") + "))*", text + "*[./]" + text + "*"}, "|") + ")$"
	image.MaxLength, image.Default = length(maxImage), DefaultImage
	for key, fallback := range map[string]int{"nics": DefaultNICs, "gpus": DefaultGPUs, "vfs": DefaultVFs} {
		p := property(s, key)
		*p = jsonschema.Schema{Ref: "#/$defs/" + key, Description: p.Description, Default: fallback}
	}
	oneOfThese(property(s, "nic"), nicModels(), DefaultNIC)
	oneOfThese(property(s, "profile"), profileNames(), "")
	oneOfThese(property(s, "smt"), choices(), DefaultSetting)
	oneOfThese(property(s, "guest_numa"), choices(), DefaultSetting)
	steps := property(s, "setup")
	steps.MaxItems = length(maxSteps)
	steps.Items = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{steps.Items, script("")}}
	nullable(s, "setup")
}

// JSONSchemaExtend limits the length of commands.
func (fileStep) JSONSchemaExtend(s *jsonschema.Schema) {
	for _, key := range []string{"run", "check"} {
		*property(s, key) = *script(property(s, key).Description)
	}
}

func script(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `[^ \t\r\n]`, MaxLength: length(maxScript),
		Description: description}
}

func (k deviceKind) schema() *jsonschema.Schema {
	one := func(low int) []*jsonschema.Schema {
		return []*jsonschema.Schema{
			{Type: "integer", Minimum: number(low), Maximum: number(k.max)},
			{Type: "string", AnyOf: []*jsonschema.Schema{{Pattern: addressPattern}, {Pattern: deviceNamePattern,
				MaxLength: length(maxDeviceName)}}},
			{Ref: "#/$defs/" + k.key + "_selector"},
		}
	}
	list := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{AnyOf: one(1)}}
	return &jsonschema.Schema{AnyOf: append(one(0), list)}
}

func (k deviceKind) selectorSchema() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(),
		AdditionalProperties: jsonschema.FalseSchema, MinProperties: length(1)}
	text := func(description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: matchPattern, MaxLength: length(maxMatch),
			Description: description}
	}
	s.Properties.Set("count", &jsonschema.Schema{Type: "integer", Minimum: number(1), Maximum: number(k.max),
		Default:     1,
		Description: "How many of those that fit."})
	s.Properties.Set("vendor", text("Part of the vendor's name, whatever the case, or its PCI number such as "+
		"\"0x10de\"."))
	s.Properties.Set("model", text("Part of the model's name, whatever the case."))
	s.Properties.Set("numa_node", &jsonschema.Schema{Type: "integer", Minimum: number(0), Maximum: number(MaxNUMANode),
		Description: "The NUMA node of the host that it hangs on, or that of an emulated node for an emulated NIC."})
	if k.rate {
		s.Properties.Set("rate", &jsonschema.Schema{Type: "string", Pattern: ratePattern,
			Description: "At least this rate of the link: 25Gb/s, 2500Mb/s."})
	}
	if k.emulate {
		s.Properties.Set("memory", &jsonschema.Schema{Type: "string", Pattern: memoryPattern,
			Description: "Memory of an emulated GPU: a power of two. Absent: that of its model."})
		s.Properties.Set("beside", &jsonschema.Schema{Type: "string", Pattern: nicNamePattern, Default: "eth0",
			Description: "The NIC of the node to which the path of an emulated GPU leads."})
		path := &jsonschema.Schema{Description: "Way between an emulated GPU and that NIC: behind one PCIe switch, " +
			"behind two, through the host bridge, through another one of the NUMA node, or through another NUMA node."}
		oneOfThese(path, gpuPaths(), GPUPathPIX)
		s.Properties.Set("path", path)
		personality := &jsonschema.Schema{Description: "Device as which an emulated GPU appears: a virtio GPU for " +
			"the driver virtio_gpu, or a 3D controller with the ids of its model for vfio-pci, in a node with " +
			"an IOMMU."}
		oneOfThese(personality, gpuPersonalities(), PersonalityVirtio)
		s.Properties.Set("personality", personality)
	}
	return s
}

// JSONSchemaExtend adds the range of count. Go would promote the method of settings.
func (n fileNode) JSONSchemaExtend(s *jsonschema.Schema) {
	n.settings.JSONSchemaExtend(s)
	count := property(s, "count")
	count.Minimum, count.Maximum = number(1), number(MaxNodes)
	numbers(property(s, "leaf"), 0, MaxLeaves-1, nil)
}

// JSONSchema describes a mapping, as in the file.
func (fileNodeList) JSONSchema() *jsonschema.Schema {
	node := reflector().Reflect(&fileNode{})
	node.Version = "" // only the root names its draft
	one := uint64(1)
	return &jsonschema.Schema{
		Type:                 "object",
		MinProperties:        &one,
		PropertyNames:        &jsonschema.Schema{Pattern: namePattern, MaxLength: length(MaxName)},
		AdditionalProperties: orNull(node),
	}
}

// Keys match the struct tags, so a missing key is a bug in this file.
func property(s *jsonschema.Schema, key string) *jsonschema.Schema {
	p, ok := s.Properties.Get(key)
	if !ok {
		panic(fmt.Sprintf("schema of the lab file: no key %q", key))
	}
	return p
}

// The reflector ignores MarshalText: it reads Bytes as a number and netip.Prefix as an object.
func asText(s *jsonschema.Schema, key, pattern string, fallback any) {
	*property(s, key) = jsonschema.Schema{Type: "string", Pattern: pattern, Default: fallback,
		Description: property(s, key).Description}
}

// All lines below a key may be commented out.
func nullable(s *jsonschema.Schema, key string) {
	p := property(s, key)
	description := p.Description
	p.Description = "" // it belongs to the key, not to an alternative
	either := orNull(p)
	either.Description = description
	s.Properties.Set(key, either)
}

func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
}

// fallback is nil if the default is not a single value.
func numbers(s *jsonschema.Schema, low, high int, fallback any) {
	s.Minimum, s.Maximum, s.Default = number(low), number(high), fallback
}

func oneOfThese[T ~string](s *jsonschema.Schema, all []T, fallback T) {
	for _, w := range all {
		s.Enum = append(s.Enum, string(w))
	}
	if fallback != "" {
		s.Default = string(fallback)
	}
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

func length(n int) *uint64 {
	u := uint64(n)
	return &u
}
