package suggest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rackless/rackless/internal/words"
	"github.com/rackless/rackless/rdma/fabric"
	"github.com/rackless/rackless/rdma/simulate"
)

// shown returns a value of a parameter for people.
func shown(name string, v values) string {
	switch name {
	case ecn:
		return marksText(v)
	case kmin, kmax, resume:
		return words.Bytes(int64(v[name]))
	case pmax:
		return strconv.FormatFloat(100*v[name], 'g', 4, 64) + "%"
	case alpha:
		return strconv.FormatFloat(v[name], 'g', 4, 64)
	}
	return strconv.FormatInt(int64(v[name]), 10)
}

// hostLines returns the commands that set up a host: priority, PFC, and the parameters of DCQCN that were changed or
// that the file sets.
func hostLines(c *simulate.Config, changed []string) []string {
	lossless := make([]string, 8)
	for prio := range lossless {
		lossless[prio] = strconv.Itoa(int(c.Switch.PFC.Priorities >> prio & 1))
	}
	dscp := c.NIC.DSCP()
	list := []string{
		"mlnx_qos -i eth0 --trust dscp",
		"mlnx_qos -i eth0 --pfc " + strings.Join(lossless, ","),
		fmt.Sprintf("mlnx_qos -i eth0 --dscp2prio set,%d,%d", dscp, c.NIC.Priority),
		// ECN needs the lowest bits to be 10: able to be marked.
		fmt.Sprintf("cma_roce_tos -d mlx5_0 -t %d", dscp<<2|2),
	}
	for name := range c.NIC.CCParams {
		if !slices.Contains(changed, name) {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	for _, name := range changed {
		if v, ok := c.NIC.Param(name); ok && c.NIC.Controlled() {
			list = append(list, fmt.Sprintf("for d in /sys/kernel/debug/mlx5/*/cc_params; do echo %d >$d/%s; done", v,
				name))
		}
	}
	return list
}

// plain returns the values for a switch.
func plain(c *simulate.Config) (list []Plain) {
	add := func(name, format string, args ...any) { list = append(list, Plain{name, fmt.Sprintf(format, args...)}) }
	t := c.Thresholds()
	if red := c.Switch.ECN.RED; red != (fabric.RED{}) {
		add("ECN Kmin", "%d bytes", red.Min)
		add("ECN Kmax", "%d bytes", red.Max)
		add("ECN Pmax", "%s%%", strconv.FormatFloat(100*red.Probability, 'g', 4, 64))
	}
	add("buffer", "%d bytes", int64(c.Switch.Buffer))
	add("alpha of the dynamic threshold", "%s", strconv.FormatFloat(c.Switch.Alpha, 'g', 4, 64))
	if c.Switch.PFC.Priorities == 0 {
		add("drops, one port alone", "%d bytes", t.XOFF)
		return list
	}
	add("PFC priorities", "%v", c.Switch.PFC.Priorities)
	add("XOFF, one port alone", "%d bytes", t.XOFF)
	add("XON, one port alone", "%d bytes", t.XON)
	add("headroom", "%d bytes", t.Headroom)
	return list
}
