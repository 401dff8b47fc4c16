package importer

import (
	"regexp"

	"github.com/rackless/rackless/bench"
)

// libfabricFormat is of fi_pingpong.
var libfabricFormat = logFormat{name: Libfabric, head: libfabricHead, start: libfabricHead,
	read: plain("fi_pingpong", Libfabric, bench.ParseFiPingpong)}

var libfabricHead = regexp.MustCompile(`(?m)^bytes\s+#sent\s+#ack\s`)
