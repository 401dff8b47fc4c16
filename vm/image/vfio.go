package image

import "fmt"

// The set vfio has the kernel of the release's backports, whose vfio-pci exports the memory of devices as dma-bufs. It
// takes emulated GPUs of the personality vfio when the node boots.

// vfioRelease is the only release whose backports have such a kernel.
const vfioRelease = "debian-13"

// vfioBackported are the source packages of the kernel: its files, the signed image and the scripts that install them.
var vfioBackported = []string{"linux", "linux-signed-amd64", "linux-base"}

// exportsDMABufs returns an error for a kernel that is older than VFIO_DEVICE_FEATURE_DMA_BUF, of Linux 6.19.
func exportsDMABufs(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel %s: not a version: %w", version, err)
	}
	if major < 6 || major == 6 && minor < 19 {
		return fmt.Errorf("the backports of %s have kernel %s, and vfio-pci exports memory from 6.19 on: does this "+
			"machine's mirror have the suite of backports?", vfioRelease, version)
	}
	return nil
}
