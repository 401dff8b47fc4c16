package vsphere

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
)

type (
	vmConfig = types.VirtualMachineConfigInfo
	vmSpec   = types.VirtualMachineConfigSpec
)

// A setting of a virtual machine is text; "" means unset.
type setting struct {
	name string
	get  func(c *vmConfig) string
	set  func(s *vmSpec, have *vmConfig, text string) error
}

// settings are in the order of a diff. Any other name with a dot is a parameter of the configuration file.
var settings = []setting{
	number("cpus", func(c *vmConfig) int64 { return int64(c.Hardware.NumCPU) },
		func(s *vmSpec, n int64) { s.NumCPUs = int32(n) }),
	number("cores_per_socket", func(c *vmConfig) int64 {
		if c.Hardware.NumCoresPerSocket == nil {
			return 0
		}
		return int64(*c.Hardware.NumCoresPerSocket)
	}, func(s *vmSpec, n int64) { s.NumCoresPerSocket = new(int32(n)) }),
	number("memory_mib", func(c *vmConfig) int64 { return int64(c.Hardware.MemoryMB) },
		func(s *vmSpec, n int64) { s.MemoryMB = n }),
	reservation("cpu_reservation_mhz", func(c *vmConfig) *types.ResourceAllocationInfo { return c.CpuAllocation },
		func(s *vmSpec) **types.ResourceAllocationInfo { return &s.CpuAllocation }),
	reservation("memory_reservation_mib",
		func(c *vmConfig) *types.ResourceAllocationInfo { return c.MemoryAllocation },
		func(s *vmSpec) **types.ResourceAllocationInfo { return &s.MemoryAllocation }),
	truth("memory_reservation_locked", func(c *vmConfig) *bool { return c.MemoryReservationLockedToMax },
		func(s *vmSpec, on bool) { s.MemoryReservationLockedToMax = &on }),
	shares("cpu_shares", func(c *vmConfig) *types.ResourceAllocationInfo { return c.CpuAllocation },
		func(s *vmSpec) **types.ResourceAllocationInfo { return &s.CpuAllocation }),
	shares("memory_shares", func(c *vmConfig) *types.ResourceAllocationInfo { return c.MemoryAllocation },
		func(s *vmSpec) **types.ResourceAllocationInfo { return &s.MemoryAllocation }),
	{"latency_sensitivity", func(c *vmConfig) string {
		if c.LatencySensitivity == nil {
			return ""
		}
		return string(c.LatencySensitivity.Level)
	}, func(s *vmSpec, _ *vmConfig, text string) error {
		s.LatencySensitivity = &types.LatencySensitivity{
			Level: types.LatencySensitivitySensitivityLevel(cmp.Or(text, "normal"))}
		return nil
	}},
	{"cpu_affinity", func(c *vmConfig) string { return esxi.Affinity(c).String() },
		func(s *vmSpec, _ *vmConfig, text string) error {
			set, err := topology.ParseCPUSet(text)
			// An empty set removes the affinity.
			s.CpuAffinity = &types.VirtualMachineAffinityInfo{AffinitySet: []int32{}}
			for cpu := range set.All() {
				s.CpuAffinity.AffinitySet = append(s.CpuAffinity.AffinitySet, int32(cpu))
			}
			return err
		}},
	truth("secure_boot", func(c *vmConfig) *bool {
		if c.BootOptions == nil {
			return nil
		}
		return c.BootOptions.EfiSecureBootEnabled
	}, func(s *vmSpec, on bool) { s.BootOptions = &types.VirtualMachineBootOptions{EfiSecureBootEnabled: &on} }),
	devices("networks", cardText, cardDevice),
	devices("passthrough", passthroughText, passthroughDevice),
	devices("sriov", sriovText, sriovDevice),
}

func settingNamed(name string) (setting, error) {
	if i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name }); i >= 0 {
		return settings[i], nil
	}
	if strings.Contains(name, ".") {
		return parameter(name), nil
	}
	return setting{}, fmt.Errorf("setting %q is not known to this version of rackless", name)
}

// retired are in journals of earlier versions. Their machines are removed as a whole.
var retired = []string{"pvrdma", "vgpu"}

// recorded accepts retired settings, which are always unset.
func recorded(name string) (setting, error) {
	if slices.Contains(retired, name) {
		return setting{name, func(*vmConfig) string { return "" },
			func(*vmSpec, *vmConfig, string) error { return nil }}, nil
	}
	return settingNamed(name)
}

func allocation(a **types.ResourceAllocationInfo) *types.ResourceAllocationInfo {
	*a = cmp.Or(*a, new(types.ResourceAllocationInfo))
	return *a
}

func number(name string, get func(*vmConfig) int64, set func(*vmSpec, int64)) setting {
	return setting{name, func(c *vmConfig) string { return strconv.FormatInt(get(c), 10) },
		func(s *vmSpec, _ *vmConfig, text string) error {
			n, err := strconv.ParseInt(text, 10, 32)
			set(s, n)
			return err
		}}
}

func truth(name string, get func(*vmConfig) *bool, set func(*vmSpec, bool)) setting {
	return setting{name, func(c *vmConfig) string {
		on := get(c)
		return strconv.FormatBool(on != nil && *on)
	}, func(s *vmSpec, _ *vmConfig, text string) error {
		on, err := strconv.ParseBool(text)
		set(s, on)
		return err
	}}
}

// reservation is the setting of reserved CPU time or memory, with 0 for none.
func reservation(name string, get func(*vmConfig) *types.ResourceAllocationInfo,
	of func(*vmSpec) **types.ResourceAllocationInfo) setting {
	return number(name, func(c *vmConfig) int64 {
		if a := get(c); a != nil && a.Reservation != nil {
			return *a.Reservation
		}
		return 0
	}, func(s *vmSpec, n int64) { allocation(of(s)).Reservation = &n })
}

// shares has the values "normal", "high", "low", or a number.
func shares(name string, get func(*vmConfig) *types.ResourceAllocationInfo,
	of func(*vmSpec) **types.ResourceAllocationInfo) setting {
	return setting{name, func(c *vmConfig) string {
		a := get(c)
		if a == nil || a.Shares == nil {
			return ""
		}
		if a.Shares.Level == types.SharesLevelCustom {
			return strconv.Itoa(int(a.Shares.Shares))
		}
		return string(a.Shares.Level)
	}, func(s *vmSpec, _ *vmConfig, text string) error {
		info := types.SharesInfo{Level: types.SharesLevel(text)}
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			info = types.SharesInfo{Level: types.SharesLevelCustom, Shares: int32(n)}
		}
		allocation(of(s)).Shares = &info
		return nil
	}}
}

// parameter is one of the configuration file. vSphere removes it if it is set to "".
func parameter(name string) setting {
	return setting{name, func(c *vmConfig) string { return esxi.Parameter(c, name) },
		func(s *vmSpec, _ *vmConfig, text string) error {
			s.ExtraConfig = append(s.ExtraConfig, &types.OptionValue{Key: name, Value: text})
			return nil
		}}
}

const separator = "; "

// devices lists one kind as text, in order. Setting it removes surplus devices and adds missing ones.
func devices(name string, text func(types.BaseVirtualDevice) (string, bool),
	device func(string) (types.BaseVirtualDevice, error)) setting {
	list := func(c *vmConfig) (texts []string, found []types.BaseVirtualDevice) {
		for _, d := range c.Hardware.Device {
			if t, ok := text(d); ok {
				texts, found = append(texts, t), append(found, d)
			}
		}
		return texts, found
	}
	return setting{name, func(c *vmConfig) string {
		texts, _ := list(c)
		slices.Sort(texts)
		return strings.Join(texts, separator)
	}, func(s *vmSpec, have *vmConfig, want string) error {
		var missing []string
		if want != "" {
			missing = strings.Split(want, separator)
		}
		change := func(op types.VirtualDeviceConfigSpecOperation, d types.BaseVirtualDevice) {
			s.DeviceChange = append(s.DeviceChange, &types.VirtualDeviceConfigSpec{Operation: op, Device: d})
		}
		texts, found := list(have)
		for i, t := range texts {
			if at := slices.Index(missing, t); at >= 0 {
				missing = slices.Delete(missing, at, at+1)
			} else {
				change(types.VirtualDeviceConfigSpecOperationRemove, found[i])
			}
		}
		for _, t := range missing {
			d, err := device(t)
			if err != nil {
				return err
			}
			// Negative keys identify a request's new devices.
			d.GetVirtualDevice().Key = int32(-1 - len(s.DeviceChange))
			change(types.VirtualDeviceConfigSpecOperationAdd, d)
		}
		return nil
	}}
}

func functionText(b *types.VirtualPCIPassthroughDeviceBackingInfo) string {
	return fmt.Sprintf("%s %04x:%s %s", b.Id, uint16(b.VendorId), b.DeviceId, b.SystemId)
}

func function(text string) (*types.VirtualPCIPassthroughDeviceBackingInfo, error) {
	if words := strings.Fields(text); len(words) == 3 {
		vendor, device, _ := strings.Cut(words[1], ":")
		if id, err := strconv.ParseUint(vendor, 16, 16); err == nil {
			return &types.VirtualPCIPassthroughDeviceBackingInfo{Id: words[0], DeviceId: device, SystemId: words[2],
				VendorId: int16(id)}, nil
		}
	}
	return nil, fmt.Errorf("device %q: want an address, the numbers of vendor and device, and a system", text)
}

// cardText returns the network of an adapter that is not a virtual function.
func cardText(d types.BaseVirtualDevice) (string, bool) {
	if _, vf := d.(*types.VirtualSriovEthernetCard); vf {
		return "", false
	}
	if _, ok := d.(types.BaseVirtualEthernetCard); !ok {
		return "", false
	}
	return networkText(d.GetVirtualDevice().Backing), true
}

func cardDevice(text string) (types.BaseVirtualDevice, error) {
	card := &types.VirtualVmxnet3{}
	card.Backing = networkBacking(text)
	card.Connectable = &types.VirtualDeviceConnectInfo{StartConnected: true, AllowGuestControl: true}
	return card, nil
}

// anyOf lets ESXi choose at the start: "any 10de:20b5".
const anyOf = "any "

func passthroughText(d types.BaseVirtualDevice) (string, bool) {
	p, ok := d.(*types.VirtualPCIPassthrough)
	if !ok {
		return "", false
	}
	switch b := p.Backing.(type) {
	case *types.VirtualPCIPassthroughDeviceBackingInfo:
		return functionText(b), true
	case *types.VirtualPCIPassthroughDynamicBackingInfo:
		return anyOf + strings.Join(lists.Map(b.AllowedDevice, func(a types.VirtualPCIPassthroughAllowedDevice) string {
			return fmt.Sprintf("%04x:%04x", a.VendorId, a.DeviceId)
		}), " or "), true
	}
	return "", false
}

func passthroughDevice(text string) (types.BaseVirtualDevice, error) {
	kind, dynamic := strings.CutPrefix(text, anyOf)
	if !dynamic {
		b, err := function(text)
		return &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Backing: b}}, err
	}
	b := &types.VirtualPCIPassthroughDynamicBackingInfo{}
	for one := range strings.SplitSeq(kind, " or ") {
		var a types.VirtualPCIPassthroughAllowedDevice
		if _, err := fmt.Sscanf(one, "%x:%x", &a.VendorId, &a.DeviceId); err != nil {
			return nil, fmt.Errorf("device %q: want the numbers of vendor and device: %w", one, err)
		}
		b.AllowedDevice = append(b.AllowedDevice, a)
	}
	return &types.VirtualPCIPassthrough{VirtualDevice: types.VirtualDevice{Backing: b}}, nil
}

// "FUNCTION on NETWORK, guest may set MTU".
const (
	onNetwork = " on "
	guestMTU  = ", guest may set MTU"
)

func sriovText(d types.BaseVirtualDevice) (string, bool) {
	card, ok := d.(*types.VirtualSriovEthernetCard)
	if !ok || card.SriovBacking == nil || card.SriovBacking.PhysicalFunctionBacking == nil {
		return "", false
	}
	text := functionText(card.SriovBacking.PhysicalFunctionBacking) + onNetwork + networkText(card.Backing)
	if card.AllowGuestOSMtuChange != nil && *card.AllowGuestOSMtuChange {
		text += guestMTU
	}
	return text, true
}

func sriovDevice(text string) (types.BaseVirtualDevice, error) {
	text, mtu := strings.CutSuffix(text, guestMTU)
	pf, network, _ := strings.Cut(text, onNetwork)
	b, err := function(pf)
	card := &types.VirtualSriovEthernetCard{AllowGuestOSMtuChange: &mtu,
		SriovBacking: &types.VirtualSriovEthernetCardSriovBackingInfo{PhysicalFunctionBacking: b}}
	card.Backing = networkBacking(network)
	return card, err
}

// networkText formats a network: the name of a standard one, or key and switch of a distributed port group.
func networkText(b types.BaseVirtualDeviceBackingInfo) string {
	switch b := b.(type) {
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return b.Port.PortgroupKey + "@" + b.Port.SwitchUuid
	case *types.VirtualEthernetCardNetworkBackingInfo:
		return b.DeviceName
	}
	return ""
}

func networkBacking(text string) types.BaseVirtualDeviceBackingInfo {
	if key, uuid, ok := strings.Cut(text, "@"); ok {
		return &types.VirtualEthernetCardDistributedVirtualPortBackingInfo{
			Port: types.DistributedVirtualSwitchPortConnection{PortgroupKey: key, SwitchUuid: uuid}}
	}
	return &types.VirtualEthernetCardNetworkBackingInfo{
		VirtualDeviceDeviceBackingInfo: types.VirtualDeviceDeviceBackingInfo{DeviceName: text}}
}

func order(names []string) []string {
	all := lists.Map(settings, func(s setting) string { return s.name })
	at := func(name string) int {
		if i := slices.Index(all, name); i >= 0 {
			return i
		}
		return len(all)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(at(a), at(b)), cmp.Compare(a, b)) })
	return names
}
