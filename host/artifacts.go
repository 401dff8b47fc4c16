package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/host/device"
	"github.com/rackless/rackless/host/tune"
	"github.com/rackless/rackless/render"
	"github.com/rackless/rackless/topology"
)

// Artifacts returns all artefacts of a plan as [render.All], with the scripts that change a host
// without rackless. The scripts are made of the ops by which rackless prepares a host itself, so
// that the two cannot come to differ. No machine is looked at: the same input gives the same bytes.
func Artifacts(in render.Input) ([]render.Artifact, error) {
	if in.Plan == nil || in.Lab == nil {
		return render.All(in) // which says what is missing
	}
	h := cmp.Or(in.Host, &topology.Host{})
	// Slices are the way without a reboot. The scripts offer it beside the kernel arguments.
	tuning, err := tune.Steps(in.Plan, in.Lab, h, tune.Options{NoReboot: true})
	if err != nil {
		return nil, err
	}
	devices, err := device.Steps(in.Plan, in.Lab, h, device.Options{
		Firmware: true, Made: in.Made,
		Inspect: func(context.Context) (*topology.Host, error) {
			return nil, errors.New("a plan is written without a look at the machine")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("scripts: %w", err)
	}
	in.Changes = map[string][]string{}
	for _, step := range slices.Concat(tuning, devices) {
		op, ok := step.Op.(change.Scripted)
		if !ok {
			continue
		}
		for _, script := range strings.Fields(step.Scripts) {
			in.Changes[script] = append(in.Changes[script], op.Shell()...)
		}
	}
	// What a host is known by, a dump of another tool for one, may not say whether it scales frequencies.
	if governor := (&tune.Governor{}).Shell(); !slices.Contains(in.Changes["governor"], governor[0]) {
		in.Changes["governor"] = append(in.Changes["governor"], governor...)
	}
	return render.All(in)
}
