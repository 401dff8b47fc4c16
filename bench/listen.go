package bench

import (
	"strconv"
	"strings"
)

// listens tells whether a TCP socket listens on port, by the content of /proc/net/tcp and tcp6. Of each line
// the second field is the local address, hexadecimal with the port after the colon, and the fourth the state:
// 0A is LISTEN. See https://docs.kernel.org/networking/proc_net_tcp.html.
func listens(procNetTCP []byte, port int) bool {
	for line := range strings.Lines(string(procNetTCP)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != "0A" {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); err == nil && int(p) == port {
			return true
		}
	}
	return false
}
