package topology

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An Expectation is what a path usually gives. It is not a measurement of this machine.
type Expectation struct {
	GBpsMin float64 `json:"gb_per_s_min"` // large transfers, 10^9 bytes per second
	GBpsMax float64 `json:"gb_per_s_max"`
	UsecMin float64 `json:"us_min"` // small transfers, microseconds
	UsecMax float64 `json:"us_max"`
	// the link that it is for: "Gen4 x16"; "scaled from Gen4 x16" where the published figure is for another
	Basis string `json:"basis"`
	// Link is the narrowest link of the path: "Gen3 x4".
	Link string `json:"link,omitempty"`
	// Limit is the bridge whose link is the narrowest of the path, where that is none of the two devices.
	Limit *PCIAddr `json:"limit,omitempty"`
	// Detour is set where data goes up through the switch that joins both devices, and down again.
	Detour bool `json:"detour,omitempty"`
}

// A Rate is what a PCI Express link runs at.
type Rate struct {
	GTs   float64
	Lanes int
}

// GBps is what the link carries one way, see [LinkGBps].
func (r Rate) GBps() float64 { return LinkGBps(r.GTs, r.Lanes) }

// String is the rate as people say it: "Gen4 x16".
func (r Rate) String() string { return fmt.Sprintf("Gen%d x%d", Generation(r.GTs), r.Lanes) }

// expected holds published ranges per class for PCIe 4 and 5 with 16 lanes.
//
// Source: the published guide to GPU-NIC paths on an 8-GPU H20 machine from which docs/checks.md
// starts: PIX 26-30 / 48-58 GB/s and 1-2 us, PXB 24-28 / 45-55 and 1.5-2.5, PHB 22-27 / 40-52 and
// 2-3, NODE 18-25 / 35-48 and 4-6, SYS 12-22 / 25-40 and 8-15.
var expected = map[PathClass]struct{ gen4, gen5, us [2]float64 }{
	PathPIX:  {gen4: [2]float64{26, 30}, gen5: [2]float64{48, 58}, us: [2]float64{1, 2}},
	PathPXB:  {gen4: [2]float64{24, 28}, gen5: [2]float64{45, 55}, us: [2]float64{1.5, 2.5}},
	PathPHB:  {gen4: [2]float64{22, 27}, gen5: [2]float64{40, 52}, us: [2]float64{2, 3}},
	PathNODE: {gen4: [2]float64{18, 25}, gen5: [2]float64{35, 48}, us: [2]float64{4, 6}},
	PathSYS:  {gen4: [2]float64{12, 22}, gen5: [2]float64{25, 40}, us: [2]float64{8, 15}},
}

// Generation returns the PCI Express generation of a speed in GT/s: 2.5 is 1, 5 is 2, 8 is 3, ...,
// 64 is 6. It is 0 for any other speed.
func Generation(gts float64) int {
	return 1 + slices.Index([]float64{2.5, 5, 8, 16, 32, 64}, gts)
}

// LinkGBps returns what a link can carry one way after line coding, in 10^9 bytes per second:
// 8b/10b up to 5 GT/s, 128b/130b above (64 GT/s uses flits; the same factor is close enough here).
// It is 0 for a speed that is no PCIe speed and for a width below 1.
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

// Speed returns a speed of PCI Express in GT/s, 0 for what is none.
func Speed(gts *float64) float64 {
	if gts == nil || Generation(*gts) == 0 {
		return 0
	}
	return *gts
}

// Lanes returns a number of lanes, 0 for what is none: the kernel shows 0, 63 or 255 for links that
// are down or no links.
func Lanes(n *int) int {
	if n == nil || !slices.Contains([]int{1, 2, 4, 8, 12, 16, 32}, *n) {
		return 0
	}
	return *n
}

// Trained returns the rate at which the link of d runs under load; ok is false where it is not
// known. The width is the present one, because lanes are not given up to save power. The speed of
// an idle GPU is: of a link that serves one, it is the most that both ends can.
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

// mayIdle reports whether the link of d serves one device alone that slows it down while it is idle.
func (t *Tree) mayIdle(d *PCIDevice) bool {
	if d.IsBridge() {
		d = t.OnlyDevice(d.Address)
	}
	return d != nil && (d.IsGPU() || d.PowerState == "D3hot")
}

// Expect returns what a path usually gives over its narrowest link: those of the two devices and of
// all bridges that it crosses. ok is false where nothing can be said: classes without figures,
// links of the two that are not known, GPUs whose data does not take PCI Express (C2C), and the
// bridges of a virtual machine, whose links are made up.
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

// Expect returns what a path of class c usually gives over the given link, which is the slower of
// the two devices' links. Published figures are for 16 lanes of PCIe 4 and 5; for another link
// bandwidth is scaled, and the basis says so. ok is false for classes without figures and for
// unknown links.
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

// scaled rounds down to a tenth, and below 1 to a hundredth: an expectation is not made better than it is.
func scaled(v, f float64) float64 {
	if v *= f; v < 1 {
		return math.Floor(v*100) / 100
	}
	return math.Floor(v*10) / 10
}
