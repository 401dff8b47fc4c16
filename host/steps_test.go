package host

import (
	"testing"
	"time"

	"github.com/rackless/rackless/machine/topology"
)

func TestALookIsFreshForAsLongAsTheMachineIsSlow(t *testing.T) {
	h := &topology.Host{}
	for _, tt := range []struct {
		name      string
		host      *topology.Host
		ago, took time.Duration
		want      bool
	}{
		{"no look", nil, 0, time.Hour, false},
		{"just now", h, 0, time.Second, true},
		{"a minute ago, of a machine that is read at once", h, time.Minute, time.Second, false},
		{"a minute ago, of one that takes half a minute", h, time.Minute, 30 * time.Second, true},
		{"an hour ago", h, time.Hour, 30 * time.Second, false},
	} {
		if got := (Look{tt.host, time.Now().Add(-tt.ago), tt.took}).fresh(); got != tt.want {
			t.Errorf("%s: fresh %v, want %v", tt.name, got, tt.want)
		}
	}
}
