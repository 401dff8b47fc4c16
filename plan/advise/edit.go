package advise

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/topology"
)

// An Op is the kind of an Edit: its first words.
type Op string

// The kinds of edits.
const (
	OpSwap           Op = "swap"
	OpMove           Op = "move"       // to a NUMA node
	OpMoveBelow      Op = "move below" // to the slot below a port
	OpWithout        Op = "without"
	OpWithoutTenants Op = "without tenants"
	OpAddNode        Op = "add node"
	OpRemoveNode     Op = "remove node"
	OpReserve        Op = "reserve"
	OpCPUs           Op = "cpus"
	OpMemory         Op = "memory"
	OpWorkload       Op = "workload"
	OpSMT            Op = "smt"
	OpGuestNUMA      Op = "guest-numa"
	OpHugepages      Op = "hugepages"
)

// An Edit is a change to try, of a host or of a lab. Op says which fields count; the others are
// zero, so that edits can be compared.
type Edit struct {
	Op     Op
	Device string // PCI address, or the name of a GPU or NIC: of swap, move and without
	Other  string // the other device of swap; the port of "move below"
	Node   string // the lab node; empty, where all are meant
	Like   string // of "add node": the lab node that it is a copy of; empty for the last
	// Count is the NUMA node of move, the cores of reserve, the virtual CPUs of cpus; there 0 stands for auto.
	Count     int
	Memory    lab.Bytes // 0 stands for auto
	Workload  lab.Workload
	Setting   lab.Setting // of smt and guest-numa
	Hugepages lab.Hugepages
}

// editForms lists what can be asked, for messages.
const editForms = `forms: "swap DEVICE DEVICE", "move DEVICE to NUMA_NODE", "move DEVICE below PORT", ` +
	`"without DEVICE", "without tenants", "add node NAME [like NODE]", "remove node NAME", "reserve CORES", ` +
	`"cpus [NODE] N|auto", "memory [NODE] SIZE|auto", "workload NAME", ` +
	`"smt on|off|auto [NODE]", "guest-numa on|off|auto [NODE]", "hugepages 1GiB|2MiB|off|auto"`

// An EditError is an edit that cannot be read, or not be applied to this host and lab.
type EditError struct {
	In   string // the edit as it was given
	Part string // the part that is wrong; empty if it is the whole
	Why  string
	Fix  string // what to write instead
}

func (e *EditError) Error() string {
	s := fmt.Sprintf("what-if %q: ", e.In)
	s += words.If(e.Part != "", strconv.Quote(e.Part)+": ")
	s += e.Why
	return s + words.If(e.Fix != "", "; "+e.Fix)
}

// ParseEdit reads an edit: "swap 0000:41:00.0 0000:06:00.0", "move 0000:41:00.0 to 0", "add node
// vm02 like vm00", "reserve 8" and so on. Words are parted by spaces. An error is an [*EditError]
// that names the part and lists the forms.
func ParseEdit(s string) (Edit, error) {
	p := editParser{in: s}
	words := strings.Fields(s)
	if len(words) == 0 {
		return Edit{}, p.fail("", "nothing is asked")
	}
	p.verb, p.args = words[0], words[1:]
	count, known := argCounts[p.verb]
	switch least, most := count[0], count[1]; {
	case !known:
		return Edit{}, p.fail(p.verb, "is nothing that can be changed")
	case len(p.args) < least:
		return Edit{}, p.fail(p.verb, fmt.Sprintf("has %d words behind it and wants %d", len(p.args), least))
	case len(p.args) > most:
		return Edit{}, p.fail(p.args[most], "is a word too many")
	}
	return p.parse()
}

// argCounts says how few and how many words there may be behind the first word of an edit.
var argCounts = map[string][2]int{
	"swap": {2, 2}, "move": {3, 3}, "without": {1, 1}, "add": {2, 4}, "remove": {2, 2}, "reserve": {1, 1},
	"cpus": {1, 2}, "memory": {1, 2}, "workload": {1, 1}, "smt": {1, 2}, "guest-numa": {1, 2}, "hugepages": {1, 1},
}

// An editParser is an edit that is being read.
type editParser struct {
	in   string
	verb string
	args []string
}

func (p *editParser) fail(part, why string) error {
	return &EditError{In: p.in, Part: part, Why: why, Fix: editForms}
}

func (p *editParser) parse() (Edit, error) {
	args := p.args
	switch op := Op(p.verb); op {
	case OpSwap:
		return p.devices(Edit{Op: op, Device: args[0], Other: args[1]})
	case OpMove:
		return p.move()
	case OpWithout:
		if args[0] == "tenants" {
			return Edit{Op: OpWithoutTenants}, nil
		}
		return p.devices(Edit{Op: op, Device: args[0]})
	case OpReserve:
		n, ok := parseCount(args[0], 1, topology.MaxCPUs)
		if !ok {
			return Edit{}, p.fail(args[0], "is not a number of cores from 1")
		}
		return Edit{Op: op, Count: n}, nil
	case OpCPUs:
		node, value := p.nodeValue()
		n, ok := parseCount(value, lab.MinCPUs, topology.MaxCPUs)
		if !ok && value != string(lab.Auto) {
			return Edit{}, p.fail(value, "is not a number of virtual CPUs from 1, nor auto")
		}
		return Edit{Op: op, Node: node, Count: n}, nil
	case OpMemory:
		return p.memory()
	case OpWorkload:
		all := lists.Map(lab.Workloads(), func(w lab.Workload) string { return string(w) })
		if !slices.Contains(all, args[0]) {
			return Edit{}, &EditError{In: p.in, Part: args[0], Why: "is not a workload",
				Fix: "workloads: " + strings.Join(all, ", ")}
		}
		return Edit{Op: op, Workload: lab.Workload(args[0])}, nil
	case OpSMT, OpGuestNUMA:
		e := Edit{Op: op, Setting: lab.Setting(args[0])}
		if e.Setting != lab.On && e.Setting != lab.Off && e.Setting != lab.Auto {
			return Edit{}, p.fail(args[0], "is not on, off or auto")
		}
		if len(args) == 2 {
			e.Node = args[1]
		}
		return e, nil
	case OpHugepages:
		switch size := lab.Hugepages(args[0]); size {
		case lab.Hugepages1GiB, lab.Hugepages2MiB, lab.HugepagesOff, lab.HugepagesAuto:
			return Edit{Op: op, Hugepages: size}, nil
		}
		return Edit{}, p.fail(args[0], "is not a size of pages: want 1GiB, 2MiB, off or auto")
	}
	return p.node() // add, remove
}

// nodeValue returns the lab node, empty for all of them, and the value behind it.
func (p *editParser) nodeValue() (node, value string) {
	if len(p.args) == 1 {
		return "", p.args[0]
	}
	return p.args[0], p.args[1]
}

func (p *editParser) move() (Edit, error) {
	switch p.args[1] {
	case "to":
		n, ok := parseCount(p.args[2], 0, topology.MaxCPUs)
		if !ok {
			return Edit{}, p.fail(p.args[2], "is not the number of a NUMA node")
		}
		return p.devices(Edit{Op: OpMove, Device: p.args[0], Count: n})
	case "below":
		return p.devices(Edit{Op: OpMoveBelow, Device: p.args[0], Other: p.args[2]})
	}
	return Edit{}, p.fail(p.args[1], `stands where "to" or "below" has to`)
}

func (p *editParser) node() (Edit, error) {
	args := p.args
	if args[0] != "node" {
		return Edit{}, p.fail(args[0], `stands where "node" has to`)
	}
	if p.verb == "remove" {
		return Edit{Op: OpRemoveNode, Node: args[1]}, nil
	}
	e := Edit{Op: OpAddNode, Node: args[1]}
	switch {
	case !nodeName(e.Node):
		return Edit{}, p.fail(e.Node, fmt.Sprintf("is not a name of a lab node: want letters a-z, digits and "+
			"hyphens, a letter or digit at both ends, at most %d", lab.MaxName))
	case len(args) == 2:
	case args[2] != "like":
		return Edit{}, p.fail(args[2], `stands where "like" has to`)
	case len(args) == 3:
		return Edit{}, p.fail("like", "has no name of a lab node behind it")
	default:
		e.Like = args[3]
	}
	return e, nil
}

func (p *editParser) memory() (Edit, error) {
	node, size := p.nodeValue()
	e := Edit{Op: OpMemory, Node: node}
	if size == string(lab.Auto) {
		return e, nil
	}
	b, err := lab.ParseBytes(size)
	if err != nil {
		return Edit{}, &EditError{In: p.in, Part: size, Why: err.Error()}
	}
	if b < lab.MinMemory || b > lab.MaxMemory || b%lab.MiB != 0 {
		return Edit{}, p.fail(size, fmt.Sprintf("is not whole MiB from %s to %s", lab.MinMemory, lab.MaxMemory))
	}
	e.Memory = b
	return e, nil
}

// devices brings the addresses of an edit into the form of sysfs. What has no colon is a name,
// which only the host can judge.
func (p *editParser) devices(e Edit) (Edit, error) {
	for _, d := range []*string{&e.Device, &e.Other} {
		if !strings.Contains(*d, ":") {
			continue
		}
		a, err := topology.ParsePCIAddr(*d)
		if err != nil {
			return Edit{}, p.fail(*d, err.Error())
		}
		*d = a.String()
	}
	if e.Op == OpSwap && e.Device == e.Other {
		return Edit{}, p.fail(e.Other, "is named twice")
	}
	return e, nil
}

// nodeName reports whether s can be the name of a lab node, by the rules of the lab file.
func nodeName(s string) bool {
	if s == "" || len(s) > lab.MaxName || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// parseCount parses a plain decimal number; it is 0 if there is none.
func parseCount(s string, least, most int) (int, bool) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most || s != strconv.Itoa(n) {
		return 0, false
	}
	return n, true
}

// String returns the edit as ParseEdit reads it.
func (e Edit) String() string {
	auto, count, memory := string(lab.Auto), strconv.Itoa(e.Count), e.Memory.String()
	var words []string
	switch e.Op {
	case OpMove:
		words = []string{"move", e.Device, "to", count}
	case OpMoveBelow:
		words = []string{"move", e.Device, "below", e.Other}
	case OpAddNode:
		words = []string{"add node", e.Node}
		if e.Like != "" {
			words = append(words, "like", e.Like)
		}
	case OpReserve:
		words = []string{"reserve", count}
	case OpCPUs:
		if e.Count == 0 {
			count = auto
		}
		words = []string{"cpus", e.Node, count}
	case OpMemory:
		if e.Memory == 0 {
			memory = auto
		}
		words = []string{"memory", e.Node, memory}
	default:
		words = []string{string(e.Op), e.Device, e.Other, string(e.Workload), string(e.Hugepages), string(e.Setting),
			e.Node}
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// deepCopy returns a copy of v that shares nothing that can be written through the fields of v's
// types: pointers, slices and maps are copied all the way down. It walks the types instead of
// naming their fields, so that a field added to a Host is copied too.
//
// A struct with unexported fields (topology.CPUSet, netip.Prefix) is copied as a value: such types are immutable.
func deepCopy[T any](v T) T { return copyValue(reflect.ValueOf(&v).Elem()).Interface().(T) }

func copyValue(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() {
			return v
		}
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(copyValue(v.Elem()))
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(copyValue(v.Index(i)))
		}
	case reflect.Map:
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), copyValue(it.Value()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				return v // all or nothing: such a type keeps its own rules
			}
			out.Field(i).Set(copyValue(v.Field(i)))
		}
	}
	return out
}
