package image

import (
	"slices"
	"strings"
	"testing"
)

// The set vfio takes the kernel, and nothing else, from the backports, and binds GPUs to vfio-pci at boot.
func TestTheImageForVFIO(t *testing.T) {
	recipe := func(name string) Recipe {
		r, _, err := Full(name).recipe(t.Context(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	plain, r := recipe("debian-13"), recipe("debian-13+vfio")
	if plain.Backported != nil || slices.Contains(plain.Suites, "trixie-backports") || r.Key() == plain.Key() ||
		!slices.Equal(r.Packages, plain.Packages) || r.FilesDigest == plain.FilesDigest {
		t.Errorf("recipes are %+v and %+v", plain, r)
	}
	const want = "Package: src:linux src:linux-signed-amd64 src:linux-base\nPin: release n=trixie-backports\n" +
		"Pin-Priority: 500\n"
	if got := preferences(r); got != want || !slices.Contains(r.Suites, "trixie-backports") {
		t.Errorf("preferences %q of suites %q", got, r.Suites)
	}
	files := map[string]string{}
	err := filesOf([]string{setVFIO})(func(name string, content []byte, _ int64) error {
		files[name] = string(content)
		return nil
	})
	// Any model: 3D controllers with the subsystem vendor of package gpu.
	if err != nil || !strings.Contains(files["etc/modprobe.d/rackless-vfio.conf"],
		"\noptions vfio-pci ids=ffffffff:ffffffff:1af4:ffffffff:030200:ffff00\n") ||
		files["etc/modules-load.d/rackless-vfio.conf"] != "vfio-pci\nvfio_iommu_type1\n" ||
		files["mnt/customize.sh"] == "" {
		t.Errorf("files are %v, %v", files, err)
	}
}

func TestTheKernelForVFIO(t *testing.T) {
	for version, good := range map[string]bool{"7.3.4+deb13-amd64": true, "6.19.1+deb13-amd64": true,
		"10.0-amd64": true, "6.18.9+deb13-amd64": false, "6.12.118+deb13-amd64": false, "5.20.0": false, "": false,
		"7": false} {
		if err := exportsDMABufs(version); (err == nil) != good {
			t.Errorf("kernel %q: error %v", version, err)
		}
	}
	for _, name := range FullNames() {
		if strings.Contains(name, "vfio") && !strings.HasPrefix(name, vfioRelease+"+") {
			t.Errorf("%s can be built, and its release has no such kernel", name)
		}
	}
	if _, err := Named("debian-12+vfio", amd64); err == nil {
		t.Error("debian-12+vfio can be built")
	}
}
