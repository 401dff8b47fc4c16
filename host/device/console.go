package device

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rackless/rackless/machine/topology"
)

func (f function) console() ([]string, error) {
	r := reader{s: f.s}
	driver, boot := r.link(f.path("driver")), r.value(f.path("boot_vga"))
	memory, active := r.value("/proc/iomem"), r.value("/sys/class/tty/console/active")
	var found []string
	// The host has already given up a screen that is bound to vfio-pci.
	if boot == "1" && driver != vfioPCI {
		found = append(found, "the firmware shows its messages on it (boot_vga)")
	}
	// Text consoles are on the first frame buffer (Documentation/fb/fbcon.rst); every other card with a driver for
	// screens has one, too.
	if a, ok := f.functionOf("/sys/class/graphics/fb0/device"); ok && a == f.a {
		found = append(found, "frame buffer fb0, with the text consoles, is on it")
	}
	if owner := bootBuffer(memory, f.a); owner != "" {
		found = append(found, "the frame buffer that the firmware left ("+owner+") is in its memory")
	}
	for _, tty := range strings.Fields(active) {
		if a, ok := f.functionOf("/sys/class/tty/" + tty + "/device"); ok && a == f.a {
			found = append(found, fmt.Sprintf("console %s is on it", tty))
		}
	}
	return found, r.err
}

func (f function) functionOf(link string) (topology.PCIAddr, bool) {
	dir, err := filepath.EvalSymlinks(f.s.Path(link))
	if err != nil {
		return topology.PCIAddr{}, false
	}
	return lastFunction(dir)
}

// bootBuffer returns the frame buffer that the firmware set up inside a function's memory. In /proc/iomem lines are
// indented by two spaces per level; the range of a function is named by its address.
func bootBuffer(iomem string, a topology.PCIAddr) string {
	bootNames := []string{"BOOTFB", "efifb", "simplefb", "vesafb"}
	inside := -1
	for line := range strings.Lines(iomem) {
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		_, name, _ := strings.Cut(strings.TrimSpace(text), " : ")
		switch {
		case name == a.String() && (inside < 0 || indent <= inside):
			inside = indent
		case inside >= 0 && indent <= inside:
			inside = -1
		case inside >= 0 && slices.Contains(bootNames, name):
			return name
		}
	}
	return ""
}
