package lab

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/strictyaml"
)

// A GPUPersonality decides as which device an emulated GPU appears in its node, and which driver takes it.
type GPUPersonality string

// Values of GPUPersonality.
const (
	// PersonalityVirtio is a virtio GPU, whose driver shares its memory among programs.
	PersonalityVirtio GPUPersonality = "virtio"
	// PersonalityVFIO is a 3D controller with the ids of its model, which vfio-pci gives to one program. The node has
	// an IOMMU, and the kernel's own rules for DMA between devices hold.
	PersonalityVFIO GPUPersonality = "vfio"
)

func gpuPersonalities() []GPUPersonality { return []GPUPersonality{PersonalityVirtio, PersonalityVFIO} }

// HasVFIO reports whether one of the node's GPUs has the personality vfio.
func (n Node) HasVFIO() bool {
	return slices.ContainsFunc(n.GPURequests, func(r DeviceRequest) bool { return r.Personality == PersonalityVFIO })
}

// PersonalityOf returns the personality of one of the node's GPUs, counted from 0.
func (n Node) PersonalityOf(gpu int) GPUPersonality {
	for _, r := range n.GPURequests {
		if gpu -= r.Count; gpu < 0 && r.Personality != "" {
			return r.Personality
		} else if gpu < 0 {
			break
		}
	}
	return PersonalityVirtio
}

// checkPersonality finds GPUs for vfio-pci in a node whose image does not have the kernel for them.
func (e *entry) checkPersonality(n Node, gpus fileDevices) {
	if n.Has(setVFIO) {
		return
	}
	for _, r := range gpus {
		if r.Personality != PersonalityVFIO {
			continue
		}
		path, _ := e.written("gpus")
		e.failOnce(r.at, Error{Key: strictyaml.Join(path, "personality"),
			What: "personality vfio needs a kernel whose vfio-pci exports memory, and its kernel arguments",
			Have: "image: " + n.Image,
			Want: fmt.Sprintf("an image with the package set %s, which is for %s", setVFIO, vfioRelease),
			Fix:  "write image: " + withVFIO(n)})
	}
}

// withVFIO returns the name of the node's image with the package set added.
func withVFIO(n Node) string {
	name := vfioRelease
	if _, sets, ok := strings.Cut(n.Image, "+"); ok && n.Full() {
		name += "+" + sets
	}
	return name + "+" + setVFIO
}
