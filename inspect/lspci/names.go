package lspci

import (
	"strings"
	"sync"

	"github.com/rackless/rackless/internal/lazyregexp"
	"github.com/rackless/rackless/internal/pciids"
	"github.com/rackless/rackless/topology"
)

// vendors are names that stand for one number in pci.ids, of those whose devices matter here. lspci
// writes a device's name behind the vendor's without anything between them. A longer name comes
// before one that it starts with.
var vendors = []struct {
	name string
	id   topology.ID16
}{
	{"Advanced Micro Devices, Inc. [AMD/ATI]", topology.VendorAMD},
	{"Advanced Micro Devices, Inc. [AMD]", 0x1022},
	{"Advanced Micro Devices [AMD] nee ATI", topology.VendorAMD},
	{"Advanced Micro Devices [AMD]", 0x1022},
	{"Amazon.com, Inc.", 0x1d0f},
	{"Amphenol, Inc.", 0x1fb0},
	{"Annapurna Labs Ltd.", 0x1c36},
	{"ASPEED Technology, Inc.", 0x1a03},
	{"ATI Technologies Inc", topology.VendorAMD},
	{"Broadcom / LSI", 0x1000},
	{"Broadcom Inc. and subsidiaries", topology.VendorBroadcom},
	{"Broadcom Limited", topology.VendorBroadcom},
	{"Broadcom Corporation", topology.VendorBroadcom},
	{"Chelsio Communications Inc", 0x1425},
	{"Cirrus Logic", 0x1013},
	{"Google, Inc.", 0x1ae0},
	{"Habana Labs Ltd.", 0x1da3},
	{"Huawei Technologies Co., Ltd.", 0x19e5},
	{"Hygon", 0x1d94},
	{"Intel Corporation", topology.VendorIntel},
	{"KIOXIA Corporation", 0x1e0f},
	{"LSI Logic / Symbios Logic", 0x1000},
	{"Marvell Technology Group Ltd.", 0x11ab},
	{"Matrox Electronics Systems Ltd.", 0x102b},
	{"Mellanox Technologies", topology.VendorMellanox},
	{"Micron Technology Inc", 0x1344},
	{"Microsoft Corporation", 0x1414},
	{"Microchip Technology", 0x1055},
	{"NVIDIA Corporation", topology.VendorNVIDIA},
	{"nVidia Corporation", topology.VendorNVIDIA},
	{"PLX Technology, Inc.", 0x10b5},
	{"Pensando Systems", 0x1dd8},
	{"PMC-Sierra Inc.", 0x11f8},
	{"QLogic Corp.", 0x1077},
	{"Realtek Semiconductor Co., Ltd.", 0x10ec},
	{"Red Hat, Inc.", topology.VendorRedHat},
	{"Samsung Electronics Co Ltd", 0x144d},
	{"Solarflare Communications", 0x1924},
	{"VMware", 0x15ad},
}

// redHat is the vendor of QEMU's own devices; both numbers have the same name, and are told apart
// by what the device is called.
const redHatQEMU topology.ID16 = 0x1b36

// splitName splits the name of a device with that of its vendor before it. For a vendor that is not
// known all is the device's name.
func splitName(s string) (vendor *topology.ID16, vendorName, deviceName string) {
	for _, v := range vendors {
		if rest, ok := strings.CutPrefix(s, v.name); ok && (rest == "" || rest[0] == ' ') {
			id := v.id
			rest = strings.TrimSpace(rest)
			if id == topology.VendorRedHat && (strings.HasPrefix(rest, "QEMU") || strings.Contains(rest, "QXL") ||
				strings.HasPrefix(rest, "Device ")) {
				id = redHatQEMU
			}
			return &id, v.name, strings.TrimPrefix(rest, ", ")
		}
	}
	return nil, "", s
}

// classNames are the names that lspci prints for classes, in small letters. The list is long, and is gone through once.
var classNames = sync.OnceValue(func() map[string]topology.ID24 {
	names := map[string]topology.ID24{}
	for base := range 256 {
		// The list gives the name of the class for a subclass that it does not know; subclass 80 is the one that
		// bears it.
		whole := strings.ToLower(pciids.Class(uint32(base)<<16 | 0x7f00))
		for sub := range 256 {
			class := uint32(base)<<16 | uint32(sub)<<8
			n := strings.ToLower(pciids.Class(class))
			if n == "" {
				break
			}
			if _, taken := names[n]; !taken && (n != whole || sub == 0x80) {
				names[n] = topology.ID24(class)
			}
		}
	}
	return names
})

// classByName returns a class by the name that lspci prints for it.
func classByName(name string) (topology.ID24, bool) {
	c, ok := classNames()[strings.ToLower(name)]
	return c, ok
}

var (
	// NVIDIA's GPUs are called by their chip, with or without the card in brackets. Audio, USB and
	// switches have more words in the name.
	nvidiaGPU = lazyregexp.New(`^(?:G[A-Z]?|AD|TU)[0-9]{2,3}[A-Z]{0,3}(?: \[[^\]]*\])?$`)
	otherGPU  = lazyregexp.New(
		`\[(?:AMD )?(?:Radeon|Instinct|FirePro)|\bGraphics\b|\bMI[0-9]{3}X?\b|Data Center GPU|` +
			`\bMatrox .*G200|Virtio GPU|Virtio 1\.0 GPU|GD 5446|\bSVGA\b`)
	anyNIC = lazyregexp.New(
		`Ethernet|ConnectX|Network (?:Connection|Adapter|device)|network (?:controller|device)|NetXtreme|` +
			`InfiniBand|Infiniband|Elastic (?:Fabric|Network) Adapter|Omni-Path|HFI`)
	notDevice = lazyregexp.New(`Audio|USB|UCSI|NVSwitch|Bridge|Switch|Port|DMA|Management|Secure|Crypto|SMBus|SoC`)
)

// guess tells GPUs and NICs of a drawing by their names: it has no classes. The function's class stays unknown.
func (p *parser) guess(d *device) {
	switch name := d.DeviceName; {
	case d.IsBridge() || name == "" || notDevice.MatchString(name):
	case d.Vendor != nil && *d.Vendor == topology.VendorNVIDIA && nvidiaGPU.MatchString(name),
		otherGPU.MatchString(name):
		p.h.GPUs = append(p.h.GPUs, topology.GPU{Address: new(d.Address)})
	case anyNIC.MatchString(name):
		p.h.NICs = append(p.h.NICs, topology.NIC{Address: new(d.Address)})
	}
}
