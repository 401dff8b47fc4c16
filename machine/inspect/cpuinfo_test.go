package inspect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rackless/rackless/machine/topology"
)

var cpuinfoForms = []struct {
	name, text        string
	arch, model, cpus string
}{
	{
		"x86_64",
		"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel name\t: AMD EPYC 7551P  32-Core " +
			"Processor \nflags\t\t: fpu lm svm\n\n" +
			"processor\t: 1\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel name\t: AMD EPYC 7551P 32-Core " +
			"Processor\nflags\t\t: fpu lm svm\n",
		"x86_64", "AMD EPYC 7551P 32-Core Processor", "0-1",
	},
	{
		"a 32-bit kernel on a 64-bit CPU",
		"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: Intel(R) Xeon(R) CPU            " +
			"5130  @ 2.00GHz\nfdiv_bug\t: no\nflags\t\t: fpu lm\n",
		"i686", "Intel(R) Xeon(R) CPU 5130 @ 2.00GHz", "0",
	},
	{
		"a 32-bit CPU", "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nflags\t\t: fpu\n", "i686", "", "0",
	},
	{
		"64-bit ARM", "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: " +
			"0xd4f\n\nprocessor\t: 1\nCPU implementer\t: 0x41\n",
		"aarch64", "ARM Neoverse-V2", "0-1",
	},
	{
		"64-bit ARM of an unknown part", "processor\t: 0\nCPU implementer\t: 0x99\nCPU architecture: 8\nCPU " +
			"part\t: 0x001\n", "aarch64", "", "0",
	},
	{
		"an early 64-bit ARM kernel",
		"Processor\t: AArch64 Processor rev 1 (aarch64)\nprocessor\t: 0\nprocessor\t: 1\nCPU implementer\t: " +
			"0x50\nCPU architecture: AArch64\n",
		"aarch64", "AArch64 Processor rev 1 (aarch64)", "0-1",
	},
	{
		"32-bit ARM: the model first, the rest last",
		"Processor\t: ARMv7 Processor rev 1 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1595.80\n\nprocessor\t: " +
			"1\nBogoMIPS\t: 1595.80\n\n" +
			"CPU implementer\t: 0x41\nCPU architecture: 7\n\nHardware\t: ST-Ericsson MOP500 platform\n",
		"armv7l", "ARMv7 Processor rev 1 (v7l)", "0-1",
	},
	{
		"old POWER", "processor\t: 0\ncpu\t\t: POWER7 (architected), altivec supported\n\nprocessor\t: 4\ncpu\t\t: " +
			"POWER7\n\ntimebase\t: 512000000\n",
		"ppc64", "POWER7 (architected)", "0,4",
	},
	{
		"POWER of either byte order", "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n\ntimebase\t: 512000000\n",
		"", "POWER9", "0",
	},
	{
		"Itanium", "processor  : 0\nvendor     : GenuineIntel\narch       : IA-64\nmodel name : Madison up to " +
			"9M cache\n", "ia64", "Madison up to 9M cache", "0",
	},
	{
		"s390 in one line for each CPU, and then again",
		"vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = FF,  identification = 29AA14,  " +
			"machine = 2817\n" +
			"processor 1: version = FF,  identification = 29AA14,  machine = 2817\n\ncpu number      : 0\nphysical " +
			"id     : 1\n\ncpu number      : 1\nphysical id     : 2\n",
		"s390x", "IBM 2817", "0-1",
	},
	{
		"RISC-V", "processor\t: 0\nhart\t\t: 2\nisa\t\t: rv64imafdc\nuarch\t\t: sifive,u74-mc\n", "riscv64",
		"sifive,u74-mc", "0",
	},
	{"RISC-V of 32 bits", "processor\t: 0\nisa\t\t: rv32imac\n", "riscv32", "", "0"},
	{
		"LoongArch",
		"system type\t\t: generic-loongson-machine\n\nprocessor\t\t: 0\npackage\t\t\t: 0\nModel Name\t\t: " +
			"Loongson-3A5000-HV\nISA\t\t\t: loongarch32 loongarch64\n",
		"loongarch64", "Loongson-3A5000-HV", "0",
	},
	{
		"Alpha, whose kernel for one CPU numbers none",
		"cpu\t\t\t: Alpha\ncpu model\t\t: EV68CB\ncpus detected\t\t: 3\n", "alpha", "EV68CB", "0",
	},
	{
		"Alpha with several CPUs", "cpu\t\t\t: Alpha\ncpu model\t\t: EV68CB\ncpus detected\t\t: 4\ncpus " +
			"active\t\t: 4\n", "alpha", "EV68CB", "0-3",
	},
	{"numbers that cannot be", "processor\t: -1\nprocessor\t: 99999999\nprocessor\t: x\n", "", "", "0"},
	{"nothing", "", "", "", ""},
}

func TestParseCPUInfo(t *testing.T) {
	t.Parallel()
	for _, test := range cpuinfoForms {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := parseCPUInfo(test.text)
			got := [3]string{c.arch(), c.model(), c.cpus().String()}
			if diff := cmp.Diff([3]string{test.arch, test.model, test.cpus}, got); diff != "" {
				t.Errorf("architecture, model and CPUs (-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadOnlyTheHeadOfALongCPUInfo(t *testing.T) {
	t.Parallel()
	paragraphs := func(format string) string {
		var b strings.Builder
		for cpu := range 400 {
			fmt.Fprintf(&b, format, cpu)
		}
		return b.String()
	}
	t.Run("x86 says all with its first CPU", func(t *testing.T) {
		t.Parallel()
		text := paragraphs("processor\t: %d\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel name\t: " +
			"Xeon\nflags\t\t: fpu lm\n\n")
		c := files{"proc/cpuinfo": text}.reader(t).readCPUInfo(false)
		if n := len(c.processors); n == 0 || n == 400 {
			t.Errorf("%d CPUs read; want some and not all", n)
		}
		if got := c.model(); got != "Xeon" {
			t.Errorf("model() = %q; want Xeon", got)
		}
		if last := c.processors[len(c.processors)-1]; len(last.fields) > 4 {
			t.Errorf("the last CPU has %v", last.fields)
		}
	})
	t.Run("POWER names the machine at the end", func(t *testing.T) {
		t.Parallel()
		text := paragraphs("processor\t: %d\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.000000MHz\n\n") +
			"timebase\t: 1\nmachine\t\t: PowerNV 8335-GTW\n"
		c := files{"proc/cpuinfo": text}.reader(t).readCPUInfo(false)
		if got := c.get("machine"); len(c.processors) != 400 || got != "PowerNV 8335-GTW" {
			t.Errorf("%d CPUs, machine %q; want 400, PowerNV 8335-GTW", len(c.processors), got)
		}
	})
	t.Run("a file that may not be read", func(t *testing.T) {
		t.Parallel()
		r := files{"proc/cpuinfo": "unreadable"}.reader(t)
		if c := r.readCPUInfo(false); len(c.processors) != 0 {
			t.Errorf("%d CPUs", len(c.processors))
		}
		if len(r.h.Unread) != 1 || r.h.Unread[0].Path != "/proc/cpuinfo" {
			t.Errorf("Unread = %v; want /proc/cpuinfo", r.h.Unread)
		}
	})
}

func FuzzParseCPUInfo(f *testing.F) {
	for _, form := range cpuinfoForms {
		f.Add(form.text)
	}
	f.Add("processor\t: 0\nphysical id\t: 0\ncore id\t: 0\nsiblings\t: 2\n\nprocessor\t: 1\nphysical id\t: 0\ncore " +
		"id\t: 0\nsiblings\t: 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := parseCPUInfo(text)
		c.arch()
		c.model()
		online := c.cpus()
		packages, cores, ok := c.topology()
		if !ok {
			return
		}
		var inPackages, inCores topology.CPUSet
		for _, p := range packages {
			inPackages = inPackages.Union(p.CPUs)
		}
		for _, c := range cores {
			inCores = inCores.Union(c.CPUs)
		}
		if !inPackages.Equal(inCores) || !inCores.IsSubsetOf(online) {
			t.Errorf("packages have CPUs %v, cores %v; online are %v", inPackages, inCores, online)
		}
	})
}
