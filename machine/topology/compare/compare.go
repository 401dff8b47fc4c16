// Package compare compares descriptions of machines fact by fact: Join merges accounts of one machine, and Diff lists
// the differences between two machines.
package compare

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// keys identify list elements, to match descriptions of the same device. A list of any other type is compared as a
// whole.
var keys = map[reflect.Type]func(v any) string{
	of[topology.Package]():         func(v any) string { return fmt.Sprint(v.(topology.Package).ID) },
	of[topology.Die]():             func(v any) string { return fmt.Sprint(v.(topology.Die).ID) },
	of[topology.NUMANode]():        func(v any) string { return fmt.Sprint(v.(topology.NUMANode).ID) },
	of[topology.L3]():              func(v any) string { return v.(topology.L3).CPUs.String() },
	of[topology.Core]():            func(v any) string { return v.(topology.Core).CPUs.String() },
	of[topology.HugepagePool]():    func(v any) string { return fmt.Sprint(v.(topology.HugepagePool).SizeBytes) },
	of[topology.KernelParameter](): func(v any) string { return v.(topology.KernelParameter).Name },
	of[topology.KernelMessage](): func(v any) string {
		m := v.(topology.KernelMessage)
		return m.Kind + " " + m.Device + " " + m.Part
	},
	of[topology.PCIDevice]():     func(v any) string { return v.(topology.PCIDevice).Address.String() },
	of[topology.BAR]():           func(v any) string { return fmt.Sprint(v.(topology.BAR).Index) },
	of[topology.VF]():            func(v any) string { return fmt.Sprint(v.(topology.VF).Index) },
	of[topology.IOMMUGroup]():    func(v any) string { return fmt.Sprint(v.(topology.IOMMUGroup).ID) },
	of[topology.GPU]():           func(v any) string { g := v.(topology.GPU); return g.ID() },
	of[topology.NIC]():           func(v any) string { n := v.(topology.NIC); return n.ID() },
	of[topology.Netdev]():        func(v any) string { return v.(topology.Netdev).Name },
	of[topology.RDMADevice]():    func(v any) string { return v.(topology.RDMADevice).Name },
	of[topology.RDMAPort]():      func(v any) string { return fmt.Sprint(v.(topology.RDMAPort).Number) },
	of[topology.GID]():           func(v any) string { return fmt.Sprint(v.(topology.GID).Index) },
	of[topology.Bond]():          func(v any) string { return v.(topology.Bond).Name },
	of[topology.VirtualSwitch](): func(v any) string { return v.(topology.VirtualSwitch).Name },
	of[topology.PortGroup]():     func(v any) string { return v.(topology.PortGroup).Name },
	of[topology.Disk]():          func(v any) string { return v.(topology.Disk).Name },
	of[topology.IRQ]():           func(v any) string { return fmt.Sprint(v.(topology.IRQ).Number) },
	of[topology.Tenant]():        func(v any) string { return v.(topology.Tenant).Name },
	of[topology.Pin]():           func(v any) string { return fmt.Sprint(v.(topology.Pin).VCPU) },
	of[topology.Swap]():          func(v any) string { return v.(topology.Swap).Path },
	of[topology.TenantDevice]():  func(v any) string { return v.(topology.TenantDevice).PCI.String() },
	of[topology.Path]():          func(v any) string { p := v.(topology.Path); return p.A + " - " + p.B },
	of[topology.Route](): func(v any) string {
		r := v.(topology.Route)
		return r.Family + " " + r.Netdev + " " + r.Gateway
	},
}

func of[T any]() reflect.Type { return reflect.TypeFor[T]() }

func field(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(name, strings.ToLower(f.Name))
}

func isLeaf(t reflect.Type) bool {
	return t.Implements(of[encoding.TextMarshaler]()) || t.Kind() != reflect.Struct
}

func show(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if m, ok := v.Interface().(encoding.TextMarshaler); ok {
		text, _ := m.MarshalText()
		return string(text)
	}
	return fmt.Sprint(v.Interface())
}

// same allows for the precision of tools, which round bytes to MB and rates to standard rates.
func same(name string, a, b reflect.Value) bool {
	if a.Kind() == reflect.Pointer {
		a, b = a.Elem(), b.Elem()
	}
	within := 0.0
	switch {
	case strings.HasSuffix(name, "_bytes"):
		within = 0.06 // some tools also count reserved memory
	case name == "rate_gbps" || name == "speed_mbps" || name == "max_khz":
		within = 0.04
	}
	if x, y := number(a), number(b); within > 0 && !math.IsNaN(x) && !math.IsNaN(y) {
		return math.Abs(x-y) <= within*math.Max(math.Abs(x), math.Abs(y))
	}
	return strings.EqualFold(show(a), show(b))
}

// number returns NaN if the fact is not a number.
func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return math.NaN()
}

// passing facts change over time, depend on the tool, or are derived. Differences in them are not contradictions.
var passing = []string{"free_bytes", "available_bytes", "free", "used_bytes", "count", "counters", "provenance",
	"unread", "contradictions", "inferred", "vendor_name", "device_name", "class_name", "model", "name", "netdevs",
	"rdma", "functions", "numa_source", "port", "display_active", "power_state", "kind", "id", "local_cpus",
	"reported_paths", "local", "messages", "line", "codes", "flow_counters"}

func isPassing(name string) bool { return slices.Contains(passing, name) }
