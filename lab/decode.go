package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// Patterns of texts. They use only what RE2 and ECMA-262 understand alike, because the JSON schema shows them too.
const (
	namePattern  = `^[a-z0-9][a-z0-9-]*$`
	imagePattern = `^[^\x00-\x1f\x7f]+$`
	maxImage     = 255 // characters; longer than any file name on Linux
)

// decoder walks the YAML tree and fills a file. It goes on after a fault, so that one run shows all of them.
type decoder struct {
	*strictyaml.Reader
	compiled map[string]*regexp.Regexp // by pattern; most files need one or two
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
	d.Fields("", body, &f)
	// A document that is not even a mapping has its fault already.
	if len(d.Errs) == 0 || strictyaml.IsMapping(body) {
		d.require("name", "add a line such as \"name: pair\"")
		d.require("nodes", "add \"nodes:\" with a line such as \"  vm: {count: 2}\" below it")
	}
	return &f
}

// require records a fault if a top-level key is not there at all, not even misspelt.
func (d *decoder) require(name, fix string) {
	if !d.Has(name) {
		d.Fail(place{Line: 1, Column: 1}, Error{Key: name, What: "missing key", Fix: fix})
	}
}

func (d *decoder) nodes(path string, n ast.Node) *fileNodeList {
	var list fileNodeList
	if strictyaml.IsNull(n) {
		d.Fail(d.Keys[path], Error{Key: path, What: "no nodes",
			Fix: "add a line such as \"  vm: {count: 2}\" below it"})
		return nil
	}
	// An empty mapping is a fault of its own, unless its entries had faults already.
	before := len(d.Errs)
	d.Entries(path, n, func(name string, at place, value ast.Node) {
		path := strictyaml.Join(path, name)
		d.checkName(path, "node name", name, at)
		list = append(list, namedNode{name: name})
		if strictyaml.IsNull(value) { // "vm00:" alone is a node with every default
			return
		}
		d.Fields(path, value, &list[len(list)-1].node)
	})
	if len(list) == 0 && len(d.Errs) == before {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "no nodes", Fix: "write for example {vm: {count: 2}}"})
	}
	return &list
}

func (d *decoder) labName(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "text")
	if !ok {
		return nil
	}
	d.checkName(path, "lab name", s, strictyaml.PlaceOf(n))
	return &s
}

// nodeName decodes the name of a node that is made elsewhere.
func (d *decoder) nodeName(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "the name of a node")
	if !ok {
		return nil
	}
	return &s
}

// checkName checks the name of the lab or of a node.
func (d *decoder) checkName(path, kind, name string, at place) {
	e := Error{Key: path, What: "bad " + kind, Have: strictyaml.Quote(name)}
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
	d.Fail(at, e)
}

// nicModel decodes what the NICs are, which is easily taken for how many.
func (d *decoder) nicModel(path string, n ast.Node) *NICModel {
	const which = "write connectx-4-lx or connectx-5"
	slips := map[string]string{"connectx": which, "mlx5": which, "rxe": "write virtio"}
	if i, ok := n.(*ast.IntegerNode); ok {
		count := i.GetToken().Value
		slips[count] = "the number of NICs is nics: " + strictyaml.Shorten(count)
	}
	return enum(d, path, n, nicModels(), slips)
}

// cpus decodes a number of virtual CPUs or auto.
func (d *decoder) cpus(path string, n ast.Node) *orAuto[int] {
	return autoOr(d, path, n, fmt.Sprintf("a whole number from %d to %d, or auto", MinCPUs, MaxCPUs), func() *int {
		return d.Integer(path, n, MinCPUs, MaxCPUs)
	})
}

// memory decodes the size of a node's memory or auto.
func (d *decoder) memory(path string, n ast.Node) *orAuto[Bytes] {
	return autoOr(d, path, n, bytesWant+", or auto", func() *Bytes { return d.size(path, n, MinMemory) })
}

// kept decodes the memory that a host keeps.
func (d *decoder) kept(path string, n ast.Node) *Bytes { return d.size(path, n, 0) }

// autoOr decodes auto, or what value decodes. Any other word is measured by both; what begins with
// a digit is meant as a value.
func autoOr[T any](d *decoder, path string, n ast.Node, want string, value func() *T) *orAuto[T] {
	if word, ok := n.(*ast.StringNode); ok && word.Value != "" && (word.Value[0] < '0' || word.Value[0] > '9') {
		if word.Value == string(Auto) {
			return &orAuto[T]{auto: true}
		}
		e := Error{Key: path, What: "unknown value", Have: strictyaml.Quote(word.Value), Want: want}
		e.Fix = strictyaml.Meant(word.Value, []string{string(Auto)})
		d.Fail(strictyaml.PlaceOf(word), e)
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
	e := Error{Key: path, Have: strictyaml.Describe(n), Want: bytesWant}
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		e.What, e.Fix = "size without a unit", "write for example "+n.GetToken().Value+"MiB"
		d.Fail(d.ValuePlace(path, n), e)
		return nil
	}
	s, ok := d.Text(path, n, bytesWant)
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
	d.Fail(strictyaml.PlaceOf(n), e)
	return nil
}

func (d *decoder) subnet(path string, n ast.Node) *netip.Prefix {
	want := fmt.Sprintf("an IPv4 subnet with a length from /%d to /%d, such as %s", MinPrefix, MaxPrefix, DefaultSubnet)
	s, ok := d.Text(path, n, want)
	if !ok {
		return nil
	}
	e := Error{Key: path, What: "bad subnet", Have: strictyaml.Quote(s), Want: want}
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
	d.Fail(strictyaml.PlaceOf(n), e)
	return nil
}

// enum decodes one word of a list. Slips maps what people write instead, in lower case, to advice.
func enum[T ~string](d *decoder, path string, n ast.Node, all []T, slips map[string]string) *T {
	names := lists.Map(all, func(w T) string { return string(w) })
	// Truth values and numbers are no text, but they have advice that is better than quotes.
	switch n.(type) {
	case *ast.BoolNode, *ast.IntegerNode:
		if fix := slips[strings.ToLower(n.GetToken().Value)]; fix != "" {
			d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n),
				Want: words.Or(names), Fix: fix})
			return nil
		}
	}
	s, ok := d.Text(path, n, words.Or(names))
	if !ok {
		return nil
	}
	if i := slices.Index(names, s); i >= 0 {
		return &all[i]
	}
	e := Error{Key: path, What: "unknown value", Have: strictyaml.Quote(s), Want: words.Or(names),
		Fix: slips[strings.ToLower(s)]}
	e.Fix = cmp.Or(e.Fix, strictyaml.Meant(s, names))
	d.Fail(strictyaml.PlaceOf(n), e)
	return nil
}

// What messages advise where a value or a key is understandable, but not what a lab file has there.

// misplaced says where an unknown key belongs if it is one of the lab file, but of another place.
func misplaced(name string) string {
	switch name {
	case "mtu", "subnet":
		return "it belongs below fabric"
	case "count":
		return "it belongs to one node, as in \"vm: {count: 16}\""
	case "cpus", "memory", "image", "nics", "nic", "gpus", "vfs", "smt", "guest_numa":
		return "it belongs to a node, or below defaults for all nodes"
	case "name", "driver", "workload", "host", "hugepages", "tenants", "fabric", "affinity", "links", "defaults",
		"nodes":
		return "it belongs to the lab: do not indent it"
	case "reserve":
		return "it belongs below host"
	case "cores":
		return "it belongs to host.reserve; the virtual CPUs of a node are cpus"
	case "numa_nodes":
		return "it belongs to host.reserve, as in \"host: {reserve: {numa_nodes: {0: {cores: 2}}}}\""
	case "numa":
		return "it belongs to an entry of affinity, as in \"- {nodes: [vm00, vm01], numa: different}\""
	case "vendor", "model", "numa_node":
		return "it belongs to gpus, nics or vfs, as in \"gpus: {vendor: nvidia}\""
	case "rate":
		return "it belongs to nics or vfs, as in \"nics: {rate: 25Gb/s}\""
	case "mig", "migs", "mig_profile", "mig_profiles", "vgpu", "vgpus", "vgpu_type", "mdev", "mdevs", "profile",
		"fraction",
		"slice", "slices", "partition":
		return NoPartsOfGPUs
	case "pvrdma":
		return "PVRDMA adapters are not supported: a node gets RDMA by virtual functions, as in vfs: 1"
	case "device", "devices":
		return "devices of the host are asked for by gpus, nics and vfs; " + NoPartsOfGPUs
	case "address":
		return "write the address alone, as in \"gpus: 0000:06:00.0\""
	}
	return ""
}

// unknownFix advises on an unknown key. near is the key of its mapping that looks like it, or "".
func unknownFix(path, name, near string) string {
	fix := misplaced(name)
	switch {
	case near != "" && (fix == "" || strings.HasPrefix(near, name)):
		return "" // a key that is cut short is meant for here, whatever it is elsewhere: nic for nics
	case fix == "" && path == "":
		return "if it is the name of a node, move it below nodes"
	}
	return fix
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
			return fmt.Sprintf("for equal nodes write \"%s: {count: %s}\"", name,
				strictyaml.Shorten(n.GetToken().Value))
		}
	}
	return ""
}

// deviceFix advises on what was written in place of a device: a count in quotes, a word, a vendor,
// an address that is cut short.
func (d *decoder) deviceFix(s string, k deviceKind) string {
	if k.max == 0 && !strings.Contains(s, ":") {
		return "" // there is nothing to count or to choose
	}
	letters := strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
	switch strings.ToLower(s) {
	case "":
		return ""
	case "auto", "any", "all", "yes", "on":
		return fmt.Sprintf("say how many: %s: 1", k.key)
	case "none", "no", "off":
		return fmt.Sprintf("write %s: 0", k.key)
	}
	switch {
	case strings.Trim(s, "0123456789") == "":
		return "remove the quotes"
	case d.matches(addressPattern, s+".0"):
		return "add the function: " + completed(s+".0")
	case d.matches(addressPattern, "0"+s):
		return "write the bus with two digits: " + completed("0"+s)
	case letters && len(s) <= maxMatch:
		return fmt.Sprintf("to choose by vendor or model, write {vendor: %s} or {model: %s}", s, s)
	case !strings.Contains(s, ":") && d.matches(matchPattern, s) && utf8.RuneCountInString(s) <= maxMatch:
		return fmt.Sprintf("to choose by the model, write {model: %s}", strictyaml.Quote(s))
	}
	return ""
}
