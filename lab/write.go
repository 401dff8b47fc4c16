package lab

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

//go:embed write.yaml.tmpl
var writtenText string

var written = template.Must(template.New("lab").Funcs(template.FuncMap{
	"scalar":  func(v any) string { return scalar(fmt.Sprint(v)) },
	"word":    func(v any) string { return word(fmt.Sprint(v)) },
	"reserve": Reserve.flow, "affinity": flow[Affinity], "vsphere": flow[*VSphere], "mtuNote": mtuNote,
	"node":  Node.flow,
	"rate":  formatRate,
	"links": func(all [][]string) string { return list(all, flowLink) },
	"nic":   func() NICModel { return DefaultNIC },
	"vfs":   func() int { return DefaultVFs },
	"auto":  func() Setting { return DefaultSetting },
}).Parse(writtenText))

// YAML writes every default out; Parse of it returns the same Lab. Addresses are comments, because they follow from the
// order of the nodes.
func (l *Lab) YAML() []byte {
	var b bytes.Buffer
	if err := written.Execute(&b, l); err != nil {
		panic(err) // the template is part of this package
	}
	return b.Bytes()
}

// flow does not use the template, for speed: Parse may format every lab to check its size.
func (n Node) flow() string {
	vfs, nics, gpus, nic := "", n.nics(), n.gpus(), unless(n.NIC, DefaultNIC)
	if n.VFs > 0 {
		vfs = n.vfs()
	}
	if n.Profile != "" { // decides them
		nics, gpus, nic = "", "", word(string(n.NIC))
	}
	var b strings.Builder
	b.Grow(128 + 48*len(n.NICs)) // enough for most values
	b.WriteString(scalar(n.Name))
	b.WriteString(": ")
	b.WriteString(mapping("profile", scalarOrEmpty(string(n.Profile)), "cpus", n.cpus(), "memory", n.memory(),
		"image", scalar(n.Image), "nics", nics, "gpus", gpus, "nic", nic, "vfs", vfs, "smt", unless(n.SMT,
			DefaultSetting),
		"guest_numa", unless(n.GuestNUMA, DefaultSetting), "leaf", n.leaf(), "setup", sequence(n.Setup, Step.flow)))
	before := " # "
	if len(n.NICs) > 1 {
		before = "\n    # "
	}
	for _, nic := range n.NICs {
		for _, s := range []string{before, nic.Name, " ", nic.Addr.String(), " ", nic.MAC} {
			b.WriteString(s)
		}
	}
	return b.String()
}

// unless returns "" for the default.
func unless[T ~string](value, otherwise T) string {
	if value == otherwise {
		return ""
	}
	return word(string(value))
}

func (n Node) cpus() string {
	if n.AutoCPUs {
		return string(Auto)
	}
	return strconv.Itoa(n.CPUs)
}

func (n Node) memory() string {
	if n.AutoMemory {
		return string(Auto)
	}
	return n.Memory.String()
}

func (n Node) gpus() string { return flowList(n.GPURequests, n.GPUs) }
func (n Node) nics() string { return flowList(n.NICRequests, len(n.NICs)-n.VFs) }
func (n Node) vfs() string  { return flowList(n.VFRequests, n.VFs) }

func (r Reserve) flow() string {
	var nodes []string
	for _, n := range r.NUMA {
		cores := ""
		if n.Cores > 0 {
			cores = strconv.Itoa(n.Cores)
		}
		nodes = append(nodes, strconv.Itoa(n.Node), mapping("cores", cores, "memory", formatPtr(n.Memory)))
	}
	return mapping("cores", formatPtr(r.Cores), "memory", formatPtr(r.Memory), "numa_nodes", mapping(nodes...))
}

// flow takes keys from json tags. It returns "" for a zero value.
func flow[T any](v T) string { return flowOf(reflect.ValueOf(v)) }

func flowOf(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	if s, ok := v.Interface().(fmt.Stringer); ok {
		return s.String()
	}
	var pairs []string
	switch v.Kind() {
	case reflect.Pointer:
		return flowOf(v.Elem())
	case reflect.Struct:
		for f, value := range v.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			pairs = append(pairs, key, flowOf(value))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		for _, key := range keys {
			pairs = append(pairs, scalar(key.String()), flowOf(v.MapIndex(key)))
		}
	case reflect.Slice:
		var items []string
		for _, item := range v.Seq2() {
			items = append(items, flowOf(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case reflect.String:
		return scalar(v.String())
	default:
		return fmt.Sprint(v.Interface())
	}
	return mapping(pairs...)
}

// mapping leaves out empty values, and returns "" if all are.
func mapping(pairs ...string) string {
	var b strings.Builder
	b.Grow(128) // enough for most values
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("{")
		} else {
			b.WriteString(", ")
		}
		b.WriteString(pairs[i] + ": " + pairs[i+1])
	}
	if b.Len() == 0 {
		return ""
	}
	return b.String() + "}"
}

func sequence[T any](all []T, text func(T) string) string {
	if len(all) == 0 {
		return ""
	}
	return "[" + list(all, text) + "]"
}

func formatPtr[T any](value *T) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(*value)
}

func scalarOrEmpty(s string) string {
	if s == "" {
		return ""
	}
	return scalar(s)
}

func flowLink(ports []string) string { return sequence(ports, scalar) }

func mtuNote(mtu int) []string {
	payload := rdmaPayload(mtu)
	why := fmt.Sprintf("RDMA payloads are powers of two: with headers of up to %d bytes this MTU carries %d.",
		roceHeaders, payload)
	switch {
	case payload < 4096:
		return []string{why, fmt.Sprintf("The largest payload, 4096, needs %d; the default is %d.", 4096+roceHeaders,
			DefaultMTU)}
	case mtu > DefaultMTU:
		return []string{why, fmt.Sprintf("%d carries as much with smaller buffers.", DefaultMTU)}
	}
	return []string{why, "1500 would carry 1024, and 9000 no more than this."}
}

// scalar returns a form that every YAML reader reads as text.
func scalar(s string) string {
	plain := s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
	if plain {
		return word(s)
	}
	// YAML's double quotes know all escapes of Go's quoting (section 5.7).
	return strconv.Quote(s)
}

// word quotes one of our own words if YAML 1.1 or 1.2 reads it as a boolean or null.
func word(s string) string {
	switch s {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return strconv.Quote(s)
	}
	return s
}
