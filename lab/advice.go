package lab

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
)

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
