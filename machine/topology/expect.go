package topology

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An Expectation is the usual performance of a path. It is not a measurement of this machine.
type Expectation struct {
	GBpsMin float64 `json:"gb_per_s_min"` // large transfers, 10^9 bytes per second
	GBpsMax float64 `json:"gb_per_s_max"`
	UsecMin float64 `json:"us_min"` // small transfers, microseconds
	UsecMax float64 `json:"us_max"`
	// the link of the figures: "Gen4 x16", or "scaled from Gen4 x16" if figures for that link were scaled
	Basis string `json:"basis"`
	// Link is the narrowest link of the path: "Gen3 x4".
	Link string `json:"link,omitempty"`
	// Limit is the bridge with the path's narrowest link, or nil if a device's own link is the narrowest.
	Limit *PCIAddr `json:"limit,omitempty"`
	// Detour is set if data goes up through the switch that joins both devices, and down again.
	Detour bool `json:"detour,omitempty"`
}

// A Rate is the speed and width of a PCI Express link.
type Rate struct {
	GTs   float64
	Lanes int
}

// GBps returns the link's capacity in one direction, see [LinkGBps].
func (r Rate) GBps() float64 { return LinkGBps(r.GTs, r.Lanes) }

// String returns the usual name of the rate: "Gen4 x16".
func (r Rate) String() string { return fmt.Sprintf("Gen%d x%d", Generation(r.GTs), r.Lanes) }

// expected holds published ranges per class for PCIe 4 and 5 with 16 lanes.
//
// Source: the published guide to GPU-NIC paths on an 8-GPU H20 machine that docs/checks.md starts from: PIX 26-30 /
// 48-58 GB/s and 1-2 us, PXB 24-28 / 45-55 and 1.5-2.5, PHB 22-27 / 40-52 and 2-3, NODE 18-25 / 35-48 and 4-6, SYS
// 12-22 / 25-40 and 8-15.
var expected = map[PathClass]struct{ gen4, gen5, us [2]float64 }{
	PathPIX:  {gen4: [2]float64{26, 30}, gen5: [2]float64{48, 58}, us: [2]float64{1, 2}},
	PathPXB:  {gen4: [2]float64{24, 28}, gen5: [2]float64{45, 55}, us: [2]float64{1.5, 2.5}},
	PathPHB:  {gen4: [2]float64{22, 27}, gen5: [2]float64{40, 52}, us: [2]float64{2, 3}},
	PathNODE: {gen4: [2]float64{18, 25}, gen5: [2]float64{35, 48}, us: [2]float64{4, 6}},
	PathSYS:  {gen4: [2]float64{12, 22}, gen5: [2]float64{25, 40}, us: [2]float64{8, 15}},
}

// Generation returns the PCI Express generation of a speed in GT/s: 2.5 is 1, 5 is 2, 8 is 3, ..., 64 is 6. Other
// speeds give 0.
func Generation(gts float64) int {
	return 1 + slices.Index([]float64{2.5, 5, 8, 16, 32, 64}, gts)
}

// LinkGBps returns the capacity of a link in one direction after line coding, in 10^9 bytes per second: 8b/10b up to
// 5 GT/s, 128b/130b above (64 GT/s uses flits, for which the same factor is close enough). It returns 0 for an
// invalid speed and for a width below 1.
func LinkGBps(gts float64, width int) float64 {
	switch g := Generation(gts); {
	case g == 0 || width < 1:
		return 0
	case g <= 2:
		return gts * float64(width) / 8 * 8 / 10
	default:
		return gts * float64(width) / 8 * 128 / 130
	}
}

// Speed returns a speed of PCI Express in GT/s, or 0 if it is unknown or invalid.
func Speed(gts *float64) float64 {
	if gts == nil || Generation(*gts) == 0 {
		return 0
	}
	return *gts
}

// Lanes returns a number of lanes, or 0 if it is unknown or invalid: the kernel shows 0, 63 or 255 for links that are
// down or absent.
func Lanes(n *int) int {
	if n == nil || !slices.Contains([]int{1, 2, 4, 8, 12, 16, 32}, *n) {
		return 0
	}
	return *n
}

// Trained returns the rate of d's link under load; ok is false if it is unknown. It uses the current width, because
// links do not drop lanes to save power. An idle GPU does lower its speed, so the result for its link is the highest
// speed of both ends.
func (t *Tree) Trained(d *PCIDevice) (r Rate, ok bool) {
	if d == nil || d.Link == nil {
		return Rate{}, false
	}
	gts, lanes := d.Link.Best()
	now := cmp.Or(d.Link.SpeedGTs, gts)
	if gts != nil && *gts != *now && t.mayIdle(d) {
		now = gts
	}
	if d.Link.Port != nil {
		now = lesser(now, d.Link.Port.MaxSpeedGTs)
	}
	r = Rate{Speed(now), Lanes(cmp.Or(d.Link.Width, lanes))}
	return r, r.GBps() > 0
}

// mayIdle reports whether the link of d serves a single device that lowers its speed when idle.
func (t *Tree) mayIdle(d *PCIDevice) bool {
	if d.IsBridge() {
		d = t.OnlyDevice(d.Address)
	}
	return d != nil && (d.IsGPU() || d.PowerState == "D3hot")
}

// Expect returns the usual performance of a path over its narrowest link, of the two devices and all bridges between
// them. ok is false for classes without figures, unknown links of the devices, GPUs with NVLink C2C, whose data does
// not use PCI Express, and paths limited by a virtual machine's bridges, whose links are artificial.
func (t *Tree) Expect(p Path) (e Expectation, ok bool) {
	addrA, errA := ParsePCIAddr(p.A)
	addrB, errB := ParsePCIAddr(p.B)
	a, b := t.byAddr[addrA], t.byAddr[addrB]
	if errA != nil || errB != nil || a == nil || b == nil || t.isCoherent(a) || t.isCoherent(b) {
		return Expectation{}, false
	}
	crossed, above := t.crossed(a, b)
	class := p.Class
	redirects := func() bool { return len(redirecting(a, b, crossed, above)) > 0 }
	if (class == PathPIX || class == PathPXB) && (t.noPeers(a) || t.noPeers(b) || redirects()) {
		class, e.Detour = PathPHB, len(above) > 0
	}
	var narrowest Rate
	consider := func(d *PCIDevice, times int) bool {
		r, ok := t.Trained(d)
		r.Lanes = max(1, r.Lanes/times)
		if ok && (narrowest == Rate{} || r.GBps() < narrowest.GBps()) {
			narrowest, e.Limit = r, &d.Address
		}
		return ok
	}
	if !consider(a, 1) || !consider(b, 1) {
		return Expectation{}, false
	}
	e.Limit = nil
	for _, d := range crossed {
		consider(d, 1)
	}
	for _, d := range above {
		if e.Detour {
			consider(d, 2)
		}
	}
	if e.Limit != nil && t.host.IsVirtual() {
		return Expectation{}, false
	}
	figures, ok := Expect(class, narrowest.GTs, narrowest.Lanes)
	figures.Link, figures.Limit, figures.Detour = narrowest.String(), e.Limit, e.Detour
	return figures, ok
}

// Expect returns the usual performance of a path of class c over a link, the slower of the two devices' links.
// Published figures are for 16 lanes of PCIe 4 and 5, and others are scaled, which Basis says; ok is false for
// classes without figures and for unknown links.
func Expect(c PathClass, gts float64, width int) (e Expectation, ok bool) {
	row, ok := expected[c]
	if !ok || LinkGBps(gts, width) == 0 {
		return Expectation{}, false
	}
	e.UsecMin, e.UsecMax = row.us[0], row.us[1]
	switch {
	case gts == 16 && width == 16:
		e.GBpsMin, e.GBpsMax, e.Basis = row.gen4[0], row.gen4[1], "Gen4 x16"
	case gts == 32 && width == 16:
		e.GBpsMin, e.GBpsMax, e.Basis = row.gen5[0], row.gen5[1], "Gen5 x16"
	default:
		f := LinkGBps(gts, width) / LinkGBps(16, 16)
		e.GBpsMin, e.GBpsMax = scaled(row.gen4[0], f), scaled(row.gen4[1], f)
		e.Basis = "scaled from Gen4 x16"
	}
	return e, true
}

// scaled rounds down to a tenth, or below 1 to a hundredth, so that an expectation is never too high.
func scaled(v, f float64) float64 {
	if v *= f; v < 1 {
		return math.Floor(v*100) / 100
	}
	return math.Floor(v*10) / 10
}
