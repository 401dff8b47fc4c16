package inspect

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

// cpuinfoHead is all of a small machine's /proc/cpuinfo. The kernel generates the text during the read and on x86
// queries every CPU's frequency, which takes long with 256 CPUs.
const cpuinfoHead = 16 << 10

// A cpuinfo is /proc/cpuinfo, or its beginning. On all architectures a CPU's paragraph starts with "processor : N".
//
// Source: show_cpuinfo in arch/*/kernel/ of the kernel.
type cpuinfo struct {
	processors []processor
	// common are lines before the first CPU (old ARM), after the last one (POWER), or all lines (Alpha, SPARC).
	common map[string]string
}

type processor struct {
	id     int
	fields map[string]string
}

// readCPUInfo reads only the beginning unless all is set.
func (r *reader) readCPUInfo(all bool) cpuinfo {
	const p = "proc/cpuinfo"
	if all {
		text, _ := r.text(p)
		return parseCPUInfo(text)
	}
	f, err := r.fs.Open(p)
	if err != nil {
		r.failed(p, err)
		return cpuinfo{}
	}
	defer f.Close()
	head := make([]byte, cpuinfoHead)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		r.failed(p, err)
		return cpuinfo{}
	}
	text := string(head[:n])
	if n == len(head) {
		// Lines about the machine may come last, except on x86.
		if !strings.Contains(text, "\ncpu family\t:") {
			return r.readCPUInfo(true)
		}
		text = text[:strings.LastIndexByte(text, '\n')+1]
	}
	return parseCPUInfo(text)
}

func parseCPUInfo(text string) cpuinfo {
	c := cpuinfo{common: map[string]string{}}
	var fields map[string]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			fields = nil
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if id, ok := processorID(key, value); ok {
			fields = map[string]string{}
			c.processors = append(c.processors, processor{id, fields})
			// s390 has "processor 0: version = FF, ..., machine = 2964".
			if key != "processor" {
				addPairs(fields, value)
				fields = nil
			}
			continue
		}
		if fields == nil {
			// s390 lists its CPUs again, with other fields.
			if _, ok := c.common[key]; !ok {
				c.common[key] = value
			}
			continue
		}
		fields[key] = value
	}
	return c
}

// processorID also knows s390's "processor 0: ...". Old ARM kernels have a "Processor" line with the model's name.
func processorID(key, value string) (int, bool) {
	digits, ok := value, key == "processor"
	if !ok {
		if digits, ok = strings.CutPrefix(key, "processor "); !ok {
			return 0, false
		}
	}
	id, err := strconv.Atoi(digits)
	return id, err == nil && id >= 0 && id < topology.MaxCPUs
}

// addPairs parses "version = FF, machine = 2964".
func addPairs(fields map[string]string, s string) {
	for item := range strings.SplitSeq(s, ",") {
		if key, value, ok := strings.Cut(item, "="); ok {
			fields[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
}

// get returns the first nonempty value of keys, each from the first CPU, the common lines, or the last CPU: early
// 64-bit ARM has no empty line between it and the common lines.
func (c cpuinfo) get(keys ...string) string {
	places := []map[string]string{c.common}
	if n := len(c.processors); n > 0 {
		places = []map[string]string{c.processors[0].fields, c.common, c.processors[n-1].fields}
	}
	for _, key := range keys {
		for _, fields := range places {
			if fields[key] != "" {
				return fields[key]
			}
		}
	}
	return ""
}

func (c cpuinfo) hasFlag(name string) bool {
	return strings.Contains(" "+c.get("flags")+" ", " "+name+" ")
}

// isX86 checks for two fields that only x86 prints together.
func (c cpuinfo) isX86() bool { return c.get("cpu family") != "" && c.get("vendor_id") != "" }

// arch returns uname -m, or "".
func (c cpuinfo) arch() string {
	isa := c.get("isa", "ISA")
	cpu := c.get("cpu")
	switch {
	case c.isX86():
		// Only a 32-bit kernel checks for this bug of 1994.
		if c.get("fdiv_bug") != "" || !c.hasFlag("lm") {
			return "i686"
		}
		return "x86_64"
	case c.get("CPU implementer") != "":
		if a := c.get("CPU architecture"); a == "8" || a == "9" || strings.HasPrefix(a, "AArch64") {
			return "aarch64"
		}
		return "armv" + strings.TrimRight(c.get("CPU architecture"), "TEJ") + "l"
	case c.get("arch") == "IA-64":
		return "ia64"
	case strings.HasPrefix(c.get("vendor_id"), "IBM/S390"):
		return "s390x"
	case strings.HasPrefix(isa, "rv64"):
		return "riscv64"
	case strings.HasPrefix(isa, "rv32"):
		return "riscv32"
	case strings.Contains(isa, "loongarch64"):
		return "loongarch64"
	case cpu == "Alpha":
		return "alpha"
	case c.get("timebase") != "" && bigEndianPower(cpu):
		return "ppc64"
	}
	return ""
}

// bigEndianPower reports whether a CPU is older than POWER8. The file does not tell the byte order.
func bigEndianPower(cpu string) bool {
	return slices.ContainsFunc([]string{"PPC970", "Cell", "POWER4", "POWER5", "POWER6", "POWER7"},
		func(name string) bool { return strings.HasPrefix(cpu, name) })
}

func (c cpuinfo) model() string {
	name := c.get("model name", "Model Name", "cpu model", "Processor")
	if name == "" {
		name, _, _ = strings.Cut(c.get("cpu"), ",") // "POWER9, altivec supported"
	}
	if machine := c.get("machine"); name == "" && strings.HasPrefix(c.get("vendor_id"), "IBM/S390") && machine != "" {
		name = "IBM " + machine
	}
	arm := [2]string{strings.ToLower(c.get("CPU implementer")), strings.ToLower(c.get("CPU part"))}
	name = cmp.Or(name, armModels[arm], c.get("uarch")) // the last is RISC-V's: "sifive,u74-mc"
	return strings.Join(strings.Fields(name), " ")
}

// armModels names 64-bit ARM cores, of which the kernel prints only implementer and part numbers.
//
// Source: the technical reference manual of each core, register MIDR_EL1.
var armModels = map[[2]string]string{
	{"0x00", "0x051"}: "QEMU's max", // target/arm/tcg/cpu64.c
	{"0x41", "0xd07"}: "ARM Cortex-A57",
	{"0x41", "0xd08"}: "ARM Cortex-A72",
	{"0x41", "0xd0b"}: "ARM Cortex-A76",
	{"0x41", "0xd0c"}: "ARM Neoverse-N1",
	{"0x41", "0xd40"}: "ARM Neoverse-V1",
	{"0x41", "0xd49"}: "ARM Neoverse-N2",
	{"0x41", "0xd4f"}: "ARM Neoverse-V2",
	{"0x41", "0xd83"}: "ARM Neoverse-V3AE",
	{"0x41", "0xd84"}: "ARM Neoverse-V3",
	{"0x41", "0xd85"}: "ARM Cortex-X925",
	{"0x41", "0xd87"}: "ARM Cortex-A725",
	{"0x41", "0xd8e"}: "ARM Neoverse-N3",
	{"0x43", "0x0af"}: "Cavium ThunderX2",
	{"0x46", "0x001"}: "Fujitsu A64FX",
	{"0x48", "0xd01"}: "HiSilicon TSV110",
	{"0xc0", "0xac3"}: "Ampere-1",
	{"0xc0", "0xac4"}: "Ampere-1a",
}
