package lab

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/words"
)

// An address has the form of sysfs, lspci (without the domain) or nvidia-smi (domain of eight digits, upper case). A
// name must contain a digit, as kernel and tool names do (GPU0, mlx5_bond_0, enp65s0f0np0), so that a vendor or a word
// such as auto is not taken for one.
const (
	addressPattern    = `^([0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[01][0-9A-Fa-f]\.[0-7]$`
	deviceNamePattern = `^[A-Za-z][A-Za-z_.-]*[0-9][A-Za-z0-9_.-]*$`
	// interface names have at most 15 and RDMA device names at most 63 characters (IFNAMSIZ, IB_DEVICE_NAME_MAX)
	maxDeviceName = 64

	// matchPattern allows no blank at either end, which would be invisible in the file.
	matchPattern = `^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$`
	maxMatch     = 64 // characters
)

type deviceKind struct {
	key     string
	one     string // singular, for messages
	example string // example of a name
	max     int    // maximum per node
	rate    bool
	emulate bool
}

var (
	gpuKind = deviceKind{key: "gpus", one: "GPU", example: "GPU0", max: MaxGPUs, emulate: true}
	nicKind = deviceKind{key: "nics", one: "NIC", example: "NIC0", max: MaxNICs, rate: true}
	// always named one by one
	portKind = deviceKind{key: "links", one: "NIC", example: "mlx5_0"}
	vfKind   = deviceKind{key: "vfs", one: "VF", example: "NIC0", max: MaxNICs, rate: true}
)

func (k deviceKind) want() string {
	if k.max == 0 {
		return "an address such as 0000:41:00.0 or a name such as " + k.example
	}
	return fmt.Sprintf("a count from 0 to %d, an address such as 0000:06:00.0, a name such as %s, a selector such as "+
		"{count: 2, vendor: nvidia} or a list of these", k.max, k.example)
}

func (k deviceKind) selectorKeys() []string {
	keys := []string{"count", "vendor", "model", "numa_node"}
	if k.rate {
		keys = append(keys, "rate")
	}
	if k.emulate {
		keys = append(keys, "memory", "beside", "path", "personality")
	}
	return keys
}

// devices returns nil if the request has a fault.
func (d *decoder) devices(path string, n ast.Node, k deviceKind) *fileDevices {
	before := len(d.Errs)
	all := fileDevices{}
	if s, ok := n.(*ast.SequenceNode); ok {
		for _, item := range s.Values {
			all = d.device(path, item, k, 1, all)
		}
	} else {
		all = d.device(path, n, k, 0, all)
	}
	if len(d.Errs) > before {
		return nil
	}
	if total := all.count(); total > k.max {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "too many " + k.one + "s",
			Have: strconv.Itoa(total) + " together", Want: fmt.Sprintf("at most %d", k.max)})
		return nil
	}
	return &all
}

// device wants a count of at least low: within a list, 0 is an error.
func (d *decoder) device(path string, n ast.Node, k deviceKind, low int, all fileDevices) fileDevices {
	at := strictyaml.PlaceOf(n)
	if address, ok := d.flowAddress(n); ok {
		return append(all, fileDevice{DeviceRequest{Count: 1, Address: completed(address)}, at})
	}
	switch n := n.(type) {
	case *ast.IntegerNode:
		if count := d.Integer(path, n, low, k.max); count != nil && *count > 0 {
			all = append(all, fileDevice{DeviceRequest{Count: *count}, at})
		}
	case *ast.StringNode:
		if name, ok := d.deviceName(path, n.Value, at, k); ok {
			all = append(all, fileDevice{DeviceRequest{Count: 1, Address: name}, at})
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		if r, ok := d.selector(path, n, k); ok {
			all = append(all, fileDevice{r, at})
		}
	default:
		e := Error{Key: path, What: "wrong type", Have: strictyaml.Describe(n), Want: k.want()}
		if _, fraction := n.(*ast.FloatNode); fraction && k.key == gpuKind.key {
			e.Fix = NoPartsOfGPUs
		}
		d.Fail(d.ValuePlace(path, n), e)
	}
	return all
}

// NoPartsOfGPUs tells users that a GPU cannot be divided.
const NoPartsOfGPUs = "MIG and vGPU are not supported yet; a GPU goes to a lab node as a whole, as in gpus: 1"

// partOfGPU matches NVIDIA's names for MIG instances, MIG profiles and vGPU types (MIG-3f0a..., 1g.10gb, GRID A100-4C,
// nvidia-558), and colloquial ones.
var partOfGPU = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(mig|vgpu|mdev)\b|\b\d+[gc]\.\d+g|^nvidia-\d+$|\w-\d{1,2}(-\d{1,2})?[abcq]$`)
})

// IsPartOfGPU guesses from a name that matches no device.
func IsPartOfGPU(name string) bool { return partOfGPU().MatchString(name) }

// flowAddress recognises an unquoted address in a flow list, {gpus: [0000:06:00.0]}. In YAML this is a plain scalar,
// because no blank follows the colon (YAML 1.2.2, section 7.3.3), but the library reads it as a mapping.
func (d *decoder) flowAddress(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || len(m.Values) != 1 || m.IsFlowStyle {
		return "", false
	}
	pair := m.Values[0]
	key, value := pair.Key.GetToken(), pair.Value.GetToken()
	if key == nil || value == nil {
		return "", false
	}
	from, to := strictyaml.TokenPlace(key), strictyaml.TokenPlace(value)
	address := key.Value + ":" + value.Value
	adjacent := from.Line == to.Line && from.Column+len(key.Value)+1 == to.Column
	return address, adjacent && d.matches(addressPattern, address)
}

func (d *decoder) deviceName(path, s string, at place, k deviceKind) (string, bool) {
	switch {
	case d.matches(addressPattern, s):
		return completed(s), true
	case d.matches(deviceNamePattern, s) && len(s) <= maxDeviceName:
		return s, true
	}
	if k.key == gpuKind.key && IsPartOfGPU(s) {
		d.Fail(at, Error{Key: path, What: "a part of a GPU", Have: strictyaml.Quote(s), Fix: NoPartsOfGPUs})
		return "", false
	}
	d.Fail(at, Error{Key: path, What: "not a device", Have: strictyaml.Quote(s), Want: k.want(),
		Fix: d.deviceFix(s, k)})
	return "", false
}

// completed is lower case, with a domain of four digits, or more if they are significant.
func completed(address string) string {
	address = strings.ToLower(address)
	if strings.Count(address, ":") == 1 {
		return "0000:" + address
	}
	domain, rest, _ := strings.Cut(address, ":")
	for len(domain) > 4 && domain[0] == '0' {
		domain = domain[1:]
	}
	return domain + ":" + rest
}

func (d *decoder) selector(path string, n ast.Node, k deviceKind) (DeviceRequest, bool) {
	before := len(d.Errs)
	r := DeviceRequest{Count: 1}
	keys := 0
	d.Mapping(path, n, k.selectorKeys(), func(i int, path string, n ast.Node) {
		switch keys++; k.selectorKeys()[i] {
		case "count":
			if v := d.Integer(path, n, 1, k.max); v != nil {
				r.Count = *v
			}
		case "vendor":
			r.Vendor = d.matchText(path, n)
		case "model":
			r.Model = d.matchText(path, n)
		case "numa_node":
			r.NUMANode = d.Integer(path, n, 0, MaxNUMANode)
		case "rate":
			r.RateMbps = d.rate(path, n)
		case "memory":
			r.Memory = d.gpuMemory(path, n)
		case "beside":
			r.Beside = d.nicName(path, n)
		case "path":
			if v := enum(d, path, n, gpuPaths(), nil); v != nil {
				r.Path = *v
			}
		case "personality":
			if v := enum(d, path, n, gpuPersonalities(), nil); v != nil {
				r.Personality = *v
			}
		}
	})
	if keys == 0 && len(d.Errs) == before {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "empty selector",
			Want: words.Or(k.selectorKeys()), Fix: fmt.Sprintf("for any %s write 1", k.one)})
	}
	return r, len(d.Errs) == before
}

func (d *decoder) gpuMemory(path string, n ast.Node) Bytes {
	v := d.size(path, n, MinGPUMemory)
	if v == nil {
		return 0
	}
	if *v > MaxGPUMemory || *v&(*v-1) != 0 {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "not the memory of an emulated GPU", Have: v.String(),
			Want: fmt.Sprintf("a power of two from %s to %s", MinGPUMemory, MaxGPUMemory)})
		return 0
	}
	return *v
}

const nicNamePattern = `^eth(0|[1-9][0-9]?)$`

func (d *decoder) nicName(path string, n ast.Node) string {
	s, ok := d.Text(path, n, "a NIC of the node, such as eth0")
	if ok && !d.matches(nicNamePattern, s) {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "not a NIC of the node", Have: strictyaml.Quote(s),
			Want: "eth0 for its first NIC, eth1 for its second"})
	}
	return s
}

func (d *decoder) matchText(path string, n ast.Node) string {
	s, ok := d.Text(path, n, "text")
	if ok && (!d.matches(matchPattern, s) || utf8.RuneCountInString(s) > maxMatch) {
		d.Fail(strictyaml.PlaceOf(n), Error{Key: path, What: "bad text", Have: strictyaml.Quote(s),
			Want: fmt.Sprintf("1 to %d characters on one line, without blanks at the ends", maxMatch)})
	}
	return s
}

func (d *decoder) rate(path string, n ast.Node) int64 {
	e := Error{Key: path, What: "bad rate", Have: strictyaml.Describe(n), Want: rateWant}
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		e.What = "rate without a unit"
		if _, fix := parseRate(n.GetToken().Value); strings.HasPrefix(fix, "add a unit") {
			e.Fix = fix
		}
	default:
		s, ok := d.Text(path, n, rateWant)
		if !ok {
			return 0
		}
		var mbps int64
		if mbps, e.Fix = parseRate(s); e.Fix == "" {
			return mbps
		}
	}
	d.Fail(strictyaml.PlaceOf(n), e)
	return 0
}

func (r DeviceRequest) clone() DeviceRequest {
	if r.NUMANode != nil {
		r.NUMANode = new(*r.NUMANode)
	}
	return r
}

func (r DeviceRequest) flow() string {
	switch {
	case strings.Contains(r.Address, ":"):
		return strconv.Quote(r.Address) // YAML 1.1 readers take many texts with colons for a base-60 number
	case r.Address != "":
		return r.Address // begins with a letter and has a digit
	}
	count := strconv.Itoa(r.Count)
	if r == (DeviceRequest{Count: r.Count}) {
		return count
	}
	rate, memory := "", ""
	if r.RateMbps > 0 {
		rate = formatRate(r.RateMbps)
	}
	if r.Memory > 0 {
		memory = r.Memory.String()
	}
	return mapping("count", count, "vendor", scalarOrEmpty(r.Vendor), "model", scalarOrEmpty(r.Model),
		"numa_node", formatPtr(r.NUMANode), "rate", rate, "memory", memory, "beside", scalarOrEmpty(r.Beside), "path",
		scalarOrEmpty(string(r.Path)), "personality", scalarOrEmpty(string(r.Personality)))
}

// flowList formats count for labs recorded by older versions, which have no requests.
func flowList(all []DeviceRequest, count int) string {
	switch len(all) {
	case 0:
		return strconv.Itoa(count)
	case 1:
		return all[0].flow()
	}
	return sequence(all, DeviceRequest.flow)
}
