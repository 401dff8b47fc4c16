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

	compiled map[string]*regexp.Regexp // by pattern; most files need one or two
}

func newDecoder(s *source) *decoder {
	return &decoder{source: s, keys: map[string]place{}, values: map[string]place{}, meant: map[string]bool{},
		compiled: map[string]*regexp.Regexp{}}
}

// matches reports whether a text is of one of the patterns of this package.
func (d *decoder) matches(pattern, s string) bool {
	re := d.compiled[pattern]
	if re == nil {
		re = regexp.MustCompile(pattern)
		d.compiled[pattern] = re
	}
	return re.MatchString(s)
}

// document decodes the whole file.
func (d *decoder) document(body ast.Node) *file {
	var f file
	d.mapping("", body, []key{
		{"name", func(path string, n ast.Node) { f.Name = d.nameText(path, n) }},
		{"driver", func(path string, n ast.Node) { f.Driver = enum(d, path, n, drivers(), nil) }},
		{"workload", func(path string, n ast.Node) { f.Workload = enum(d, path, n, workloads(), nil) }},
		{"host", func(path string, n ast.Node) { f.Host = d.host(path, n) }},
		{"hugepages", func(path string, n ast.Node) { f.Hugepages = d.hugepages(path, n) }},
		{"tenants", func(path string, n ast.Node) { f.Tenants = d.tenants(path, n) }},
		{"fabric", func(path string, n ast.Node) { f.Fabric = d.fabric(path, n) }},
		{"affinity", func(path string, n ast.Node) { f.Affinity = d.affinity(path, n) }},
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
		near := nearest(name, names)
		fix := misplaced(name)
		// A key that is cut short is meant for here, whatever it is elsewhere: nic for nics.
		if near != "" && (fix == "" || strings.HasPrefix(near, name)) {
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
	d.pairs(path, n, func(k ast.Node) (string, *Error) {
		if s, ok := k.(*ast.StringNode); ok {
			return s.Value, nil
		}
		// 007 and 7, or ~ and null, are one key to some readers of YAML and two to others.
		return "", &Error{What: "key is not text", Have: describe(k), Fix: quoteFix(k)}
	}, each)
}

// pairs calls each for every entry of a mapping, with its key as read takes it. It records keys
// that read refuses or that come twice.
func (d *decoder) pairs(path string, n ast.Node, read func(ast.Node) (string, *Error), each func(name string, at place,
	value ast.Node)) {
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
		name, e := read(v.Key)
		if e != nil {
			e.Key = path
			d.fail(at, *e)
			continue
		}
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
		d.fail(d.keys[path], Error{Key: path, What: "no nodes",
			Fix: "add a line such as \"  vm: {count: 2}\" below it"})
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
		{"cpus", func(path string, n ast.Node) { s.CPUs = d.cpus(path, n) }},
		{"memory", func(path string, n ast.Node) { s.Memory = d.memory(path, n) }},
		{"image", func(path string, n ast.Node) { s.Image = d.imageText(path, n) }},
		{"nics", func(path string, n ast.Node) { s.NICs = d.devices(path, n, nicKind()) }},
		{"gpus", func(path string, n ast.Node) { s.GPUs = d.devices(path, n, gpuKind()) }},
		{"vfs", func(path string, n ast.Node) { s.VFs = d.devices(path, n, vfKind()) }},
		{"smt", func(path string, n ast.Node) { s.SMT = d.setting(path, n) }},
		{"guest_numa", func(path string, n ast.Node) { s.GuestNUMA = d.setting(path, n) }},
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
	case !d.matches(namePattern, name):
		e.Want = "a letter a-z or a digit, then letters a-z, digits and hyphens"
		if fixed := strings.ReplaceAll(strings.ToLower(name), "_", "-"); d.matches(namePattern, fixed) &&
			len(fixed) <= MaxName {
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
	if !d.matches(imagePattern, s) || utf8.RuneCountInString(s) > maxImage {
		d.fail(placeOfNode(n), Error{Key: path, What: "bad image name", Have: quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line", maxImage)})
		return nil
	}
	return &s
}

// cpus decodes a number of virtual CPUs or auto.
func (d *decoder) cpus(path string, n ast.Node) *orAuto[int] {
	return autoOr(d, path, n, fmt.Sprintf("a whole number from %d to %d, or auto", MinCPUs, MaxCPUs), func() *int {
		return d.integer(path, n, MinCPUs, MaxCPUs)
	})
}

// memory decodes the size of a node's memory or auto.
func (d *decoder) memory(path string, n ast.Node) *orAuto[Bytes] {
	return autoOr(d, path, n, bytesWant+", or auto", func() *Bytes { return d.size(path, n, MinMemory) })
}

// autoOr decodes auto, or what value decodes. Any other word is measured by both; what begins with
// a digit is meant as a value.
func autoOr[T any](d *decoder, path string, n ast.Node, want string, value func() *T) *orAuto[T] {
	if word, ok := n.(*ast.StringNode); ok && word.Value != "" && (word.Value[0] < '0' || word.Value[0] > '9') {
		if word.Value == string(Auto) {
			return &orAuto[T]{auto: true}
		}
		e := Error{Key: path, What: "unknown value", Have: quote(word.Value), Want: want}
		if near := nearest(word.Value, []string{string(Auto)}); near != "" {
			e.Fix = "did you mean " + near + "?"
		}
		d.fail(placeOfNode(word), e)
		return nil
	}
	v := value()
	if v == nil {
		return nil
	}
	return &orAuto[T]{value: *v}
}

// size decodes an amount of memory in whole MiB, from low to MaxMemory.
func (d *decoder) size(path string, n ast.Node, low Bytes) *Bytes {
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
	case b < low || b > MaxMemory:
		e.What, e.Want = "out of range", fmt.Sprintf("%s to %s", low, MaxMemory)
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

// enum decodes one word of a list. Slips maps what people write instead, in lower case, to advice.
func enum[T ~string](d *decoder, path string, n ast.Node, all []T, slips map[string]string) *T {
	words := make([]string, len(all))
	for i, w := range all {
		words[i] = string(w)
	}
	// Truth values and numbers are no text, but they have advice that is better than quotes.
	switch n.(type) {
	case *ast.BoolNode, *ast.IntegerNode:
		if fix := slips[strings.ToLower(n.GetToken().Value)]; fix != "" {
			d.fail(placeOfNode(n), Error{Key: path, What: "wrong type", Have: describe(n), Want: orList(words),
				Fix: fix})
			return nil
		}
	}
	s, ok := d.text(path, n, orList(words))
	if !ok {
		return nil
	}
	if i := slices.Index(words, s); i >= 0 {
		return &all[i]
	}
	e := Error{Key: path, What: "unknown value", Have: quote(s), Want: orList(words), Fix: slips[strings.ToLower(s)]}
	if near := nearest(s, words); e.Fix == "" && near != "" {
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

// orList writes words as a choice: "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// join appends a key to a dotted path. Keys come from the file, so what is not plainly a word is quoted.
func join(path, name string) string {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" ||
		len(name) > maxQuoted || name == "" {
		// The full name stays part of the path: paths are also what the decoder looks places up by.
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
