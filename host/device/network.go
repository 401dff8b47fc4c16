package device

import (
	"context"
	"net/netip"
)

// A Network is what only netlink shows and changes: the settings of virtual functions, addresses
// and routes.
type Network interface {
	// VFs returns the settings of the virtual functions of a physical function's network device, by
	// index. There are none without SR-IOV.
	VFs(ctx context.Context, netdev string) ([]VFSettings, error)
	// SetVF changes one setting of a virtual function.
	SetVF(ctx context.Context, netdev string, index int, setting VFSetting, to VFSettings) error
	// Addresses returns the addresses of all network devices.
	Addresses(ctx context.Context) ([]Address, error)
	// RouteTo returns the network devices through which packets leave for an address; none where it cannot be reached.
	RouteTo(ctx context.Context, to netip.Addr) ([]string, error)
	// Foreign returns the network devices of other network namespaces that are of PCI functions, or stand on network
	// devices of this one.
	Foreign(ctx context.Context) ([]Foreign, error)
	// RDMA returns how many resources of each kind RDMA devices have in use, as rdma resource does.
	RDMA(ctx context.Context) (map[string]map[string]uint64, error)
}

// A Foreign is a network device of another network namespace.
type Foreign struct {
	Netdev, Kind string // "eth0", "macvlan"
	Owner        string // "nginx (812)", or the name of the namespace
	Function     string // its PCI function; "" if it has none or the kernel does not say (before 5.14)
	Lower        string // the network device of this namespace that it stands on; "" if there is none
}

// An Address is an IP address of a network device.
type Address struct {
	Netdev string
	Addr   netip.Addr
}

// VFSettings are the settings of a virtual function that its physical function keeps. What the
// driver does not tell is nil or empty, and is not set either.
type VFSettings struct {
	MAC       string  `json:"mac,omitempty"` // lower case with colons; zeros until somebody sets it
	VLAN      *int    `json:"vlan,omitempty"`
	QoS       *int    `json:"qos,omitempty"`
	VLANProto *int    `json:"vlan_proto,omitempty"` // 0x8100 or 0x88a8
	MinRate   *int    `json:"min_mbps,omitempty"`   // Mb/s
	MaxRate   *int    `json:"max_mbps,omitempty"`   // Mb/s; 0: no limit
	SpoofChk  *bool   `json:"spoofchk,omitempty"`
	Trust     *bool   `json:"trust,omitempty"`
	LinkState *int    `json:"link_state,omitempty"` // 0 as the port's, 1 up, 2 down
	NodeGUID  *uint64 `json:"node_guid,omitempty"`
	PortGUID  *uint64 `json:"port_guid,omitempty"`
}

// A VFSetting names one of [VFSettings], or those that are set together.
type VFSetting string

// The settings.
const (
	SettingMAC       VFSetting = "mac"
	SettingVLAN      VFSetting = "vlan"
	SettingRate      VFSetting = "rate"
	SettingSpoofChk  VFSetting = "spoofchk"
	SettingTrust     VFSetting = "trust"
	SettingLinkState VFSetting = "state"
	SettingNodeGUID  VFSetting = "node_guid"
	SettingPortGUID  VFSetting = "port_guid"
)

// differences lists what is to be set on a virtual function that has one set of settings, and is to
// have another, in an order in which drivers take it. What either side does not know is left alone.
func differences(have, want VFSettings) []VFSetting {
	var out []VFSetting
	add := func(s VFSetting, differs bool) {
		if differs {
			out = append(out, s)
		}
	}
	add(SettingNodeGUID, differ(have.NodeGUID, want.NodeGUID))
	add(SettingPortGUID, differ(have.PortGUID, want.PortGUID))
	add(SettingMAC, have.MAC != "" && want.MAC != "" && have.MAC != want.MAC)
	add(SettingVLAN, differ(have.VLAN, want.VLAN) || differ(have.QoS, want.QoS) ||
		differ(have.VLANProto, want.VLANProto))
	add(SettingRate, differ(have.MinRate, want.MinRate) || differ(have.MaxRate, want.MaxRate))
	add(SettingSpoofChk, differ(have.SpoofChk, want.SpoofChk))
	add(SettingTrust, differ(have.Trust, want.Trust))
	add(SettingLinkState, differ(have.LinkState, want.LinkState))
	return out
}

func differ[T comparable](have, want *T) bool { return have != nil && want != nil && *have != *want }
