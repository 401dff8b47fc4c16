package lab

import "fmt"

// Totals says how many CPUs and how much memory a lab has, as far as the file says it. Nodes that leave their size to
// the planner are not counted: what it chooses follows from the host.
func (l *Lab) Totals() (cpus, memory string) {
	const auto = " and what plan chooses"
	var n int
	var b Bytes
	unit, moreCPUs, moreMemory := "CPUs", "", ""
	for _, node := range l.Nodes {
		if node.AutoCPUs {
			moreCPUs = auto
		} else {
			n += node.CPUs
		}
		if node.AutoMemory {
			moreMemory = auto
		} else {
			b += node.Memory
		}
	}
	if n == 1 {
		unit = "CPU"
	}
	return fmt.Sprintf("%d %s%s", n, unit, moreCPUs), fmt.Sprintf("%v memory%s", b, moreMemory)
}
