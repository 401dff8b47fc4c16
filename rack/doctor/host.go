package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm/image"
)

// A Part holds the checks for one use of the machine.
type Part struct {
	Ready  bool              `json:"ready"` // nothing is missing
	Checks []finding.Finding `json:"checks"`
}

func part(items []finding.Finding) Part {
	return Part{Ready: finding.Count(items, finding.Missing) == 0, Checks: items}
}

func (d *doctor) emulated(ctx context.Context) Part {
	e := &doctor{dirs: d.dirs, root: d.root, system: d.system, look: d.look}
	have := e.checkHostImage(ctx)
	e.add("host-image", "host image", have)
	e.add("host-tools", "tools", e.checkHostTools(have.Status == finding.OK))
	e.add("host-memory", "memory", checkHostMemory())
	return part(e.items)
}

func (d *doctor) checkHostImage(ctx context.Context) finding.Finding {
	images, _, err := image.Host.List(ctx, d.dirs.Images())
	switch {
	case err != nil:
		return lack(err.Error(), "make the cache readable, or set RACKLESS_CACHE")
	case len(images) == 0:
		return warn("none is built", "rackless emulate builds it, which takes some minutes")
	}
	return ok("%s, whole: Debian %s", images[0].Key, images[0].Recipe.Release)
}

func (d *doctor) checkHostTools(built bool) finding.Finding {
	missing := image.MissingTools(d.look)
	if _, err := d.look("mke2fs"); err != nil {
		if _, err := fs.Stat(d.root, "usr/sbin/mke2fs"); err != nil { // not in every user's PATH
			missing = append(missing, "e2fsprogs")
		}
	}
	if len(missing) == 0 {
		return ok("mmdebstrap, qemu-img, mke2fs")
	}
	f := lack("packages are missing: "+strings.Join(missing, ", "), d.system.Install(missing...))
	if !d.system.Debian() {
		f = lack("its image is built of the packages of Debian itself, and this is "+d.system.Name,
			"use Debian 12 or newer, in a virtual machine or a container")
	}
	if built {
		f.Status = finding.Warn
	}
	return f
}

// leastHost is for the smallest profile, with QEMU, in bytes.
const leastHost = 4 << 30

func checkHostMemory() finding.Finding {
	room, err := rack.ReadRoom()
	if err != nil {
		return warn(err.Error(), "rackless emulate says whether a host fits")
	}
	if room.Available < leastHost {
		return warn(words.Bytes(int64(room.Available))+" available, and the profiles take 4 GiB",
			"say rackless emulate --memory with less, or end labs")
	}
	return ok("%s available", words.Bytes(int64(room.Available)))
}

func (d *doctor) realHost() Part {
	h := &doctor{root: d.root, system: d.system, look: d.look}
	h.add("root", "root", checkRoot(os.Getuid()))
	h.add("systemd", "systemd", h.checkPath("systemd runs here", "run/systemd/system",
		"prepare goes on after a reboot by a unit of systemd, and isolates the host by its slices"))
	h.add("iommu", "IOMMU", h.checkIOMMU())
	h.add("vfio", "VFIO", h.checkVFIO())
	h.add("libvirt", "libvirt", h.checkLibvirt())
	turnOn := "turn hardware virtualisation on in the firmware"
	if d.inVM() {
		turnOn = "turn nested virtualisation on at the host of this virtual machine"
	}
	h.add("kvm-device", "/dev/kvm", h.checkPath("it is there", "dev/kvm", turnOn+": nodes on a host are not emulated"))
	h.add("devices", "devices", h.checkDevices())
	return part(h.items)
}

func checkRoot(uid int) finding.Finding {
	if uid != 0 {
		return warn(fmt.Sprintf("this is user %d", uid), "run prepare, up and rollback with sudo")
	}
	return ok("this is root")
}

func (d *doctor) checkPath(have, path, fix string) finding.Finding {
	if _, err := fs.Stat(d.root, path); err != nil {
		return lack("no /"+path, fix)
	}
	return ok("%s", have)
}

// inVM asks the CPU flag of hypervisors. A virtual machine has no firmware settings.
func (d *doctor) inVM() bool {
	b, err := fs.ReadFile(d.root, "proc/cpuinfo")
	return err == nil && slices.Contains(strings.Fields(string(b)), "hypervisor")
}

func (d *doctor) checkIOMMU() finding.Finding {
	groups, err := fs.ReadDir(d.root, "sys/kernel/iommu_groups")
	if err != nil || len(groups) == 0 {
		fix := "turn VT-d or AMD-Vi on in the firmware; prepare adds the kernel arguments"
		if d.inVM() {
			fix = "this is a virtual machine: its hypervisor has to give it an IOMMU, which clouds do not; use the " +
				"host itself"
		}
		return warn("/sys/kernel/iommu_groups is empty", fix)
	}
	return ok("%s", words.Count(len(groups), "group"))
}

func (d *doctor) checkVFIO() finding.Finding {
	for _, dir := range []string{"sys/module/vfio_pci", "sys/bus/pci/drivers/vfio-pci"} {
		if _, err := fs.Stat(d.root, dir); err == nil {
			return ok("vfio-pci is loaded")
		}
	}
	all, err := fs.Glob(d.root, "lib/modules/*/kernel/drivers/vfio/pci/vfio-pci.ko*")
	if err == nil && len(all) == 0 {
		all, err = fs.Glob(d.root, "usr/lib/modules/*/kernel/drivers/vfio/pci/vfio-pci.ko*")
	}
	if err != nil || len(all) == 0 {
		return lack("no module vfio-pci", "use a kernel that has it: devices are handed to nodes by it")
	}
	return ok("there is a module vfio-pci, which prepare loads")
}

func (d *doctor) checkLibvirt() finding.Finding {
	for _, socket := range []string{"run/libvirt/virtqemud-sock", "run/libvirt/libvirt-sock"} {
		if _, err := fs.Stat(d.root, socket); err == nil {
			return ok("/%s", socket)
		}
	}
	return lack("no socket of libvirt below /run/libvirt", d.install("libvirt-daemon-system", "libvirt")+
		", and start it")
}

// checkDevices counts by the class of PCI functions (PCI Code and ID Assignment).
func (d *doctor) checkDevices() finding.Finding {
	gpus := 0
	all, _ := fs.Glob(d.root, "sys/bus/pci/devices/*/class") // the pattern is valid
	for _, path := range all {
		class, err := fs.ReadFile(d.root, path)
		if c := string(class); err == nil && (strings.HasPrefix(c, "0x0302") || strings.HasPrefix(c, "0x0300") ||
			strings.HasPrefix(c, "0x1200")) {
			gpus++
		}
	}
	cards, _ := fs.Glob(d.root, "sys/class/infiniband/*/device/vendor") // soft RoCE has no device
	evidence := fmt.Sprintf("%s and %s", words.Count(gpus, "GPU"), words.Count(len(cards), "RDMA device"))
	if gpus == 0 && len(cards) == 0 {
		return warn(evidence, "nodes that ask for none can be placed; rackless emulate has a host with both to "+
			"practise on")
	}
	return ok("%s; rackless inspect shows them", evidence)
}

// Text returns one line for each check, with its fix below. paint colors a text, if set.
func (r Report) Text(paint func(code, s string) string) string {
	var b strings.Builder
	for _, p := range []struct {
		title, missing string
		Part
	}{
		{"labs", "rackless up will not work before that is there", r.Part},
		{"emulated hosts", "rackless emulate will not work before that is there", r.Emulated},
		{"this host as a real host", "no lab gets devices of this host before that is there", r.RealHost},
	} {
		fmt.Fprintf(&b, "%s\n", paint("1", p.title))
		lines(&b, p.Checks, paint)
		missing, warns := finding.Count(p.Checks, finding.Missing), finding.Count(p.Checks, finding.Warn)
		switch {
		case missing > 0:
			fmt.Fprintf(&b, "missing: %s, with %s: %s\n\n", words.Count(missing, "thing"),
				words.Count(warns, "warning"), p.missing)
		case warns > 0:
			fmt.Fprintf(&b, "ready, with %s\n\n", words.Count(warns, "warning"))
		default:
			b.WriteString("ready\n\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func lines(b *strings.Builder, checks []finding.Finding, paint func(code, s string) string) {
	// Colors of ECMA-48.
	color := map[finding.Status]string{finding.OK: "32", finding.Warn: "33", finding.Missing: "31"}
	width := lists.Max(checks, func(c finding.Finding) int { return len(c.Title) })
	statusWidth := max(4, lists.Max(checks, func(c finding.Finding) int { return len(c.Status) }))
	for _, c := range checks {
		fmt.Fprintf(b, "  %s  %-*s  %s\n", paint(color[c.Status], fmt.Sprintf("%-*s", statusWidth, c.Status)), width,
			c.Title, c.Evidence)
		if c.Fix != "" {
			fmt.Fprintf(b, "        fix: %s\n", c.Fix)
		}
	}
}
