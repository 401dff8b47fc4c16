package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/machine/finding"
	"github.com/rackless/rackless/machine/topology"
)

// A checkedLink has its expected and present rate.
type checkedLink struct {
	dev  *topology.PCIDevice // a device, or the upstream port of a switch
	link *topology.Link
	// dev, or the device behind a card's own switch; nil for a switch with several devices
	end *topology.PCIDevice

	speed, width       float64 // maximum of both ends; 0 if the device's is unknown
	hasPortSpeed       bool    // speed includes the port's maximum
	hasPortWidth       bool
	nowSpeed, nowWidth float64 // 0 if unknown
}

// subject returns the card, even for a link of its switch.
func (j *checkedLink) subject() string {
	return cmp.Or(j.end, j.dev).Address.String()
}

// links returns the links to judge, by address. It returns nil for a virtual machine, because an emulator's link rates
// mean nothing.
func (v *view) links() []checkedLink {
	if v.virtual {
		return nil
	}
	var out []checkedLink
	for i := range v.PCI {
		d := &v.PCI[i]
		// All functions of a device share the link. A function in D3cold reads as all ones.
		first := i == 0 || !v.PCI[i-1].Address.SameDevice(d.Address)
		if d.Link == nil || d.PF != nil || d.Dead || d.PowerState == "D3cold" || !first {
			continue
		}
		end := d
		if d.IsBridge() {
			if d.Bridge == nil || d.Bridge.Port != "upstream port" {
				continue
			}
			end = v.tree.OnlyDevice(d.Address)
		} else if !v.matters(d) || v.behindOwnSwitch(d) {
			continue
		}
		j := checkedLink{dev: d, link: d.Link, end: end, nowSpeed: speed(d.Link.SpeedGTs),
			nowWidth: width(d.Link.Width)}
		j.speed, j.width = bestOf(d.Link)
		if p := d.Link.Port; p != nil {
			j.hasPortSpeed = speed(p.MaxSpeedGTs) > 0 && j.speed > 0
			j.hasPortWidth = width(p.MaxWidth) > 0 && j.width > 0
		}
		out = append(out, j)
	}
	return out
}

// matters reports whether a link is worth a finding; a sound card's is not.
func (v *view) matters(d *topology.PCIDevice) bool {
	if d.Class == nil {
		return !v.fromFiles() // a text without a name was about that link
	}
	if b := d.Class.Base(); b == topology.ClassDisplay || b == topology.ClassAccelerator {
		g := v.GPU(d.Address)
		return g == nil || v.computes(g) && !g.IsCoherent() // the PCIe link of a C2C GPU carries almost nothing
	}
	if hasGigabit(d.DeviceName) {
		return false // one lane carries two such ports
	}
	return slices.Contains([]uint16{topology.SubEthernet, topology.SubInfiniBand, topology.SubFabric,
		subNVMe, subRAID, subSAS},
		d.Class.Sub())
}

// hasGigabit accepts "82576 Gigabit", not "82599 10-Gigabit".
func hasGigabit(name string) bool {
	before, _, found := strings.Cut(name, "Gigabit")
	fields := strings.FieldsFunc(before, func(r rune) bool { return r == ' ' || r == '-' })
	if !found || len(fields) == 0 {
		return found
	}
	n, err := strconv.ParseFloat(fields[len(fields)-1], 64)
	return err != nil || n > 1000 // above 1000 it is a model
}

// Source: PCI Code and ID Assignment Specification.
const (
	subRAID = 0x0104
	subSAS  = 0x0107
	subNVMe = 0x0108
)

// behindOwnSwitch reports whether d is a GPU behind a switch on the card. The inner link is not a real one, so the
// switch's upstream port is judged.
func (v *view) behindOwnSwitch(d *topology.PCIDevice) bool {
	up := v.tree.Ancestors(d.Address)
	if !d.IsGPU() || d.Vendor == nil || len(up) < 2 || up[1].Link == nil || up[1].Bridge == nil ||
		up[1].Bridge.Port != "upstream port" {
		return false
	}
	port := up[0]
	return port.Vendor != nil && *port.Vendor == *d.Vendor && v.tree.OnlyDevice(up[1].Address) != nil
}

func speed(gts *float64) float64 { return topology.Speed(gts) }
func width(lanes *int) float64   { return float64(topology.Lanes(lanes)) }

// bestOf returns the maximum of both ends, or 0.
func bestOf(l *topology.Link) (gts, lanes float64) {
	gts, lanes = speed(l.MaxSpeedGTs), width(l.MaxWidth)
	if l.Port != nil {
		gts = min(gts, cmp.Or(speed(l.Port.MaxSpeedGTs), gts))
		lanes = min(lanes, cmp.Or(width(l.Port.MaxWidth), lanes))
	}
	return gts, lanes
}

// speedFact formats "2.5 GT/s" as in sysfs.
func speedFact(name string, gts float64) string {
	return fmt.Sprintf("%s=%s GT/s", name, strconv.FormatFloat(gts, 'f', 1, 64))
}

func widthFact(name string, lanes float64) string { return fmt.Sprintf("%s=%.0f", name, lanes) }

func (j *checkedLink) slow() bool { return j.nowSpeed > 0 && j.nowSpeed < j.speed }

func (j *checkedLink) narrow() bool { return j.nowWidth > 0 && j.nowWidth < j.width }

// managers lower the speed of an idle GPU's link.
var managers = []string{"nvidia", "nouveau", "amdgpu", "radeon", "i915", "xe"}

// excuse returns a harmless reason for a slow link, or "". A link that is also narrow has trained badly.
func (v *view) excuse(j *checkedLink) string {
	e := j.end
	switch {
	case e == nil || j.narrow():
		return ""
	case e.PowerState == "D3hot":
		return "the function sleeps (D3hot)"
	case !e.IsGPU():
		return "" // NICs and drives do not lower it
	case slices.Contains(managers, e.Driver):
		return "the driver " + e.Driver + " lowers the speed while the GPU is idle"
	}
	t := lists.Find(v.holders(e.Address), func(t *topology.Tenant) bool { return t.State == "running" })
	if t == nil {
		return ""
	}
	return "the VM " + t.Name + " runs with it, and its driver manages the link"
}

const noPort = "the port above is not known, so the slot may be the limit"

func (j *checkedLink) speeds() string {
	port := noPort
	if j.hasPortSpeed {
		port = at(pci(j.link.Port.Address), speedFact("max_link_speed", speed(j.link.Port.MaxSpeedGTs)))
	}
	return all(at(pci(j.dev.Address), speedFact("current_link_speed", j.nowSpeed),
		speedFact("max_link_speed", speed(j.link.MaxSpeedGTs))), port)
}

func (j *checkedLink) port() string {
	p := j.link.Port
	if p == nil {
		return "the port above it"
	}
	return "port " + p.Address.String()
}

// driverFact returns "driver=nvidia", "driver=none", or "driver not known".
func driverFact(d *topology.PCIDevice) string {
	if d.Driver == "" && !d.DriverKnown {
		return "driver not known"
	}
	return "driver=" + cmp.Or(d.Driver, "none")
}

// slowLink leaves links with an excuse to sleepyLink.
func slowLink(v *view, j checkedLink, add func(finding.Finding)) {
	// A narrow link has its own finding.
	if !j.slow() || v.excuse(&j) != "" {
		return
	}
	f := finding.Finding{Subject: j.subject(),
		Evidence:    j.speeds(),
		Consequence: carries(j.nowSpeed, j.nowWidth, j.speed, j.width),
		Fix: fmt.Sprintf("seat the card again or try without a riser, set the slot's speed in the firmware, or train "+
			"the link again at %s with nothing using the card; then read current_link_speed again", j.port())}
	if e := j.end; e != nil && e.IsGPU() {
		f.Evidence = all(f.Evidence, at(pci(e.Address), driverFact(e)))
		switch {
		// Nothing has raised the link above its speed at power on.
		case topology.IsVFIO(e.Driver):
			f.Fix = "nothing on the host manages this link: read the speed again while a VM works with the " +
				"GPU; if it stays low, " + f.Fix
		case e.Driver == "":
			f.Fix = "bind the GPU's driver and read the speed again under load: some cards are raised by it; if " +
				"it stays low, " + f.Fix
		}
	}
	add(v.shared(&j, f))
}

func sleepyLink(v *view, j checkedLink, add func(finding.Finding)) {
	why := v.excuse(&j)
	if !j.slow() || why == "" {
		return
	}
	facts := []string{driverFact(j.end)}
	if j.end.PowerState != "" {
		facts = append(facts, "power_state="+j.end.PowerState)
	}
	add(finding.Finding{Subject: j.subject(),
		Evidence:    all(j.speeds(), at(pci(j.end.Address), facts...)),
		Consequence: "probably none: " + why,
		Fix: "nothing to do yet; read current_link_speed while the device is busy: it should be " +
			strconv.FormatFloat(j.speed, 'f', 1, 64) + " GT/s"})
}

// narrowLink accepts no excuse: the number of lanes does not change to save power.
func narrowLink(v *view, j checkedLink, add func(finding.Finding)) {
	if !j.narrow() {
		return
	}
	port := noPort
	if j.hasPortWidth {
		port = at(pci(j.link.Port.Address), widthFact("max_link_width", width(j.link.Port.MaxWidth)))
	}
	f := finding.Finding{Subject: j.subject(),
		Evidence: all(at(pci(j.dev.Address), widthFact("current_link_width", j.nowWidth),
			widthFact("max_link_width", width(j.link.MaxWidth))), port),
		Consequence: carries(j.nowSpeed, j.nowWidth, j.speed, j.width),
		Fix: fmt.Sprintf("seat the card again, try without a riser, and look for bifurcation or shared lanes of "+
			"the slot at %s in the firmware and the board's manual", j.port())}
	// The function-level reset retrained the link with fewer lanes.
	if j.end != nil && topology.IsVFIO(j.end.Driver) {
		f.Fix = fmt.Sprintf("if it had all lanes before a virtual machine had it, a function-level reset lost them: "+
			"reset it with its bus (echo bus > %s/reset_method) or train the link at %s again, and power off and on "+
			"if that does not help; otherwise ", pci(j.end.Address), j.port()) + f.Fix
	}
	add(v.shared(&j, f))
}

// shared adds the cards below a switch. It is a warning if the link carries less than half of the rate of one.
func (v *view) shared(j *checkedLink, f finding.Finding) finding.Finding {
	if j.end != nil {
		return f
	}
	card, one := v.fastestBelow(j.dev.Address)
	f.Consequence += "; all that is below the switch shares this link"
	if now, _ := v.tree.Trained(j.dev); card != nil {
		f.Consequence += fmt.Sprintf(", and %s alone can take %.1f GB/s", card.Address, one)
		if f.Severity == finding.Info && 2*now.GBps() < one {
			f.Severity = finding.Warning
		}
	}
	return f
}

func (v *view) fastestBelow(bridge topology.PCIAddr) (card *topology.PCIDevice, gbps float64) {
	for d := range v.tree.Below(bridge) {
		if r, ok := v.tree.Trained(d); ok && v.isCard(d.Address) && r.GBps() > gbps {
			card, gbps = d, r.GBps()
		}
	}
	return card, gbps
}

// narrowSwitch finds links that carry less than half of the rate of one card below, if no other rule judges them:
// switches with only one rate in the source, and the artificial links of virtual machines.
func narrowSwitch(v *view, add func(finding.Finding)) {
	told := v.links()
	for i := range v.PCI {
		d := &v.PCI[i]
		namedLimit(v, d, add)
		now, ok := v.tree.Trained(d)
		if d.Bridge == nil || !ok || d.Bridge.Port != "upstream port" && d.Bridge.Port != topology.PortSwitch ||
			v.tree.OnlyDevice(d.Address) != nil || slices.ContainsFunc(told, func(j checkedLink) bool {
			slower, narrower := j.smaller()
			return j.dev == d && (j.slow() || j.narrow() || slower || narrower)
		}) {
			continue
		}
		card, one := v.fastestBelow(d.Address)
		if card == nil || 2*now.GBps() >= one {
			continue
		}
		f := finding.Finding{Subject: d.Address.String(),
			Evidence: all(at(pci(d.Address), speedFact("link_speed", now.GTs), widthFact("link_width",
				float64(now.Lanes))), at(pci(card.Address), fmt.Sprintf("link %.1f GB/s", one))),
			Consequence: fmt.Sprintf("the link of the switch carries %.2f GB/s one way, which all below it share",
				now.GBps()),
			Fix: "put the switch into a slot with more lanes, or the cards below it elsewhere"}
		if v.virtual || isXIO3130(d) {
			f.Consequence += "; it is made up by the virtual machine monitor, but NCCL believes it, and builds its " +
				"rings elsewhere or slow"
			f.Fix = "use PCI Express root ports (pcie-root-port, x-speed=16, x-width=16) on a pcie-expander-bus in " +
				"place of the switch, or give NCCL a topology (NCCL_TOPO_FILE) with the host's links"
		}
		add(f)
	}
}

// namedLimit uses the kernel's log. If the link's rate is known, other rules judge it.
func namedLimit(v *view, d *topology.PCIDevice, add func(finding.Finding)) {
	if d.PathLimit == nil || d.Link == nil || d.Link.MaxSpeedGTs == nil || d.Link.MaxWidth == nil {
		return
	}
	port := d.PathLimit.At
	if _, ok := v.tree.Trained(v.tree.Device(port)); ok {
		return
	}
	now := topology.Rate{GTs: d.PathLimit.SpeedGTs, Lanes: d.PathLimit.Width}
	best := topology.Rate{GTs: *d.Link.MaxSpeedGTs, Lanes: *d.Link.MaxWidth}
	f := finding.Finding{Subject: d.Address.String(), Severity: finding.Info, Evidence: all(at("dmesg", "limited by "+
		now.String()+" link at "+port.String()), at(pci(d.Address), speedFact("max_link_speed", best.GTs),
		widthFact("max_link_width", float64(best.Lanes)))), Consequence: fmt.Sprintf("%s takes %.1f GB/s one way, "+
		"and the link at %s carries %.1f", d.Address, best.GBps(), port, now.GBps()),
		Fix: fmt.Sprintf("look at the link at %s: lspci -vvs %s shows what it can do and does; a slot with more "+
			"lanes, a reseated card or cable, or the slot's setting in the firmware", port, port)}
	if 2*now.GBps() < best.GBps() {
		f.Severity = finding.Warning
	}
	add(f)
}

// isXIO3130 finds the switch that QEMU emulates (x3130-upstream), with one lane of 2.5 GT/s.
func isXIO3130(d *topology.PCIDevice) bool {
	const texas, upstream topology.ID16 = 0x104c, 0x8232
	return d.Vendor != nil && *d.Vendor == texas && d.Device != nil && *d.Device == upstream
}

// smaller compares the port above with the device.
func (j *checkedLink) smaller() (slower, narrower bool) {
	return j.hasPortSpeed && j.speed < speed(j.link.MaxSpeedGTs), j.hasPortWidth && j.width < width(j.link.MaxWidth)
}

// slotLimited compares maxima, not the present rate.
func slotLimited(v *view, j checkedLink, add func(finding.Finding)) {
	devSpeed, devWidth := speed(j.link.MaxSpeedGTs), width(j.link.MaxWidth)
	slower, narrower := j.smaller()
	if !slower && !narrower {
		return
	}
	most := func(a topology.PCIAddr, speed, width float64) string {
		var facts []string
		if slower {
			facts = append(facts, speedFact("max_link_speed", speed))
		}
		if narrower {
			facts = append(facts, widthFact("max_link_width", width))
		}
		return at(pci(a), facts...)
	}
	f := finding.Finding{Severity: finding.Info, Subject: j.subject(),
		Evidence:    all(most(j.dev.Address, devSpeed, devWidth), most(j.link.Port.Address, j.speed, j.width)),
		Consequence: carries(j.speed, j.width, devSpeed, devWidth),
		Fix:         "nothing is broken; for more, move the card to a slot with more lanes or of a newer generation"}
	carried := topology.LinkGBps(j.speed, int(j.width))
	if e := j.end; e != nil {
		// From Mb/s to GB/s.
		needs := v.portRates(e.Address) / 8000
		switch {
		case needs > 0 && carried > 0 && carried < needs:
			f.Severity = finding.Warning
			f.Consequence += fmt.Sprintf("; the ports of the NIC need %.1f GB/s", needs)
		// One generation less or half of the lanes is common, and enough for most jobs of a GPU.
		case e.IsGPU() && carried > 0 && 2*carried < topology.LinkGBps(devSpeed, int(devWidth)):
			f.Severity = finding.Warning
		}
	}
	add(v.shared(&j, f))
}

// portsExceedLink finds cards whose ports together exceed the best link of card and slot. Each port alone may reach its
// rate.
func portsExceedLink(v *view, j checkedLink, add func(finding.Finding)) {
	slower, narrower := j.smaller()
	carried := topology.LinkGBps(j.speed, int(j.width))
	if j.end == nil || j.slow() || j.narrow() || slower || narrower || carried == 0 {
		return // another rule
	}
	ports, sum := v.portsOf(j.end.Address)
	if len(ports) < 2 || sum <= carried*8000 {
		return
	}
	add(finding.Finding{Subject: j.end.Address.String(),
		Evidence: all(at(pci(j.dev.Address), speedFact("link_speed", j.speed), widthFact("link_width", j.width)),
			words.Few(ports, 4, "; ")),
		Consequence: fmt.Sprintf("%d ports of %.0f Gb/s in all share a link that carries %.0f Gb/s one way: together "+
			"they do not reach their rates", len(ports), sum/1000, carried*8)})
}

// portsOf returns ports with known rates, and their sum in Mb/s.
func (v *view) portsOf(a topology.PCIAddr) (ports []string, sum float64) {
	take := func(place string, mbps float64) {
		ports = append(ports, at(place, fmt.Sprintf("rate=%g Gb/s", mbps/1000)))
		sum += mbps
	}
	for i := range v.NICs {
		n := &v.NICs[i]
		if n.Address == nil || n.PF != nil || !n.Address.SameDevice(a) {
			continue
		}
		before := len(ports)
		for _, d := range n.Devices {
			for _, p := range d.Ports {
				if p.RateGbps != nil && (p.State == "ACTIVE" || p.State == "") {
					take(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d", d.Name, p.Number), *p.RateGbps*1000)
				}
			}
		}
		if len(ports) == before && n.SpeedMbps != nil && *n.SpeedMbps > 0 {
			take(device(n.Address, n.Name), float64(*n.SpeedMbps))
		}
	}
	return ports, sum
}

// portRates returns Mb/s of all ports, or 0.
func (v *view) portRates(a topology.PCIAddr) float64 {
	var sum float64
	for i := range v.NICs {
		n := &v.NICs[i]
		if n.Address != nil && n.PF == nil && n.Address.SameDevice(a) && n.SpeedMbps != nil {
			sum += float64(max(*n.SpeedMbps, 0))
		}
	}
	return sum
}

// carries compares rates after line coding and before PCIe's headers.
func carries(speed, width, wantSpeed, wantWidth float64) string {
	now, want := topology.LinkGBps(speed, int(width)), topology.LinkGBps(wantSpeed, int(wantWidth))
	if now == 0 || want == 0 {
		return "the link carries less than it could"
	}
	return fmt.Sprintf("the link carries at most %.1f GB/s one way instead of %.1f", now, want)
}
