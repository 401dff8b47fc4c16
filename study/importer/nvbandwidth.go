package importer

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/rackless/rackless/bench"
)

// nvFormat is of nvbandwidth.
var nvFormat = logFormat{name: NVBandwidth, head: nvHead, json: nvJSON, read: several(NVBandwidth,
	bench.ParseNVBandwidths, nvGPUs), start: regexp.MustCompile(`(?m)^nvbandwidth Version: |^\{\s*"nvbandwidth"`)}

var (
	nvHead = regexp.MustCompile(
		`(?m)^nvbandwidth Version: |^Running \w+(?:memcpy|copy|latency)\w*\.\s*$|^\{\s*"nvbandwidth"`)
	nvJSON = regexp.MustCompile(`^\{\s*"nvbandwidth"\s*:`)
	// nvDevice matches a GPU in the list of nvbandwidth: "Device 0: NVIDIA H100 80GB HBM3 (00000000:19:00)".
	nvDevice = regexp.MustCompile(
		`(?m)^Device (\d{1,3}): (.*) \(0000([0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})\)\s*$`)
)

// nvGPUs says which GPUs nvbandwidth had.
func nvGPUs(log []byte) (at Where) {
	for _, m := range nvDevice.FindAllSubmatch(log, maxRanks) {
		device, _ := strconv.Atoi(string(m[1])) // digits, and few of them
		at.Ranks = append(at.Ranks, Rank{device, strings.ToLower(string(m[3])), string(m[2])})
	}
	return at
}
