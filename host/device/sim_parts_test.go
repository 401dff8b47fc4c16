package device

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
)

func (m *sim) program(_ context.Context, argv []string) ([]byte, error) {
	m.programs = append(m.programs, strings.Join(argv, " "))
	name := strings.ReplaceAll(argv[len(argv)-1], "-", "_")
	switch argv[0] {
	case "modprobe":
		if alias, ok := strings.CutPrefix(argv[len(argv)-1], "pci:"); ok && strings.Contains(strings.Join(argv, " "),
			" -b ") {
			for _, d := range m.host.PCI {
				if fmt.Sprintf("%04x:%04x", uint16(*d.Vendor), uint16(*d.Device)) == alias {
					m.load(m.modules[m.natives[d.Address]])
				}
			}
			return nil, nil
		}
		known := slices.Contains([]string{"vfio", "vfio_iommu_type1", "nvidia_uvm", "nvidia_modeset", "nvidia_drm"},
			name)
		for _, module := range m.modules {
			known = known || module == name
		}
		if !known {
			return nil, fmt.Errorf("modprobe: module %s not found", name)
		}
		m.load(name)
		return nil, nil
	case "rmmod":
		users, err := moduleUsers(m.s, name)
		if err != nil || len(users) > 0 {
			return nil, fmt.Errorf("rmmod: %s is in use: %v %w", name, users, err)
		}
		m.unload(name)
		return nil, nil
	}
	return nil, fmt.Errorf("%s: not there", argv[0])
}

func (m *sim) load(module string) {
	for _, need := range m.needs[module] {
		m.load(need)
	}
	dir := "/sys/module/" + module
	if m.s.Exists(dir) {
		return
	}
	m.put(dir+"/initstate", "live")
	m.put(dir+"/refcnt", "0")
	if err := os.MkdirAll(m.s.Path(dir+"/holders"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	for _, need := range m.needs[module] {
		m.link("/sys/module/"+need+"/holders/"+module, dir)
	}
	for driver, of := range m.modules {
		if of != module {
			continue
		}
		if err := os.MkdirAll(m.s.Path(pciDrivers+"/"+driver), 0o755); err != nil {
			m.t.Fatal(err)
		}
		m.link(dir+"/drivers/pci:"+driver, pciDrivers+"/"+driver)
		if driver == vfioPCI {
			continue
		}
		for a := range m.natives {
			if f := (function{m.s, m.k, a}); f.exists() {
				if override, err := f.override(); err == nil && override == "" && m.natives[a] == driver &&
					m.driverOf(a) == "" {
					_ = m.bind(a, driver)
				}
			}
		}
	}
}

func (m *sim) unload(module string) {
	for driver, of := range m.modules {
		if of == module {
			for a := range m.natives {
				if m.driverOf(a) == driver {
					m.unbind(a)
				}
			}
			m.gone(pciDrivers + "/" + driver)
		}
	}
	for _, need := range m.needs[module] {
		m.gone("/sys/module/" + need + "/holders/" + module)
	}
	m.gone("/sys/module/" + module)
}

type simNetwork struct {
	m         *sim
	vfs       map[int]VFSettings
	addresses []Address
	routes    map[netip.Addr][]string
	foreign   []Foreign
	rdma      map[string]map[string]uint64
	broken    error
}

func (n *simNetwork) VFs(context.Context, string) ([]VFSettings, error) {
	out := make([]VFSettings, len(n.vfs))
	for i, vf := range n.vfs {
		out[i] = vf
	}
	return out, n.broken
}

func (n *simNetwork) SetVF(_ context.Context, netdev string, index int, setting VFSetting, to VFSettings) error {
	vf, ok := n.vfs[index]
	if !ok {
		return fmt.Errorf("%s: no virtual function %d", netdev, index)
	}
	switch setting {
	case SettingMAC:
		vf.MAC = to.MAC
	case SettingVLAN:
		vf.VLAN, vf.QoS, vf.VLANProto = to.VLAN, to.QoS, to.VLANProto
	case SettingRate:
		vf.MinRate, vf.MaxRate = to.MinRate, to.MaxRate
	case SettingSpoofChk:
		vf.SpoofChk = to.SpoofChk
	case SettingTrust:
		vf.Trust = to.Trust
	case SettingLinkState:
		vf.LinkState = to.LinkState
	case SettingNodeGUID:
		vf.NodeGUID = to.NodeGUID
	case SettingPortGUID:
		vf.PortGUID = to.PortGUID
	}
	n.vfs[index] = vf
	return n.broken
}

func (n *simNetwork) Addresses(context.Context) ([]Address, error) { return n.addresses, n.broken }

func (n *simNetwork) RouteTo(_ context.Context, to netip.Addr) ([]string, error) {
	return n.routes[to], n.broken
}

func (n *simNetwork) Foreign(context.Context) ([]Foreign, error) { return n.foreign, n.broken }

func (n *simNetwork) RDMA(context.Context) (map[string]map[string]uint64, error) {
	return n.rdma, n.broken
}
