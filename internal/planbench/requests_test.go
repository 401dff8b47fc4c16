package planbench

import "fmt"

// A shapeOf is one kind of machine that people ask for, with how many of a hundred requests ask for it.
type shapeOf struct {
	percent, cpus, gib, gpus, vfs int
}

// mix is the mix of requests to a fleet of GPU machines: small ones without GPUs, and 1, 2, 4 or 8
// GPUs with a virtual function each. It is made up.
var mix = []shapeOf{
	{18, 8, 16, 0, 1},
	{12, 16, 48, 0, 1},
	{8, 64, 96, 0, 2},
	{26, 24, 32, 1, 1},
	{14, 40, 96, 1, 1},
	{12, 48, 96, 2, 2},
	{7, 96, 160, 4, 4},
	{3, 224, 448, 8, 8},
}

// request returns request i as a line of JSON, and what it is of the mix. The same i is always the same request.
func request(i int) (line string, s shapeOf) {
	// A multiplicative congruential generator (Lehmer): the mix must not follow a pattern, and must
	// be the same everywhere.
	x := uint64(i+1) * 48271 % 2147483647 * 48271 % 2147483647
	draw := int(x * 100 / 2147483647)
	for _, s = range mix {
		if draw < s.percent {
			break
		}
		draw -= s.percent
	}
	gpus := ""
	workload := "cpu-bandwidth"
	if s.gpus > 0 {
		gpus, workload = fmt.Sprintf(`"gpus":%d,`, s.gpus), "gpu-collective"
	}
	return fmt.Sprintf(`{"name":"r%d","workload":%q,"nodes":{"vm":{"cpus":%d,"memory":"%dGiB",%s"vfs":%d}}}`, i,
		workload, s.cpus, s.gib, gpus, s.vfs), s
}
