package host

import (
	"testing"

	"github.com/rackless/rackless/host/change"
)

// An op that is no Merger would overwrite changes made since by others.
func TestEveryOpTellsItsOwnWorkFromThatOfOthers(t *testing.T) {
	t.Parallel()
	for kind, empty := range Kinds() {
		if _, ok := empty().(change.Merger); !ok {
			t.Errorf("ops of kind %s are no change.Merger", kind)
		}
	}
}
