package topology

import "math"

// An Expectation is what a path usually gives. It is not a measurement of this machine.
type Expectation struct {
	GBpsMin float64 `json:"gb_per_s_min"` // large transfers, 10^9 bytes per second
	GBpsMax float64 `json:"gb_per_s_max"`
	UsecMin float64 `json:"us_min"` // small transfers, microseconds
	UsecMax float64 `json:"us_max"`
	// the link that it is for: "Gen4 x16"; "... scaled" where the published figure is for another
	Basis string `json:"basis"`
}

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
	switch gts {
	case 2.5:
		return 1
	case 5:
		return 2
	case 8:
		return 3
	case 16:
		return 4
	case 32:
		return 5
	case 64:
		return 6
	}
	return 0
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

// scaled rounds down to a tenth: an expectation is not made better than it is.
func scaled(v, f float64) float64 { return math.Floor(v*f*10) / 10 }
