package device

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/wait"
)

type netlinkNetwork struct{}

// VFs implements Network.
func (netlinkNetwork) VFs(_ context.Context, netdev string) ([]VFSettings, error) {
	attributes, err := askVFs(netdev)
	if err != nil {
		return nil, fmt.Errorf("settings of the virtual functions of %s: %w", netdev, err)
	}
	return parseVFs(attributes)
}

// askVFs reads the attributes itself because the library's VfInfo has no GUIDs and cannot mark settings that a driver
// does not report.
func askVFs(netdev string) ([]byte, error) {
	link, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil, err
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(link.Index)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(nl.RTEXT_FILTER_VF)))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 || len(answers[0]) < unix.SizeofIfInfomsg {
		return nil, fmt.Errorf("the kernel gave %d answers, want 1", len(answers))
	}
	return answers[0][unix.SizeofIfInfomsg:], nil
}

type attribute struct {
	kind  int
	value []byte
}

// parseAttributes splits a message: length with header, kind, value, and padding to four bytes
// (include/uapi/linux/netlink.h). The library's own parser panics if the last one lacks its padding.
func parseAttributes(b []byte) ([]attribute, error) {
	const (
		header = 4
		kinds  = 1<<14 - 1 // NLA_TYPE_MASK; the bits above are flags
	)
	var out []attribute
	for len(b) > 0 {
		if len(b) < header {
			return nil, fmt.Errorf("%d bytes after the last attribute", len(b))
		}
		size := int(binary.NativeEndian.Uint16(b))
		if size < header || size > len(b) {
			return nil, fmt.Errorf("an attribute of %d bytes in %d", size, len(b))
		}
		out = append(out, attribute{int(binary.NativeEndian.Uint16(b[2:]) & kinds), b[header:size]})
		b = b[min((size+3)&^3, len(b)):]
	}
	return out, nil
}

func parseVFs(b []byte) ([]VFSettings, error) {
	attributes, err := parseAttributes(b)
	if err != nil {
		return nil, err
	}
	var vfs []VFSettings
	for _, a := range attributes {
		if a.kind != unix.IFLA_VFINFO_LIST {
			continue
		}
		list, err := parseAttributes(a.value)
		if err != nil {
			return nil, err
		}
		for _, info := range list {
			fields, err := parseAttributes(info.value)
			if err != nil {
				return nil, err
			}
			vf, err := parseVF(fields, len(vfs))
			if err != nil {
				return nil, fmt.Errorf("virtual function %d: %w", len(vfs), err)
			}
			vfs = append(vfs, vf)
		}
	}
	return vfs, nil
}

// unknown32 is the kernel's value of a setting that the driver does not report (rtnl_fill_vfinfo in
// net/core/rtnetlink.c presets -1).
const unknown32 = 1<<32 - 1

// All structures begin with the function's number (include/uapi/linux/if_link.h).
func parseVF(fields []attribute, index int) (VFSettings, error) {
	var vf VFSettings
	order := binary.NativeEndian
	for _, f := range fields {
		size, known := vfStructs[f.kind]
		if !known {
			continue
		}
		if len(f.value) < size {
			return vf, fmt.Errorf("attribute %d has %d bytes, want %d", f.kind, len(f.value), size)
		}
		word := func(i int) uint32 { return order.Uint32(f.value[4*i:]) }
		if f.kind != nl.IFLA_VF_VLAN_LIST && int(word(0)) != index {
			return vf, fmt.Errorf("attribute %d is of virtual function %d", f.kind, word(0))
		}
		switch f.kind {
		case nl.IFLA_VF_MAC:
			// On InfiniBand, which has GUIDs instead, the address is zero.
			vf.MAC = net.HardwareAddr(f.value[4:10]).String()
		case nl.IFLA_VF_VLAN:
			vf.VLAN, vf.QoS = new(int(word(1))), new(int(word(2)))
		case nl.IFLA_VF_VLAN_LIST:
			// One entry: its header of four bytes, number, VLAN, QoS, and the protocol in network order.
			vf.VLANProto = new(int(binary.BigEndian.Uint16(f.value[16:])))
		case nl.IFLA_VF_RATE:
			vf.MinRate, vf.MaxRate = new(int(word(1))), new(int(word(2)))
		case nl.IFLA_VF_SPOOFCHK:
			vf.SpoofChk = knownFlag(word(1))
		case nl.IFLA_VF_TRUST:
			vf.Trust = knownFlag(word(1))
		case nl.IFLA_VF_LINK_STATE:
			vf.LinkState = new(int(word(1)))
		case nl.IFLA_VF_IB_NODE_GUID:
			vf.NodeGUID = new(order.Uint64(f.value[8:]))
		case nl.IFLA_VF_IB_PORT_GUID:
			vf.PortGUID = new(order.Uint64(f.value[8:]))
		}
	}
	return vf, nil
}

// vfStructs has sizes in bytes.
var vfStructs = map[int]int{
	nl.IFLA_VF_MAC: 36, nl.IFLA_VF_VLAN: 12, nl.IFLA_VF_VLAN_LIST: 18, nl.IFLA_VF_RATE: 12, nl.IFLA_VF_SPOOFCHK: 8,
	nl.IFLA_VF_TRUST:      8,
	nl.IFLA_VF_LINK_STATE: 8, nl.IFLA_VF_IB_NODE_GUID: 16, nl.IFLA_VF_IB_PORT_GUID: 16,
}

func knownFlag(v uint32) *bool {
	if v == unknown32 {
		return nil
	}
	return new(v != 0)
}

// SetVF sends one message per setting: drivers refuse a whole message for one unknown setting, and then it is not clear
// which of the others were applied.
func (netlinkNetwork) SetVF(ctx context.Context, netdev string, index int, setting VFSetting, to VFSettings) error {
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		return fmt.Errorf("%s: %w", netdev, err)
	}
	switch setting {
	case SettingMAC:
		mac, parseErr := net.ParseMAC(to.MAC)
		if parseErr != nil {
			return parseErr
		}
		err = netlink.LinkSetVfHardwareAddr(link, index, mac)
	case SettingVLAN:
		err = setVLAN(link, index, to)
	case SettingRate:
		var least, most int
		if to.MinRate != nil {
			least = *to.MinRate
		}
		if to.MaxRate != nil {
			most = *to.MaxRate
		}
		err = setRate(ctx, link, index, least, most)
	case SettingSpoofChk:
		err = netlink.LinkSetVfSpoofchk(link, index, to.SpoofChk != nil && *to.SpoofChk)
	case SettingTrust:
		err = netlink.LinkSetVfTrust(link, index, to.Trust != nil && *to.Trust)
	case SettingLinkState:
		var state uint32
		if to.LinkState != nil {
			state = uint32(*to.LinkState)
		}
		err = netlink.LinkSetVfState(link, index, state)
	case SettingNodeGUID:
		err = netlink.LinkSetVfNodeGUID(link, index, guidBytes(to.NodeGUID))
	case SettingPortGUID:
		err = netlink.LinkSetVfPortGUID(link, index, guidBytes(to.PortGUID))
	default:
		return fmt.Errorf("setting %q of a virtual function is not known", setting)
	}
	if err != nil {
		return fmt.Errorf("%s of virtual function %d of %s: %w", setting, index, netdev, err)
	}
	return nil
}

// Few drivers accept a protocol other than 802.1Q, or any explicit protocol.
func setVLAN(link netlink.Link, index int, to VFSettings) error {
	var vlan, qos int
	if to.VLAN != nil {
		vlan = *to.VLAN
	}
	if to.QoS != nil {
		qos = *to.QoS
	}
	if to.VLANProto != nil && *to.VLANProto != unix.ETH_P_8021Q {
		return netlink.LinkSetVfVlanQosProto(link, index, vlan, qos, *to.VLANProto)
	}
	return netlink.LinkSetVfVlanQos(link, index, vlan, qos)
}

const linkWait = 10 * time.Second

// setRate sets the rates in Mb/s. Some drivers (igb) refuse while the port has no link, which it loses if the number of
// virtual functions changes, so setRate waits for the link of a port that is up.
func setRate(ctx context.Context, link netlink.Link, index, least, most int) error {
	name := link.Attrs().Name
	for deadline := time.Now().Add(linkWait); ; {
		before, lookErr := netlink.LinkByName(name)
		err := netlink.LinkSetVfRate(link, index, least, most)
		if err == nil || !errors.Is(err, unix.EINVAL) || lookErr != nil || time.Now().After(deadline) {
			return err
		}
		if a := before.Attrs(); a.Flags&net.FlagUp == 0 || a.OperState == netlink.OperUp {
			return err // it would be refused again
		}
		if ended := wait.For(ctx, 100*time.Millisecond); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// guidBytes returns the highest byte first, or zeros for nil.
func guidBytes(guid *uint64) net.HardwareAddr {
	b := make(net.HardwareAddr, 8)
	if guid != nil {
		binary.BigEndian.PutUint64(b, *guid)
	}
	return b
}

// Addresses implements Network.
func (netlinkNetwork) Addresses(context.Context) ([]Address, error) {
	links, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []Address
	for _, link := range links {
		addrs, err := link.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", link.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				return nil, fmt.Errorf("addresses of %s: %w", link.Name, err)
			}
			all = append(all, Address{link.Name, prefix.Addr()})
		}
	}
	slices.SortFunc(all, func(a, b Address) int {
		return bytes.Compare([]byte(a.Netdev+" "+a.Addr.String()), []byte(b.Netdev+" "+b.Addr.String()))
	})
	return all, nil
}

// RouteTo counts all hops of a route with several.
func (netlinkNetwork) RouteTo(_ context.Context, to netip.Addr) ([]string, error) {
	routes, err := netlink.RouteGet(to.Unmap().AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("route to %s: %w", to, err)
	}
	var names []string
	add := func(index int) error {
		if index == 0 {
			return nil
		}
		link, err := net.InterfaceByIndex(index)
		if err != nil {
			return fmt.Errorf("route to %s: %w", to, err)
		}
		names = lists.Add(names, link.Name)
		return nil
	}
	for _, r := range routes {
		if err := add(r.LinkIndex); err != nil {
			return nil, err
		}
		for _, hop := range r.MultiPath {
			if err := add(hop.LinkIndex); err != nil {
				return nil, err
			}
		}
	}
	return names, nil
}

// RDMA returns nil on a kernel without RDMA.
func (netlinkNetwork) RDMA(context.Context) (map[string]map[string]uint64, error) {
	all, err := netlink.RdmaResourceList()
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // before Linux 4.17
	}
	used := map[string]map[string]uint64{}
	for _, r := range all {
		used[r.Name] = r.RdmaResourceSummaryEntries
	}
	if err != nil {
		err = fmt.Errorf("who uses RDMA devices cannot be told: %w", err)
	}
	return used, err
}

// Foreign looks into the namespaces of all processes, and into those kept by a mount (ip netns).
func (netlinkNetwork) Foreign(context.Context) ([]Foreign, error) {
	processes, err1 := filepath.Glob("/proc/[0-9]*/ns/net")
	named, err2 := filepath.Glob("/run/*/netns/*")
	more, err3 := filepath.Glob("/run/netns/*")
	own, err4 := os.Stat("/proc/self/ns/net")
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	seen := []fs.FileInfo{own}
	var all []Foreign
	for _, path := range slices.Concat(processes, more, named) {
		info, err := os.Stat(path)
		if isGone(err) || err == nil && slices.ContainsFunc(seen, func(s fs.FileInfo) bool {
			return os.SameFile(s, info)
		}) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("what other network namespaces have cannot be read: %w; run it as root", err)
		}
		seen = append(seen, info)
		links, err := linksIn(path)
		if isGone(err) || errors.Is(err, unix.EINVAL) { // process ended, or the file is not a namespace
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("what network namespace %s has cannot be read: %w; run it as root", path, err)
		}
		owner := filepath.Base(path)
		if process, ok := strings.CutSuffix(path, "/ns/net"); ok {
			name, _ := os.ReadFile(process + "/comm") // empty if the process has ended
			owner = fmt.Sprintf("%s (%s)", strings.TrimSpace(string(name)), filepath.Base(process))
		}
		all = append(all, foreignOf(links, owner)...)
	}
	return all, nil
}

func linksIn(path string) (links []netlink.Link, err error) {
	onLostThread(func() {
		f, openErr := os.Open(path)
		if err = openErr; err != nil {
			return
		}
		defer f.Close()
		if err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		for range 3 { // devices appearing or vanishing interrupt it
			if links, err = netlink.LinkList(); !errors.Is(err, netlink.ErrDumpInterrupted) {
				return
			}
		}
	})
	return links, err
}

// onLostThread calls f on a thread that Go ends with its goroutine. The first thread cannot end, and /proc/self/net
// shows its namespace, so it is kept busy meanwhile.
func onLostThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			onLostThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
	}()
	<-done
}

// foreignOf: if the lower device is in another namespace, ParentIndex is its index there; for a veth it is the peer.
func foreignOf(links []netlink.Link, owner string) []Foreign {
	var all []Foreign
	for _, link := range links {
		a := link.Attrs()
		d := Foreign{Netdev: a.Name, Kind: link.Type(), Owner: owner}
		if a.ParentDevBus == "pci" {
			d.Function = a.ParentDev
		}
		if a.NetNsID >= 0 && a.ParentIndex > 0 && d.Kind != "veth" {
			if lower, err := net.InterfaceByIndex(a.ParentIndex); err == nil {
				d.Lower = lower.Name
			}
		}
		if d.Function != "" || d.Lower != "" {
			all = append(all, d)
		}
	}
	return all
}

// A Network reads and changes the state that only netlink offers.
type Network interface {
	// VFs returns the settings of virtual functions, by index, or none without SR-IOV.
	VFs(ctx context.Context, netdev string) ([]VFSettings, error)
	// SetVF changes one setting of a virtual function.
	SetVF(ctx context.Context, netdev string, index int, setting VFSetting, to VFSettings) error
	// Addresses returns the addresses of all network devices.
	Addresses(ctx context.Context) ([]Address, error)
	// RouteTo returns the outgoing network devices for an address, or none if it is unreachable.
	RouteTo(ctx context.Context, to netip.Addr) ([]string, error)
	// Foreign returns devices in other network namespaces on PCI functions or network devices of this one.
	Foreign(ctx context.Context) ([]Foreign, error)
	// RDMA returns the number of resources in use per RDMA device and kind, as rdma resource does.
	RDMA(ctx context.Context) (map[string]map[string]uint64, error)
}

// A Foreign is a network device of another network namespace.
type Foreign struct {
	Netdev, Kind string // "eth0", "macvlan"
	Owner        string // "nginx (812)", or the namespace
	Function     string // "" if it has none or the kernel does not say (before 5.14)
	Lower        string // the network device of this namespace below it, or ""
}

// An Address is an IP address of a network device.
type Address struct {
	Netdev string
	Addr   netip.Addr
}

// VFSettings are kept by the physical function. A setting that the driver does not report is nil or empty, and is not
// written.
type VFSettings struct {
	MAC       string  `json:"mac,omitempty"` // lower case with colons; zeros if never set
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

const noMAC = "00:00:00:00:00:00"

// A VFSetting names one field of [VFSettings], or several that are set together.
type VFSetting string

// Names of settings.
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

// differences are in an order that drivers accept. Settings unknown to either side are left out.
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

func (s *VFSettings) take(setting VFSetting, from VFSettings) {
	switch setting {
	case SettingMAC:
		s.MAC = from.MAC
	case SettingVLAN:
		s.VLAN, s.QoS, s.VLANProto = from.VLAN, from.QoS, from.VLANProto
	case SettingRate:
		s.MinRate, s.MaxRate = from.MinRate, from.MaxRate
	case SettingSpoofChk:
		s.SpoofChk = from.SpoofChk
	case SettingTrust:
		s.Trust = from.Trust
	case SettingLinkState:
		s.LinkState = from.LinkState
	case SettingNodeGUID:
		s.NodeGUID = from.NodeGUID
	case SettingPortGUID:
		s.PortGUID = from.PortGUID
	}
}

func (s VFSettings) only(setting VFSetting) (one VFSettings) {
	one.take(setting, s)
	return one
}

func (s VFSettings) text() string {
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func differ[T comparable](have, want *T) bool { return have != nil && want != nil && *have != *want }
