package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A path must have a slash or a dot, so that a misspelt word such as ingore is not taken for a file.
const (
	tenantsPattern = `^(read|ignore|[^\x00-\x1f\x7f]*[./][^\x00-\x1f\x7f]*)$`
	maxPath        = 4095 // PATH_MAX on Linux without NUL
)

// reserve takes a plain number for cores.
func (d *decoder) reserve(path string, n ast.Node) *fileReserve {
	var r fileReserve
	switch n.(type) {
	case *ast.NullNode:
	case *ast.MappingNode, *ast.MappingValueNode:
		d.Fields(path, n, &r)
	case *ast.IntegerNode:
		r.Cores = d.Integer(path, n, 1, MaxCPUs)
	default:
		e := Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n),
			Want: "a number of cores, or keys with values such as {cores: 4, memory: 8GiB}"}
		if s, ok := n.(*ast.StringNode); ok {
			if b, fix := parseBytes(s.Value); fix == "" {
				e.Fix = fmt.Sprintf("write {memory: %s}", b)
			}
		}
		d.Fail(d.ValuePlace(path, n), e)
	}
	return &r
}

func (d *decoder) numaReserves(path string, n ast.Node) *fileNUMAReserves {
	var all fileNUMAReserves
	if strictyaml.IsNull(n) {
		return nil
	}
	d.numbered(path, n, MaxNUMANode, func(number int, path string, at place, value ast.Node) {
		r := fileNUMAReserve{node: number}
		if _, ok := value.(*ast.IntegerNode); ok {
			r.Cores = d.Integer(path, value, 1, MaxCPUs)
		} else {
			before := len(d.Errs)
			d.Fields(path, value, &r)
			if r.Cores == nil && r.Memory == nil && len(d.Errs) == before {
				d.Fail(at, Error{Key: path, What: "nothing to reserve", Want: "cores, memory or both",
					Fix: "write for example {cores: 2}"})
			}
		}
		all = append(all, r)
	})
	slices.SortFunc(all, func(a, b fileNUMAReserve) int { return a.node - b.node })
	return &all
}

func (d *decoder) tenants(path string, n ast.Node) *string {
	const want = "read, ignore, or the path of a file"
	s, ok := d.Text(path, n, want)
	if !ok {
		return nil
	}
	if d.matches(tenantsPattern, s) && len([]rune(s)) <= maxPath {
		return &s
	}
	e := Error{Key: path, What: "unknown value", Have: strictyaml.Quote(s), Want: want}
	e.Fix = strictyaml.Meant(s, []string{TenantsRead, TenantsIgnore})
	if e.Fix == "" && s != "" && len(s) < strictyaml.MaxQuoted && d.matches(tenantsPattern, "./"+s) {
		e.Fix = "for the file of this name write " + strictyaml.Quote("./"+s)
	}
	d.Fail(strictyaml.PlaceOf(n), e)
	return nil
}

// affinity leaves names unresolved until counts are expanded.
func (d *decoder) affinity(path string, n ast.Node) *[]fileAffinity {
	if strictyaml.IsNull(n) {
		return nil
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		e := Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n), Want: "a list"}
		if strictyaml.IsMapping(n) {
			e.Fix = "begin each entry with a dash, as in \"- {nodes: [vm00, vm01], numa: different}\""
		}
		d.Fail(d.ValuePlace(path, n), e)
		return nil
	}
	var all []fileAffinity
	for _, item := range list.Values {
		a := fileAffinity{at: strictyaml.PlaceOf(item)}
		before := len(d.Errs)
		d.Fields(path, item, &a)
		if len(d.Errs) == before && a.Nodes == nil {
			d.Fail(a.at, Error{Key: strictyaml.Join(path, "nodes"), What: "missing key",
				Fix: "say of which nodes: nodes: [vm00, vm01]"})
		}
		if len(d.Errs) == before && a.NUMA == nil && a.NIC == nil {
			d.Fail(a.at, Error{Key: path, What: "asks for nothing", Want: "numa, nic or both",
				Fix: "add for example numa: different"})
		}
		all = append(all, a)
	}
	return &all
}

func (d *decoder) links(path string, n ast.Node) *[][]string {
	const want = "a list of lists of ports, such as [[0000:41:00.0, 0000:61:00.0]]"
	var all [][]string
	seen := map[string]bool{}
	for _, item := range d.list(path, n, want) {
		var ports []string
		before := len(d.Errs)
		for _, port := range d.list(path, item, want) {
			name, ok := d.flowAddress(port)
			if s, isText := port.(*ast.StringNode); isText && !ok {
				name, ok = d.deviceName(path, s.Value, strictyaml.PlaceOf(port), portKind)
			} else if ok {
				name = completed(name)
			} else {
				d.Fail(strictyaml.PlaceOf(port), Error{Key: path, What: "wrong type", Have: strictyaml.Describe(port),
					Want: portKind.want()})
			}
			if ok && seen[name] {
				d.Fail(strictyaml.PlaceOf(port), Error{Key: path, What: "port named twice",
					Have: strictyaml.Quote(name),
					Fix:  "a cable joins two ports, and all ports of a switch are one link"})
			}
			seen[name] = true
			ports = append(ports, name)
		}
		if len(ports) < 2 && len(d.Errs) == before {
			d.Fail(strictyaml.PlaceOf(item), Error{Key: path, What: "too few ports", Have: strconv.Itoa(len(ports)),
				Want: "at least 2"})
		}
		all = append(all, ports)
	}
	return &all
}

func (d *decoder) list(path string, n ast.Node, want string) []ast.Node {
	if list, ok := n.(*ast.SequenceNode); ok {
		return list.Values
	}
	if !strictyaml.IsNull(n) {
		d.Fail(d.ValuePlace(path, n), Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n), Want: want})
	}
	return nil
}

func (d *decoder) nodeRefs(path string, n ast.Node) *[]nodeRef {
	const want = "a list of names"
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		e := Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n), Want: want}
		if s, isText := n.(*ast.StringNode); isText && len(s.Value) <= strictyaml.MaxQuoted {
			words := strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' })
			if !slices.ContainsFunc(words, func(w string) bool {
				return !d.matches(namePattern, w)
			}) && len(words) > 0 {
				e.Fix = "write [" + strings.Join(words, ", ") + "]"
			}
		}
		d.Fail(d.ValuePlace(path, n), e)
		return nil
	}
	all := []nodeRef{}
	for _, item := range list.Values {
		if s := d.nodeName(path, item); s != nil {
			all = append(all, nodeRef{name: *s, at: strictyaml.PlaceOf(item)})
		}
	}
	return &all
}

// numbered accepts keys from 0 to high, quoted too, because JSON keys are always strings.
func (d *decoder) numbered(path string, n ast.Node, high int, each func(number int, path string, at place,
	value ast.Node)) {
	d.Pairs(path, n, func(k ast.Node) (string, *Error) {
		digits := k.GetToken().Value
		switch k.(type) {
		case *ast.IntegerNode, *ast.StringNode:
			if v, err := strconv.Atoi(digits); err == nil && v >= 0 && v <= high && strconv.Itoa(v) == digits {
				return digits, nil
			}
		}
		return "", &Error{What: "not the number of a NUMA node", Have: strictyaml.Describe(k),
			Want: fmt.Sprintf("0 to %d", high)}
	}, func(name string, at place, value ast.Node) {
		number, _ := strconv.Atoi(name) // checked by the callback of Pairs
		each(number, strictyaml.Join(path, name), at, value)
	})
}
