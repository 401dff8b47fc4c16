package inspect

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

func TestAskedAndInForce(t *testing.T) {
	t.Parallel()
	const (
		huge      = "sys/kernel/mm/hugepages/"
		pool1G    = huge + "hugepages-1048576kB/nr_hugepages"
		pool2M    = huge + "hugepages-2048kB/nr_hugepages"
		node      = nodeDir + "/node"
		pool      = "/hugepages/hugepages-1048576kB/nr_hugepages"
		default1G = "Hugepagesize: 1048576 kB"
	)
	in := func(name, asked, inForce, source string) topology.KernelParameter {
		return topology.KernelParameter{Name: name, Asked: asked, InForce: &inForce, Source: "/" + source}
	}
	unknown := func(name, asked string) topology.KernelParameter {
		return topology.KernelParameter{Name: name, Asked: asked}
	}
	tests := []struct {
		name    string
		cmdline string
		tree    files
		want    []topology.KernelParameter
	}{
		{
			"isolation, of which the kernel tells a part",
			"isolcpus=nohz,domain,managed_irq,1-3 nohz_full=1-3 rcu_nocbs=1-3 irqaffinity=0 nosmt",
			files{cpuDir + "/isolated": "1-3", cpuDir + "/nohz_full": "1-2",
				"proc/irq/default_smp_affinity": "00000001", cpuDir + "/smt/control": "off"},
			[]topology.KernelParameter{
				in("isolcpus", "nohz,domain,managed_irq,1-3", "1-3", cpuDir+"/isolated"),
				in("nohz_full", "1-3", "1-2", cpuDir+"/nohz_full"),
				unknown("rcu_nocbs", "1-3"),
				in("irqaffinity", "0", "0", "proc/irq/default_smp_affinity"),
				in("nosmt", "", "off", cpuDir+"/smt/control"),
			},
		},
		{
			"a kernel without nohz_full", "nohz_full=1-3", files{cpuDir + "/nohz_full": "(null)"},
			[]topology.KernelParameter{in("nohz_full", "1-3", "", cpuDir+"/nohz_full")},
		},
		{
			"hugepages of two sizes, of the default size first",
			"default_hugepagesz=1G hugepages=16 hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=17 " +
				"hugepagesz=512M hugepages=1",
			files{"proc/meminfo": default1G, pool1G: "12", pool2M: "512"},
			[]topology.KernelParameter{
				in("default_hugepagesz", "1G", "1G", "proc/meminfo"),
				in("hugepages", "16", "12", pool1G),
				in("hugepagesz", "2M", "2M", huge+"hugepages-2048kB"),
				in("hugepages", "512", "512", pool2M),
				in("hugepagesz", "1G", "1G", huge+"hugepages-1048576kB"),
				in("hugepages", "17", "12", pool1G),
				unknown("hugepagesz", "512M"),
				unknown("hugepages", "1"),
			},
		},
		{
			"hugepages for each node", "hugepagesz=1G hugepages=0:8,1:8",
			files{node + "0" + pool: "8", node + "1" + pool: "3", pool1G: "11"},
			[]topology.KernelParameter{in("hugepagesz", "1G", "1G", huge+"hugepages-1048576kB"),
				in("hugepages", "0:8,1:8", "0:8,1:3", nodeDir+"/node*"+pool)},
		},
		{
			"hugepages for a node that is not there, or that is no node",
			"hugepagesz=1G hugepages=7:8 hugepages=x:1 hugepages=1,2:3",
			files{}, []topology.KernelParameter{unknown("hugepagesz", "1G"), unknown("hugepages", "7:8"),
				unknown("hugepages", "x:1"), unknown("hugepages", "1,2:3")},
		},
		{
			"hugepages of a size nobody knows", "hugepages=8 hugepagesz=big hugepages=9", files{},
			[]topology.KernelParameter{unknown("hugepages", "8"), unknown("hugepagesz", "big"),
				unknown("hugepages", "9")},
		},
		{
			"an IOMMU that is on", "intel_iommu=on,sm_on iommu=pt",
			files{"sys/class/iommu/dmar0": "-> ../../devices/virtual/iommu/dmar0",
				"sys/kernel/iommu_groups/12/type": "DMA", "sys/kernel/iommu_groups/3/type": "identity"},
			[]topology.KernelParameter{
				in("intel_iommu", "on,sm_on", "on", "sys/class/iommu"), in("iommu", "pt", "identity",
					"sys/kernel/iommu_groups/3/type"),
			},
		},
		{
			"an IOMMU of AMD, of which a snapshot has only groups", "amd_iommu=on iommu.passthrough=1",
			files{"sys/kernel/iommu_groups/0/devices": "dir"},
			[]topology.KernelParameter{in("amd_iommu", "on", "on", "sys/kernel/iommu_groups"),
				unknown("iommu.passthrough", "1")},
		},
		{
			"an IOMMU that stayed off", "intel_iommu=on iommu=pt", files{"sys/kernel/iommu_groups": "dir",
				"sys/class/iommu": "dir"},
			[]topology.KernelParameter{in("intel_iommu", "on", "off", "sys/kernel/iommu_groups"),
				unknown("iommu", "pt")},
		},
		{
			"an IOMMU that stayed off, in a kernel that shows no groups", "amd_iommu=on",
			files{"sys/class/iommu": "dir"},
			[]topology.KernelParameter{in("amd_iommu", "on", "off", "sys/class/iommu")},
		},
		{"an IOMMU of which nothing is known", "intel_iommu=on", files{},
			[]topology.KernelParameter{unknown("intel_iommu", "on")}},
		{
			"modules kept out, and one that came in all the same",
			"modprobe.blacklist=nouveau,nvidia-drm,xe rd.driver.blacklist=nouveau",
			files{"proc/modules": "nvidia_drm 77824 4 - Live 0x0\nkvm 1 0 - Live 0x0", "sys/module/xe": "dir"},
			[]topology.KernelParameter{
				in("modprobe.blacklist", "nouveau,nvidia-drm,xe", "nouveau", "proc/modules"),
				in("rd.driver.blacklist", "nouveau", "nouveau", "proc/modules"),
			},
		},
		{"modules kept out of a kernel whose modules are not known", "module_blacklist=nouveau", files{},
			[]topology.KernelParameter{unknown("module_blacklist", "nouveau")}},
		{
			"parameters of modules", "vfio-pci.ids=10de:2204,10de:1aef kvm_intel.nested=1 processor.max_cstate=1 " +
				"intel_idle.max_cstate=0 usbcore.autosuspend=5",
			files{"sys/module/vfio_pci/parameters/ids": "10de:2204,10de:1aef",
				"sys/module/kvm_intel/parameters/nested": "Y", "sys/module/intel_idle/parameters/max_cstate": "9"},
			[]topology.KernelParameter{
				in("vfio-pci.ids", "10de:2204,10de:1aef", "10de:2204,10de:1aef", "sys/module/vfio_pci/parameters/ids"),
				in("kvm_intel.nested", "1", "Y", "sys/module/kvm_intel/parameters/nested"),
				unknown("processor.max_cstate", "1"),
				in("intel_idle.max_cstate", "0", "9", "sys/module/intel_idle/parameters/max_cstate"),
			},
		},
		{
			"the rest that can be told",
			"numa_balancing=disable transparent_hugepage=never pcie_aspm=off pcie_aspm.policy=performance " +
				"intel_pstate=passive mitigations=off pcie_acs_override=downstream pci=realloc idle=poll quiet splash",
			files{"proc/sys/kernel/numa_balancing": "0",
				"sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]",
				"sys/module/pcie_aspm/parameters/policy":     "[default] performance powersave",
				cpuDir + "/intel_pstate/status":              "passive"},
			[]topology.KernelParameter{
				in("numa_balancing", "disable", "0", "proc/sys/kernel/numa_balancing"),
				in("transparent_hugepage", "never", "never", "sys/kernel/mm/transparent_hugepage/enabled"),
				unknown("pcie_aspm", "off"),
				in("pcie_aspm.policy", "performance", "default", "sys/module/pcie_aspm/parameters/policy"),
				in("intel_pstate", "passive", "passive", cpuDir+"/intel_pstate/status"),
				unknown("mitigations", "off"), unknown("pcie_acs_override", "downstream"), unknown("pci", "realloc"),
				unknown("idle", "poll"),
			},
		},
		{"nothing that matters", "BOOT_IMAGE=/vmlinuz ro quiet", files{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := test.tree.with(files{"proc/cmdline": test.cmdline}).read(t)
			if diff := cmp.Diff(test.want, h.Kernel.Asked); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if h.Kernel.Cmdline == nil || *h.Kernel.Cmdline != test.cmdline {
				t.Errorf("Cmdline = %v; want %q", h.Kernel.Cmdline, test.cmdline)
			}
		})
	}
}

func TestKernelIsNotKnown(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(topology.Kernel{}, (files{}).read(t).Kernel); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tree files
		want string
	}{
		"as sysctl tells it": {files{"proc/sys/kernel/osrelease": "6.8.0-45-generic",
			"proc/version": "Linux version 1 (x)"}, "6.8.0-45-generic"},
		"from the version": {files{"proc/version": "Linux version 6.8.0-45-generic (buildd@lcy02) (gcc 13)"},
			"6.8.0-45-generic"},
		"as hwloc notes it": {files{"proc/hwloc-nofile-info": "OSName: Linux\nOSRelease: 4.14.0-49.el7a.ppc64le\n"},
			"4.14.0-49.el7a.ppc64le"},
		"something else": {files{"proc/version": "FreeBSD"}, ""},
	} {
		if got := test.tree.read(t).Kernel.Release; got != test.want {
			t.Errorf("%s: %q; want %q", name, got, test.want)
		}
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		tree  files
		want  []string
		known bool
	}{
		{
			"loaded, coming, going, and of no interest",
			files{"proc/modules": "mlx5_ib 491520 0 - Live 0xffffffffc1 (OE)\nmlx5_core 2150400 1 mlx5_ib, Live " +
				"0x0\nnvidia_peermem 16384 0 - Loading 0x0\nvfio_pci 1 0 - Unloading 0x0\nsnd 1 0 - Live 0x0"},
			[]string{"mlx5_core", "mlx5_ib"}, true,
		},
		{"built in", files{"proc/modules": "snd 1 0 - Live 0x0", "sys/module/kvm/parameters": "dir",
			"sys/module/vfio": "dir"}, []string{"kvm", "vfio"}, true},
		{"a snapshot that has some of /sys/module", files{"sys/module/kvm": "dir"}, []string{"kvm"}, false},
		{"none is loaded", files{"proc/modules": ""}, nil, true},
		{"not known", files{}, nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := test.tree.read(t).Kernel
			if diff := cmp.Diff(test.want, k.Modules); diff != "" || k.ModulesKnown != test.known {
				t.Errorf("known %v; want %v (-want +got)\n%s", k.ModulesKnown, test.known, diff)
			}
		})
	}
}

func TestTablesUseUnderscores(t *testing.T) {
	t.Parallel()
	names := slices.Concat(slices.Collect(maps.Keys(parameters)), unreadable, modulesOfInterest, moduleParameters)
	for _, name := range names {
		if strings.Contains(name, "-") {
			t.Errorf("%s would never be found", name)
		}
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	for size, want := range map[uint64]string{1 << 30: "1G", 16 << 30: "16G", 2 << 20: "2M", 64 << 10: "64K",
		1000: "1000", 0: "0"} {
		if got := formatSize(size); got != want {
			t.Errorf("formatSize(%d) = %q; want %q", size, got, want)
		}
	}
}
