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

// RE2 and ECMA-262 must read these patterns alike, because the JSON schema contains them too.
const (
	namePattern  = `^[a-z0-9][a-z0-9-]*$`
	imagePattern = `^[^\x00-\x1f\x7f]+$`
	maxImage     = 255 // characters; longer than any file name on Linux
)

// A decoder continues after a fault, to report all.
type decoder struct {
	*strictyaml.Reader
	compiled map[string]*regexp.Regexp
}

func (d *decoder) matches(pattern, s string) bool {
	re := d.compiled[pattern]
	if re == nil {
		re = regexp.MustCompile(pattern)
		d.compiled[pattern] = re
	}
	return re.MatchString(s)
}

func (d *decoder) document(body ast.Node) *file {
	var f file
	d.Fields("", body, &f)
	// For a document that is not a mapping, a fault is already recorded.
	if len(d.Errs) == 0 || strictyaml.IsMapping(body) {
		d.require("name", "add a line such as \"name: pair\"")
		d.require("nodes", "add \"nodes:\" with a line such as \"  vm: {count: 2}\" below it")
	}
	return &f
}

// require records a key that is missing and not just misspelt.
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

// traffic checks only that there is a list, because the simulation checks its entries.
func (d *decoder) traffic(path string, n ast.Node) *[]any {
	if !strictyaml.IsNull(n) {
		d.list(path, n, "a list of patterns, such as [{pattern: permutation, bytes: 1MiB}]")
	}
	return nil
}

// simulation checks only that there are keys, because the simulation checks their values.
func (d *decoder) simulation(path string, n ast.Node) *map[string]any {
	if !strictyaml.IsNull(n) {
		d.Entries(path, n, func(string, place, ast.Node) {})
	}
	return nil
}

func (d *decoder) labName(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "text")
	if !ok {
		return nil
	}
	d.checkName(path, "lab name", s, strictyaml.PlaceOf(n))
	return &s
}

func (d *decoder) nodeName(path string, n ast.Node) *string {
	s, ok := d.Text(path, n, "the name of a node")
	if !ok {
		return nil
	}
	return &s
}

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

// nicModel catches the number of NICs, a common mistake.
func (d *decoder) nicModel(path string, n ast.Node) *NICModel {
	const which = "write connectx-4-lx, connectx-5, connectx-6 or connectx-7"
	slips := map[string]string{"connectx": which, "mlx5": which, "rxe": "write virtio"}
	if i, ok := n.(*ast.IntegerNode); ok {
		count := i.GetToken().Value
		slips[count] = "the number of NICs is nics: " + strictyaml.Shorten(count)
	}
	return enum(d, path, n, nicModels(), slips)
}

func (d *decoder) cpus(path string, n ast.Node) *orAuto[int] {
	return autoOr(d, path, n, fmt.Sprintf("a whole number from %d to %d, or auto", MinCPUs, MaxCPUs), func() *int {
		return d.Integer(path, n, MinCPUs, MaxCPUs)
	})
}

func (d *decoder) memory(path string, n ast.Node) *orAuto[Bytes] {
	return autoOr(d, path, n, bytesWant+", or auto", func() *Bytes { return d.size(path, n, MinMemory) })
}

func (d *decoder) kept(path string, n ast.Node) *Bytes { return d.size(path, n, 0) }

// autoOr accepts only "auto" if a text does not begin with a digit.
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

// size is in whole MiB, from low to MaxMemory.
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

// enum maps common mistakes (slips), in lower case, to advice.
func enum[T ~string](d *decoder, path string, n ast.Node, all []T, slips map[string]string) *T {
	names := lists.Map(all, func(w T) string { return string(w) })
	// slips has better advice than to add quotes.
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

func misplaced(name string) string {
	switch name {
	case "mtu", "subnet", "topology", "leaves", "spines":
		return "it belongs below fabric"
	case "leaf":
		return "it belongs to a node, as in \"vm: {leaf: 0}\""
	case "count":
		return "it belongs to one node, as in \"vm: {count: 16}\""
	case "cpus", "memory", "image", "nics", "nic", "gpus", "vfs", "smt", "guest_numa":
		return "it belongs to a node, or below defaults for all nodes"
	case "name", "driver", "workload", "host", "hugepages", "tenants", "fabric", "affinity", "links", "defaults",
		"nodes", "traffic", "simulation":
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
	case "profile":
		return "it belongs to a node, as in \"vm: {profile: h20}\""
	case "beside", "path":
		return "it belongs to gpus, as in \"gpus: {beside: eth0, path: pix}\""
	case "mig", "migs", "mig_profile", "mig_profiles", "vgpu", "vgpus", "vgpu_type", "mdev", "mdevs", "fraction",
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

// unknownFix takes a similar key of the same mapping as near, or "".
func unknownFix(path, name, near string) string {
	fix := misplaced(name)
	if name == "profile" && strings.Contains(path, "gpus") { // of MIG
		fix = NoPartsOfGPUs
	}
	switch {
	case near != "" && (fix == "" || strings.HasPrefix(near, name)):
		return "" // an abbreviation, such as nic for nics
	case fix == "" && path == "":
		return "if it is the name of a node, move it below nodes"
	}
	return fix
}

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

func (d *decoder) deviceFix(s string, k deviceKind) string {
	if k.max == 0 && !strings.Contains(s, ":") {
		return ""
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
