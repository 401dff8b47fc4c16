package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// stressFormat is of stress-ng.
var stressFormat = logFormat{name: StressNG,
	head:  regexp.MustCompile(`(?m)^stress-ng: (?:info|metrc): +\[\d+\] `),
	start: regexp.MustCompile(`(?m)^stress-ng: info: +\[\d+\] dispatching hogs:`),
	read:  several(StressNG, bench.ParseStressNG, nil)}
