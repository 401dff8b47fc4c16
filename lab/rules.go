package lab

import (
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

// format allows for 500 nodes with every key, 8 NICs each and our own comments: 16,000 tokens.
func (d *decoder) format() *strictyaml.Format {
	return &strictyaml.Format{
		Name: "lab", File: "lab file", MaxSize: MaxFileSize, MaxTokens: maxTokens, MaxDepth: 16,
		EmptyWant: "a name and nodes", EmptyFix: `start with "name: pair" and "nodes: {vm: {count: 2}}"`,
		LargeFix:   "use count and defaults instead of repeated nodes",
		AliasFix:   "use defaults for shared settings and count for equal nodes",
		NeedValues: true, Rules: d.rules(), Types: d.types(), UnknownFix: unknownFix, MappingFix: mappingFix,
	}
}

func (d *decoder) rules() map[string]strictyaml.Rule {
	of := func(k deviceKind) strictyaml.Rule {
		return strictyaml.RuleOf(func(path string, n ast.Node) *fileDevices { return d.devices(path, n, k) })
	}
	settings := func(long int) strictyaml.Rule {
		return strictyaml.RuleOf(func(path string, n ast.Node) *map[string]string { return d.settings(path, n, long) })
	}
	return map[string]strictyaml.Rule{
		"lab name": strictyaml.RuleOf(d.labName), "tenants": strictyaml.RuleOf(d.tenants),
		"affinity": strictyaml.RuleOf(d.affinity), "links": strictyaml.RuleOf(d.links),
		"nodes": strictyaml.RuleOf(d.nodes), "node": strictyaml.RuleOf(d.nodeName),
		"node names": strictyaml.RuleOf(d.nodeRefs), "numa_nodes": strictyaml.RuleOf(d.numaReserves),
		"cpus": strictyaml.RuleOf(d.cpus), "memory": strictyaml.RuleOf(d.memory), "kept": strictyaml.RuleOf(d.kept),
		"image": strictyaml.RuleOf(d.imageText), "steps": strictyaml.RuleOf(d.steps),
		"script": strictyaml.RuleOf(d.script), "subnet": strictyaml.RuleOf(d.subnet),
		"nics": of(nicKind), "gpus": of(gpuKind), "vfs": of(vfKind),
		"count": d.whole(1, MaxNodes), "cores": d.whole(1, MaxCPUs), "mtu": d.whole(MinMTU, MaxMTU),
		"leaves": d.whole(1, MaxLeaves), "spines": d.whole(1, MaxSpines), "leaf": d.whole(0, MaxLeaves-1),
		"link rate": strictyaml.RuleOf(d.linkRate),
		"inventory": strictyaml.RuleOf(d.inventoryText), "names": strictyaml.RuleOf(d.names),
		"settings": settings(maxInventoryName), "modules": settings(maxModuleOptions),
		"switches": strictyaml.RuleOf(d.switches), "switch mtu": d.whole(MinMTU, maxSwitchMTU),
		"vlan": d.whole(1, maxVLAN), "customize": strictyaml.RuleOf(d.customize),
		"domain": strictyaml.RuleOf(d.domain), "addresses": strictyaml.RuleOf(d.addresses),
		"traffic": strictyaml.RuleOf(d.traffic), "simulation": strictyaml.RuleOf(d.simulation),
		"ip": strictyaml.RuleOf(d.ip), "dns": strictyaml.RuleOf(d.nameServers),
	}
}

// types has advice for common mistakes, in lower case.
func (d *decoder) types() map[reflect.Type]strictyaml.Rule {
	return map[reflect.Type]strictyaml.Rule{
		reflect.TypeFor[fileReserve](): strictyaml.RuleOf(d.reserve),
		reflect.TypeFor[VSphere]():     strictyaml.RuleOf(d.vsphere),
		reflect.TypeFor[NICModel]():    strictyaml.RuleOf(d.nicModel),
		reflect.TypeFor[ProfileName](): strictyaml.RuleOf(d.profileName),
		reflect.TypeFor[Driver]():      oneOf(d, drivers(), nil),
		reflect.TypeFor[Workload]():    oneOf(d, Workloads(), nil),
		reflect.TypeFor[Arch]():        oneOf(d, arches(), nil),
		reflect.TypeFor[Home]():        oneOf(d, homes(), nil),
		reflect.TypeFor[FabricTopology](): oneOf(d, topologies(), map[string]string{
			"leafspine": "write leaf-spine", "spine-leaf": "write leaf-spine", "clos": "write leaf-spine",
			"star": "leave topology out: that is one switch", "none": "leave topology out: that is one switch",
			"fat-tree": "write leaf-spine; rackless simulate knows fat trees",
		}),
		reflect.TypeFor[Clone]():       oneOf(d, clones(), nil),
		reflect.TypeFor[Passthrough](): oneOf(d, passthroughs(), nil),
		reflect.TypeFor[SwitchKind]():  oneOf(d, switchKinds(), nil),
		reflect.TypeFor[PowerPolicy](): oneOf(d, powerPolicies(), map[string]string{
			"high-performance": "write static", "balanced": "write dynamic", "low-power": "write low"}),
		reflect.TypeFor[Togetherness](): oneOf(d, affinityValues(), map[string]string{
			"together": "write same", "shared": "write same", "equal": "write same",
			"apart": "write different", "separate": "write different", "distinct": "write different",
		}),
		// The mistakes are the units of other tools, and booleans.
		reflect.TypeFor[Hugepages](): oneOf(d, pageSizes(), map[string]string{
			"true": "write auto, or a size", "yes": "write auto, or a size", "on": "write auto, or a size",
			"false": "write off", "no": "write off", "none": "write off", "0": "write off",
			"1g": "write 1GiB", "1gb": "write 1GiB", "1gib": "write 1GiB", "1024mib": "write 1GiB",
			"1048576": "write 1GiB", "2m": "write 2MiB", "2mb": "write 2MiB", "2mib": "write 2MiB",
			"2048": "write 2MiB", "4kib": "write off", "4k": "write off",
		}),
		// YAML 1.1 reads on and off as booleans.
		reflect.TypeFor[Setting](): oneOf(d, choices(), map[string]string{
			"true": "write on", "yes": "write on", "1": "write on", "enabled": "write on",
			"false": "write off", "no": "write off", "0": "write off", "none": "write off", "disabled": "write off",
			"of": "write off",
		}),
	}
}

func oneOf[T ~string](d *decoder, all []T, slips map[string]string) strictyaml.Rule {
	return strictyaml.RuleOf(func(path string, n ast.Node) *T { return enum(d, path, n, all, slips) })
}

func (d *decoder) whole(low, high int) strictyaml.Rule {
	return strictyaml.RuleOf(func(path string, n ast.Node) *int { return d.Integer(path, n, low, high) })
}
