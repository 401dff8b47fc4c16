package emulated

import (
	"slices"
	"testing"

	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/vm/image"
)

func TestImagesOfLabFilesCanBeBuilt(t *testing.T) {
	var named []string
	for _, release := range lab.FullReleases() {
		all := lab.PackageSetsOf(release)
		for sets := range 1 << len(all) {
			name := release
			for i, set := range all {
				if sets>>i&1 == 1 {
					name += "+" + set
				}
			}
			if _, err := lab.Parse("f", []byte("name: x\nnodes: {vm: {image: "+name+"}}\n")); err != nil {
				t.Error(err)
			}
			named = append(named, name)
		}
	}
	if slices.Sort(named); !slices.Equal(named, image.FullNames()) {
		t.Errorf("lab files name %q, and %q can be built", named, image.FullNames())
	}
}
