package lab

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Patterns of texts. They use only what RE2 and ECMA-262 understand alike, because the JSON schema shows them too.
const (
	namePattern  = `^[a-z0-9][a-z0-9-]*$`
	imagePattern = `^[^\x00-\x1f\x7f]+$`
	maxImage     = 255 // characters; longer than any file name on Linux
)

// decoder walks the YAML tree and fills a file. It goes on after a fault, so that one run shows all of them.
type decoder struct {
	*source
	keys   map[string]place // where the key of a path was written
	values map[string]place // where its value was written
	meant  map[string]bool  // keys that an unknown key was probably meant to be

	name, image *regexp.Regexp
}

func newDecoder(s *source) *decoder {
	return &decoder{source: s, keys: map[string]place{}, values: map[string]place{}, meant: map[string]bool{},
		name: regexp.MustCompile(namePattern), image: regexp.MustCompile(imagePattern)}
}

// document decodes the whole file.
func (d *decoder) document(body ast.Node) *file {
	var f file
	d.mapping("", body, []key{
		{"name", func(path string, n ast.Node) { f.Name = d.nameText(path, n) }},
		{"driver", func(path string, n ast.Node) { f.Driver = enum(d, path, n, drivers()) }},
		{"workload", func(path string, n ast.Node) { f.Workload = enum(d, path, n, workloads()) }},
		{"fabric", func(path string, n ast.Node) { f.Fabric = d.fabric(path, n) }},
		{"defaults", func(path string, n ast.Node) {
			f.Defaults = new(settings)
			if !isNull(n) { // "defaults:" with every line below it commented out
				d.mapping(path, n, d.settingKeys(f.Defaults))
			}
		}},
		{"nodes", func(path string, n ast.Node) { f.Nodes = d.nodes(path, n) }},
	})
	// A document that is not even a mapping has its fault already.
	if len(d.errs) == 0 || isMapping(body) {
		d.require("name", "add a line such as \"name: pair\"")
		d.require("nodes", "add \"nodes:\" with a line such as \"  vm: {count: 2}\" below it")
	}
	return &f
}

// require records a fault if a top-level key is not there at all, not even misspelt.
func (d *decoder) require(name, fix string) {
	if _, ok := d.keys[name]; !ok && !d.meant[name] {
		d.fail(place{1, 1}, Error{Key: name, What: "missing key", Fix: fix})
	}
}

// key is a key that a mapping may have and what to do with its value. set is given the value's dotted path.
type key struct {
	name string
	set  func(path string, n ast.Node)
}

// mapping decodes a mapping with a fixed set of keys.
func (d *decoder) mapping(path string, n ast.Node, known []key) {
	d.entries(path, n, func(name string, at place, value ast.Node) {
		for _, k := range known {
			if k.name == name {
				k.set(join(path, name), value)
				return
			}
		}
		names := make([]string, len(known))
		for i, k := range known {
			names[i] = k.name
		}
		fix := misplaced(name)
		if near := nearest(name, names); fix == "" && near != "" {
			fix = "did you mean " + near + "?"
			d.meant[join(path, near)] = true
		}
		if fix == "" && path == "" {
			fix = "if it is the name of a node, move it below nodes"
		}
		d.fail(at, Error{Key: path, What: "unknown key", Have: quote(name), Want: orList(names), Fix: fix})
	})
}

// entries calls each for every entry of a mapping, and records keys that are not text or that come twice.
func (d *decoder) entries(path string, n ast.Node, each func(name string, at place, value ast.Node)) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.fail(placeOfNode(n), Error{Key: path, What: "wrong type", Have: describe(n), Want: "keys with values",
			Fix: mappingFix(path, n)})
		return
	}
	seen := make(map[string]place, len(values))
	for _, v := range values {
		at := placeOf(v.Key.GetToken())
		k, ok := v.Key.(*ast.StringNode)
		if !ok {
			// 007 and 7, or ~ and null, are one key to some readers of YAML and two to others.
			d.fail(at, Error{Key: path, What: "key is not text", Have: describe(v.Key), Fix: quoteFix(v.Key)})
			continue
		}
		name := k.Value
		if first, twice := seen[name]; twice {
			d.fail(at, Error{Key: join(path, name), What: "key is there twice",
				Have: fmt.Sprintf("lines %d and %d", first.line, at.line), Fix: "remove one of them"})
			continue
		}
		seen[name] = at
		d.keys[join(path, name)] = at
		d.values[join(path, name)] = placeOfNode(v.Value)
		each(name, at, v.Value)
	}
}

func (d *decoder) fabric(path string, n ast.Node) *fileFabric {
	var f fileFabric
	if isNull(n) {
		return &f
	}
	d.mapping(path, n, []key{
		{"mtu", func(path string, n ast.Node) {
			f.MTU = d.integer(path, n, MinMTU, MaxMTU)
		}},
		{"subnet", func(path string, n ast.Node) { f.Subnet = d.subnet(path, n) }},
	})
	return &f
}

func (d *decoder) nodes(path string, n ast.Node) fileNodeList {
	var list fileNodeList
	if isNull(n) {
		d.fail(d.keys[path], Error{Key: path, What: "no nodes", Fix: "add a line such as \"  vm: {count: 2}\" below it"})
		return nil
	}
	before := len(d.errs)
	d.entries(path, n, func(name string, at place, value ast.Node) {
		path := join(path, name)
		d.checkName(path, "node name", name, at)
		list = append(list, namedNode{name: name})
		if isNull(value) { // "vm00:" alone is a node with every default
			return
		}
		var node fileNode
		known := append(d.settingKeys(&node.settings), key{"count", func(path string, n ast.Node) {
			node.Count = d.integer(path, n, 1, MaxNodes)
		}})
		d.mapping(path, value, known)
		list[len(list)-1].node = node
	})
	if len(list) == 0 && len(d.errs) == before {
		d.fail(placeOfNode(n), Error{Key: path, What: "no nodes", Fix: "write for example {vm: {count: 2}}"})
	}
	return list
}

// settingKeys returns the keys that a node and defaults share.
func (d *decoder) settingKeys(s *settings) []key {
	return []key{
		{"cpus", func(path string, n ast.Node) { s.CPUs = d.integer(path, n, MinCPUs, MaxCPUs) }},
		{"memory", func(path string, n ast.Node) { s.Memory = d.memory(path, n) }},
		{"image", func(path string, n ast.Node) { s.Image = d.imageText(path, n) }},
		{"nics", func(path string, n ast.Node) { s.NICs = d.integer(path, n, MinNICs, MaxNICs) }},
		{"gpus", func(path string, n ast.Node) { s.GPUs = d.integer(path, n, MinGPUs, MaxGPUs) }},
	}
}

// integer decodes a whole number. Only plain decimals are numbers here: 010 is eight in YAML 1.1 and ten in 1.2.
func (d *decoder) integer(path string, n ast.Node, low, high int) *int {
	want := fmt.Sprintf("a whole number from %d to %d", low, high)
	e := Error{Key: path, What: "wrong type", Have: describe(n), Want: want}
	if _, ok := n.(*ast.IntegerNode); !ok {
		if s, isText := n.(*ast.StringNode); isText && s.Value != "" && strings.Trim(s.Value, "0123456789") == "" {
			e.Fix = "remove the quotes"
			if s.Token.Type == token.StringType { // no quotes: the YAML library gives a number past 64 bits as text
				e.What, e.Have, e.Fix = "out of range", shorten(s.Value), ""
			}
		}
		d.fail(d.valuePlace(path, n), e)
		return nil
	}
	digits := n.GetToken().Value
	v, err := strconv.Atoi(digits)
	switch {
	case err == nil && strconv.Itoa(v) != digits, err != nil && strings.Trim(digits, "-0123456789") != "": // also 1_000
		e.What, e.Fix = "not a plain decimal number", "write it with the digits 0 to 9 and no leading zero"
	case err != nil || v < low || v > high:
		e.What = "out of range"
	default:
		return &v
	}
	d.fail(d.valuePlace(path, n), e)
	return nil
}

// text decodes a string. A number or true where text is wanted is an error: 1e3 would not stay the name it looks like.
func (d *decoder) text(path string, n ast.Node, want string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		if n.Value != nil {
			return n.Value.Value, true
		}
	}
	d.fail(d.valuePlace(path, n), Error{Key: path, What: "wrong type", Have: describe(n), Want: want, Fix: quoteFix(n)})
	return "", false
}

func (d *decoder) nameText(path string, n ast.Node) string {
	s, ok := d.text(path, n, "text")
	if ok {
		d.checkName(path, "lab name", s, placeOfNode(n))
	}
	return s
}

// checkName checks the name of the lab or of a node.
func (d *decoder) checkName(path, kind, name string, at place) {
	e := Error{Key: path, What: "bad " + kind, Have: quote(name)}
	switch {
	case !d.name.MatchString(name):
		e.Want = "a letter a-z or a digit, then letters a-z, digits and hyphens"
		if fixed := strings.ReplaceAll(strings.ToLower(name), "_", "-"); d.name.MatchString(fixed) && len(fixed) <= MaxName {
			e.Fix = "write " + fixed
		}
	case len(name) > MaxName:
		e.Have = fmt.Sprintf("%d characters", len(name))
		e.Want = fmt.Sprintf("at most %d, because it becomes part of socket paths", MaxName)
	default:
		return
	}
	d.fail(at, e)
}

func (d *decoder) imageText(path string, n ast.Node) *string {
	s, ok := d.text(path, n, "text")
	if !ok {
		return nil
	}
	if !d.image.MatchString(s) || utf8.RuneCountInString(s) > maxImage {
		d.fail(placeOfNode(n), Error{Key: path, What: "bad image name", Have: quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line", maxImage)})
		return nil
	}
	return &s
}

func (d *decoder) memory(path string, n ast.Node) *Bytes {
	e := Error{Key: path, Have: describe(n), Want: bytesWant}
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		e.What, e.Fix = "size without a unit", "write for example "+n.GetToken().Value+"MiB"
		d.fail(d.valuePlace(path, n), e)
		return nil
	}
	s, ok := d.text(path, n, bytesWant)
	if !ok {
		return nil
	}
	b, fix := parseBytes(s)
	switch {
	case fix != "":
		e.What, e.Fix = "bad size", fix
	case b < MinMemory || b > MaxMemory:
		e.What, e.Want = "out of range", fmt.Sprintf("%s to %s", MinMemory, MaxMemory)
	case b%MiB != 0:
		e.What, e.Want = "size is not whole MiB", "a multiple of 1MiB" // hugepages and QEMU count in MiB
		e.Fix = "write " + (b / MiB * MiB).String()
	default:
		return &b
	}
	d.fail(placeOfNode(n), e)
	return nil
}

func (d *decoder) subnet(path string, n ast.Node) *netip.Prefix {
	want := fmt.Sprintf("an IPv4 subnet with a length from /%d to /%d, such as %s", MinPrefix, MaxPrefix, DefaultSubnet)
	s, ok := d.text(path, n, want)
	if !ok {
		return nil
	}
	e := Error{Key: path, What: "bad subnet", Have: quote(s), Want: want}
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		if a, err := netip.ParseAddr(s); err == nil && a.Is4() {
			e.Fix = "add a length: " + netip.PrefixFrom(a, 24).Masked().String()
		}
	case !p.Addr().Is4() || p.Bits() < MinPrefix || p.Bits() > MaxPrefix:
	case p != p.Masked():
		e.What, e.Want = "address bits behind the subnet's length", p.Masked().String()
	default:
		return &p
	}
	d.fail(placeOfNode(n), e)
	return nil
}

// enum decodes one word of a list.
func enum[T ~string](d *decoder, path string, n ast.Node, all []T) *T {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = string(w)
	}
	s, ok := d.text(path, n, orList(words))
	if !ok {
		return nil
	}
	if i := slices.Index(words, s); i >= 0 {
		return &all[i]
	}
	e := Error{Key: path, What: "unknown value", Have: quote(s), Want: orList(words)}
	if near := nearest(s, words); near != "" {
		e.Fix = "did you mean " + near + "?"
	}
	d.fail(placeOfNode(n), e)
	return nil
}

// valuePlace returns where a value stands. A value that is not there at all is shown at its key.
func (d *decoder) valuePlace(path string, n ast.Node) place {
	if isNull(n) && n.GetToken().Value != "null" && n.GetToken().Value != "~" {
		return d.keys[path]
	}
	return placeOfNode(n)
}

func isNull(n ast.Node) bool { _, ok := n.(*ast.NullNode); return ok }

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// describe says what a value is, for the "have" of a message.
func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "nothing"
	case *ast.StringNode:
		return quote(n.Value)
	case *ast.LiteralNode:
		return "a block of text"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "keys with values"
	case *ast.SequenceNode:
		return "a list"
	}
	return shorten(n.GetToken().Value) // numbers and booleans, as written
}

// quoteFix advises quotes where a scalar was meant as text.
func quoteFix(n ast.Node) string {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return "to mean it as text, quote it: " + quote(n.GetToken().Value)
	}
	return ""
}

// misplaced says where an unknown key belongs if it is one of the lab file, but of another place.
func misplaced(name string) string {
	switch name {
	case "mtu", "subnet":
		return "it belongs below fabric"
	case "count":
		return "it belongs to one node, as in \"vm: {count: 16}\""
	case "cpus", "memory", "image", "nics", "gpus":
		return "it belongs to a node, or below defaults for all nodes"
	case "name", "driver", "workload", "fabric", "defaults", "nodes":
		return "it belongs to the lab: do not indent it"
	}
	return ""
}

// mappingFix advises where a mapping was expected: on the two shortcuts that people try with nodes.
func mappingFix(path string, n ast.Node) string {
	parent, name, isNode := strings.Cut(path, ".")
	switch n.(type) {
	case *ast.SequenceNode:
		if path == "nodes" {
			return "write every node as a key, as in \"vm00: {}\""
		}
	case *ast.IntegerNode:
		if isNode && parent == "nodes" {
			return fmt.Sprintf("for equal nodes write \"%s: {count: %s}\"", name, shorten(n.GetToken().Value))
		}
	}
	return ""
}

// orList writes words as a choice: "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// join appends a key to a dotted path. Keys come from the file, so what is not plainly a word is quoted.
func join(path, name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || len(name) > maxQuoted || name == "" {
		// The full name stays part of the path: paths are also what the decoder looks places up by.
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
