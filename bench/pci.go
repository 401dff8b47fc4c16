package bench

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rackless/rackless/machine/topology"
)

// A PCILink is the PCIe link of a device.
type PCILink struct {
	Address string
	// Below is the device if the link is that of a narrower bridge above it, or "".
	Below string
	topology.Link
}

// PCIe packets that write to memory: framing and sequence number 4, header with an address of 64 bits 16, check
// sequence 4 (PCI Express Base Specification 3.0, 2.2 and 4.2.2.2; 1 + 2 + 16 + 4 + 1 before PCIe 3). The largest
// payload is 256 on most machines.
const (
	tlpBytes    = 24
	PCIePayload = 256
)

// PCIeLimit returns the payload in Gb/s of one direction, less line code (8b/10b up to 5 GT/s, 128b/130b from 8 GT/s)
// and the headers of packets of 256 bytes. It is 0 if speed or width does not exist in PCIe.
func PCIeLimit(gts float64, width int) float64 {
	return 8 * topology.LinkGBps(gts, width) * PCIePayload / (PCIePayload + tlpBytes)
}

// Limit is the rate of the trained link in Gb/s; 0 if the kernel does not tell, as for virtual functions.
func (l PCILink) Limit() float64 {
	if l.SpeedGTs == nil || l.Width == nil {
		return 0
	}
	return PCIeLimit(*l.SpeedGTs, *l.Width)
}

// String returns the link as in "8 GT/s x4 (Gen 3)".
func (l PCILink) String() string { return Lanes(*l.SpeedGTs, *l.Width) }

func Lanes(gts float64, width int) string {
	return fmt.Sprintf("%g GT/s x%d (Gen %d)", gts, width, topology.Generation(gts))
}

// Trained reports whether the link is below the device's best, and returns that.
func (l PCILink) Trained() (best string, down bool) {
	speed := max(*l.SpeedGTs, *cmp.Or(l.MaxSpeedGTs, l.SpeedGTs))
	width := max(*l.Width, *cmp.Or(l.MaxWidth, l.Width))
	return Lanes(speed, width), speed > *l.SpeedGTs || width > *l.Width
}

// A GPULink is the PCIe link of a GPU, with the GPU's NUMA node.
type GPULink struct {
	PCILink
	NUMANode *int // -1: the firmware does not say
}

// Capacity returns the current rate of the link, in GB/s, headers counted.
func (l PCILink) Capacity() float64 { return l.Limit() / 8 }

// Best is the link at the best of the card.
func (l PCILink) Best() PCILink {
	speed, width := max(*l.SpeedGTs, *l.MaxSpeedGTs), max(*l.Width, *l.MaxWidth)
	l.SpeedGTs, l.Width = &speed, &width
	return l
}

// LineRate is the rate in GB/s after the line code, without headers: no figure up to here is impossible.
func (l PCILink) LineRate() float64 { return topology.LinkGBps(*l.SpeedGTs, *l.Width) }

// SlowestLink compares links as they are or at their best, by as.
func SlowestLink(all []GPULink, as func(GPULink) float64) GPULink {
	return slices.MinFunc(all, func(a, b GPULink) int { return cmp.Compare(as(a), as(b)) })
}
