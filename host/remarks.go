package host

import (
	"context"
	"fmt"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/device"
	"github.com/rackless/rackless/host/tune"
)

// Remarks are what people should know before a host is prepared and no step does: settings of NICs'
// firmware that are theirs to make, and services that set what the lab sets.
func Remarks(ctx context.Context, s *change.System, p *Prepared) ([]string, error) {
	var all []string
	if !p.Choices.Firmware {
		for _, command := range device.Firmware(p.Plan, p.Host) {
			all = append(all, "firmware, by hand or with --firmware: "+command)
		}
	}
	running, err := tune.Contenders(ctx, s)
	for _, c := range running {
		all = append(all, fmt.Sprintf("%s runs and sets %s: %s", c.Service, c.Sets, c.Fix))
	}
	return all, err
}
